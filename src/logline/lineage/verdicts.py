"""What became of a row on its way to a port: the words of an answer, and the answers as a table.

| column | |
|---|---|
| source | the event that the row is in, `orders:17`; a port, if the answer is about all that the log has of it |
| row | its number there, from 0; null for a port |
| what | see `What` |
| operator | where that happened |
| event | the event that the row is in there, if it is known: at the port, on a port `late` or `errors` |
| inset | the operator's input set, as in EVENT_LOG |
| level | `row`: this row itself; `event`: all that is known is what became of its event |
| detail | the same in a sentence, and what to do |
| record | the row, as JSON |
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa

from logline.lineage.view import Event, Port, name_of, port_text
from logline.names import Called

What = Literal[
    "arrived",
    "open",
    "waiting",
    "unread",
    "diverted",
    "late",
    "filtered",
    "dropped",
    "elsewhere",
    "untraced",
    "collected",
]
"""`arrived`: it is at the port. `open`: in an input set that waits for more. `waiting`: its set is due and not
generated, or its write is not done. `unread`: an operator, or the source, has not come to it. `diverted`: on a port
`errors`. `late`: on a port `late`. `filtered`: the operator made nothing of it. `dropped`: it failed and was let go
of. `elsewhere`: it left on a port that does not lead there. `untraced`: no lineage scope captures what became of it.
`collected`: it is not in the log any more, or what became of it is not."""
ORDER: tuple[What, ...] = get_args(What)
Level = Literal["row", "event"]

EXPLAINED = pa.schema(
    [
        ("source", pa.string()),
        ("row", pa.int64()),
        ("what", pa.string()),
        ("operator", pa.string()),
        ("event", pa.string()),
        ("inset", pa.string()),
        ("level", pa.string()),
        ("detail", pa.string()),
        ("record", pa.string()),
    ]
)


class Verdict(NamedTuple):
    """What became of a row, at one operator."""

    what: What
    operator: Called
    detail: str
    event: str | None = None
    inset: str | None = None
    level: Level = "row"


class SourceRow(NamedTuple):
    """A row that meets the condition."""

    event: Event
    row: int
    record: dict[str, Any]


def row_of(asked: SourceRow | Port, verdict: Verdict) -> dict[str, Any]:
    """One row of the table."""
    found = verdict._asdict()
    if isinstance(asked, SourceRow):
        record = json.dumps(asked.record, default=str)
        return {"source": name_of(asked.event), "row": asked.row, **found, "record": record}
    return {"source": port_text(asked), "row": None, **found, "record": None}


def explained_table(rows: Iterable[tuple[SourceRow | Port, Verdict]]) -> pa.Table:
    """The answers, in this order."""
    return pa.Table.from_pylist([row_of(asked, verdict) for asked, verdict in rows], schema=EXPLAINED)
