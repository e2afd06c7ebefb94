"""The history that lineage scopes keep, as rows: sets that are done, what they were made of and what they made.

    SEGMENTS      number               a segment of history                (R12: retention is by segment)
    SEGMENT_SETS  segment, commit      what of it that commit finished
    KEPT_SETS     serial               a done set with its members and outputs
    KEPT_ANSWERS  serial, row, n       an answer that it got
    RUNS          serial               a run of sets of one event
    RUN_EVENTS    channel, SSN         the same, by its first event

A set of several events is a row of its own. Sets of one event are kept as runs, two rows for as many as one commit
finished, since a row for each would cost a fast operator more than its work does. What a set of a run put out is
found in the events themselves: each holds its set's serial, and on a port they rise with the SSN (see `Step.close`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from logline.engine import codec
from logline.engine.events import Output
from logline.engine.history import Finished, Lone, Segment
from logline.engine.sets import Answer, own_id
from logline.engine.step import LineageChanges
from logline.names import ChannelName, PortName, Serial, Ssn
from logline.store import members
from logline.store.members import Joined
from logline.store.rows import Events, Rows, Table

Made = dict[Serial, list[tuple[PortName, Ssn]]]


class KeptSet(NamedTuple):
    """A set that is done."""

    id: bytes
    joined: Joined
    made: list[tuple[PortName, Ssn]]


class SegmentSets(NamedTuple):
    """What a commit added to a segment: serials of sets, first serials of runs."""

    sets: list[Serial]
    runs: list[Serial]


class RunRow(NamedTuple):
    """A run of sets of one event."""

    channel: ChannelName
    ssn: Ssn
    many: int


class RunEvent(NamedTuple):
    """The same, seen from its first event."""

    serial: Serial
    many: int


SEGMENTS = Table("segments", Segment, "number")
SEGMENT_SETS = Table("segment_sets", SegmentSets, "number", "number")
KEPT_SETS = Table("kept_sets", KeptSet, "number")
KEPT_ANSWERS = Table("kept_answers", Answer, "number", "number", "number")
RUNS = Table("runs", RunRow, "number")
RUN_EVENTS = Table("run_events", RunEvent, "name", "number")
HISTORY: tuple[Table[Any], ...] = (SEGMENTS, SEGMENT_SETS, KEPT_SETS, KEPT_ANSWERS, RUNS, RUN_EVENTS)


# ---- writing ------------------------------------------------------------------------------------------------


def made_by(outputs: Sequence[Output], kept: Sequence[Serial]) -> Made:
    """What each kept set of a step put out."""
    found: Made = {serial: [] for serial in kept}
    if found:
        for output in outputs:
            if output.serial in found:
                found[output.serial].append((output.port, output.ssn))
    return found


def put_step(rows: Rows, number: int, lineage: LineageChanges) -> None:
    """The segment, and what the commit of that number adds to it; sets are put when they are finished."""
    if lineage.expired:
        _expire(rows, lineage.expired)
    segment = lineage.segment
    if segment is None or segment.number <= lineage.expired:
        return
    rows.put(SEGMENTS, (segment.number,), segment)
    if not lineage.kept and not lineage.lone:
        return
    for run in lineage.lone:
        rows.put(RUNS, (run.serial,), RunRow(run.channel, run.ssn, run.count))
        rows.put(RUN_EVENTS, (run.channel, run.ssn), RunEvent(run.serial, run.count))
    added = SegmentSets(lineage.kept, [run.serial for run in lineage.lone])
    rows.put(SEGMENT_SETS, (segment.number, number), added)


def _expire(rows: Rows, upto: int) -> None:
    """Forgets the segments up to this number. Memberships stay until their events go, as without lineage."""
    for _, (sets, runs) in list(rows.scan(SEGMENT_SETS, below=upto + 1)):
        for serial in sets:
            rows.delete_range(KEPT_ANSWERS, (serial,))
            rows.delete(KEPT_SETS, (serial,))
        for serial in runs:
            run = rows.get(RUNS, (serial,))
            assert run is not None
            rows.delete(RUN_EVENTS, (run.channel, run.ssn))
            rows.delete(RUNS, (serial,))
    rows.delete_range(SEGMENT_SETS, below=upto + 1)
    rows.delete_range(SEGMENTS, below=upto + 1)


# ---- reading ------------------------------------------------------------------------------------------------


def segments(rows: Rows) -> list[Segment]:
    """The segments of the history, the oldest first."""
    return [segment for _, segment in rows.scan(SEGMENTS)]


def low(rows: Rows, channel: ChannelName) -> Ssn | None:
    """The first event of the channel that the kept history leads to."""
    return min((s.lows[channel] for s in segments(rows) if channel in s.lows), default=None)


def inset(rows: Rows, serial: Serial) -> Finished | None:
    """A set by its serial."""
    kept = rows.get(KEPT_SETS, (serial,))
    if kept is not None:
        return _finished(serial, kept)
    run = _run_of(rows, serial)
    return None if run is None else _one_of(run, serial)


def _finished(serial: Serial, kept: KeptSet) -> Finished:
    return Finished(serial, codec.decode(kept.id), tuple(kept.joined.members()))


def _one_of(run: Lone, serial: Serial) -> Finished:
    member = run.member(serial)
    return Finished(serial, own_id(member), (member,))


def _run_of(rows: Rows, serial: Serial) -> Lone | None:
    found = rows.floor(RUNS, (serial,))
    if found is None:
        return None
    run = Lone(found[0][0], *found[1])
    return run if serial < run.serial + run.count else None


def every(rows: Rows) -> Iterator[Finished]:
    """Every set; for tables and checks."""
    for (serial,), kept in rows.scan(KEPT_SETS):
        yield _finished(serial, kept)
    for (first,), row in rows.scan(RUNS):
        for serial in range(first, first + row.many):
            yield _one_of(Lone(first, *row), Serial(serial))


def insets_of(rows: Rows, channel: ChannelName, ssn: Ssn) -> list[Serial]:
    """The sets that have this event as a member."""
    found = {known.serial for known in members.memberships(rows, channel, ssn)}
    index = rows.floor(RUN_EVENTS, (channel, ssn))
    if index is not None:
        (_, first), (serial, many) = index
        if ssn - first < many:
            found.add(Serial(serial + ssn - first))
    return sorted(found)


def made_from(rows: Rows, events: Events, serial: Serial, last: dict[PortName, Ssn]) -> list[tuple[PortName, Ssn]]:
    """What a set put out on these ports, whose last events are given."""
    kept = rows.get(KEPT_SETS, (serial,))
    if kept is not None:
        return [(port, ssn) for port, ssn in kept.made if port in last]
    if _run_of(rows, serial) is None:
        return []
    return [(port, ssn) for port, end in last.items() for ssn in _search(events, port, serial, end)]


def _search(events: Events, port: PortName, serial: Serial, last: Ssn) -> Iterator[Ssn]:
    """Events of a port whose set has this serial, found by halving: serials rise with the SSN."""

    def first_from(ssn: int) -> tuple[int, int] | None:
        """The first event that is there from `ssn` on, with its serial. A mark has none: the end, which is the last
        one, and where it was taken back a few between the others (R11')."""
        while (event := events.first_from(port, ssn)) is not None and event.mark:
            ssn = event.ssn + 1
        return None if event is None or event.ssn > last else (event.ssn, event.serial)

    low, high = 1, last + 1
    while low < high:
        middle = (low + high) // 2
        found = first_from(middle)
        if found is None or found[1] >= serial:
            high = middle
        else:
            low = found[0] + 1
    while (found := first_from(low)) is not None and found[1] == serial:
        yield Ssn(found[0])
        low = found[0] + 1
