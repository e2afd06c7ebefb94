"""The tables of a journal. A commit changes the rows that a step is about, never the whole image (R1).

    journal    -                        format, incarnation, commits, serial, dues, marks, left, numbers of sets
    state      -                        global state
    heads      port                     last, total, base       pins      port, block          (`store/pins.py`)
    sets       serial                   id, cause, due, kept    members   serial, commit       (`store/members.py`)
    timers     digest of the id         id, at, clock, span     done      channel, block, serial
    keyed      digest of the key        key, value, touched
    answers    serial, row, n           fn, digest, value       failures  serial
    resolved   SSN                      how an error was settled
    retrying   SSN                      the set that an error's is now
    covered, checkpoints, saved, covered_lows       checkpoints of open sets (`store/checkpoints.py`)

    positions, clock, reads, written    by channel, channel, partition, target: `PLAIN`
    segments, segment_sets, kept_sets, kept_answers, runs, run_events     what lineage keeps (`store/history.py`)

A field of a step that only replaces entries of the image (`update(into=...)`) has a table without being listed here:
its name is that of the image's field, its columns follow from the field's type.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from logline.engine.merging import Part, replacing
from logline.engine.results import Failure, Outcome
from logline.engine.sets import Answer, SetCause
from logline.engine.step import Step
from logline.graph.operator import Clock
from logline.names import Serial, Ssn
from logline.store import checkpoints
from logline.store.encoding import FORMAT
from logline.store.history import HISTORY
from logline.store.members import DONE, MEMBERS
from logline.store.pins import PINS
from logline.store.rows import Table


class JournalRow(NamedTuple):
    """What is read and written by every commit."""

    format: int = FORMAT
    incarnation: int = 0
    commits: int = 0
    serial: Serial = Serial(0)
    dues: int = 0
    """Numbers the sets as they become due, so that their order is stored (R6)."""
    marks: int = 0
    left: bool = False
    sets: int = 0
    """How many sets there are, and what of them a recovery reads: `SetCounts`."""
    checkpoints: int = 0
    replay: int = 0


class HeadRow(NamedTuple):
    """A port; what is pinned below its base are rows of their own."""

    last: Ssn
    total: int
    base: Ssn


class SetRow(NamedTuple):
    """An open set; its members are rows of their own."""

    id: bytes
    cause: SetCause | None
    due: int
    """Its place among the due ones; 0 if it is not due."""
    kept: int = 0
    """How often it was generated and kept open."""
    seen: int = 0
    """How many members it had the last time."""


class TimerRow(NamedTuple):
    """A timer with its id."""

    id: bytes
    at: int
    clock: Clock
    span: int = 0
    """In older logs there is none."""


class KeyRow(NamedTuple):
    """The state of a key (R31)."""

    key: bytes
    value: bytes
    touched: int


class PlainField(NamedTuple):
    """A field of a step that replaces rows and means nothing else."""

    part: str | None
    field: str
    into: str
    table: Table[Any]


def _plain() -> list[PlainField]:
    found = []
    for part, field, into in replacing(Step):
        place = vars(Step)[part] if part is not None else None
        owner = place.make if isinstance(place, Part) else Step
        _, record = get_args(get_type_hints(owner)[field])
        found.append(PlainField(part, field, into, Table(into, record, "name")))
    return found


JOURNAL = Table("journal", JournalRow)
STATE = Table("state", bytes)
HEADS = Table("heads", HeadRow, "name")
SETS = Table("sets", SetRow, "number")
TIMERS = Table("timers", TimerRow, "digest")
KEYED = Table("keyed", KeyRow, "digest")
ANSWERS = Table("answers", Answer, "number", "number", "number")
FAILURES = Table("failures", Failure, "number")
RESOLVED: Table[Outcome | Literal[True]] = Table("resolved", str | bool, "number")  # type: ignore[arg-type]
"""In older logs the value is True, however it was settled."""
RETRYING = Table("retrying", Serial, "number")
PLAIN = _plain()
_ERRORS: list[Table[Any]] = [FAILURES, RESOLVED, RETRYING]
_OTHERS: list[Table[Any]] = [
    JOURNAL,
    STATE,
    HEADS,
    PINS,
    SETS,
    MEMBERS,
    DONE,
    TIMERS,
    KEYED,
    ANSWERS,
    *_ERRORS,
    *checkpoints.TABLES,
]
BY_NAME = {table.name: table for table in (*_OTHERS, *(plain.table for plain in PLAIN), *HISTORY)}
"""All tables."""
POSITIONS, WRITTEN, CLOCK = BY_NAME["positions"], BY_NAME["written"], BY_NAME["clock"]


def answer_key(answer: Answer) -> tuple[int, int, int]:
    """The row is -1 for a call outside of rows; keys begin with 0."""
    return answer.serial, answer.row + 1, answer.n
