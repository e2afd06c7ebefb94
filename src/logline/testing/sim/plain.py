"""Payloads of the simulator: tuples of records instead of Arrow batches. A record is (id, time).

The protocol never looks into a payload, so a simulated schedule need not pay for Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from logline.engine.results import Failure, Produced
from logline.engine.spec import write_port
from logline.graph.operator import Emit, Reject, Write
from logline.names import ERRORS, OUT, InsetId, PortName, TargetName

Record = tuple[str, int]
Records = tuple[Record, ...]


def _size(data: Sequence[Any]) -> int:
    return 8 + 8 * len(data)


class PlainPayloads:
    """Tuples as they are."""

    def made(self, inset: InsetId, made: Any, members: Iterable[Any], calls: Any = None) -> Produced | None:
        if isinstance(made, Write):
            data: Any = made.data
            return Produced(write_port(TargetName(made.to)), data, len(data), _size(data))
        if isinstance(made, Reject):
            rows: Any = made.data
            if not rows:
                return None
            return Produced(ERRORS, rows, len(rows), _size(rows))
        port, data = (made.port, made.data) if isinstance(made, Emit) else (OUT, made)
        return Produced(PortName(port), data, len(data), _size(data))

    def read(self, batch: Any) -> Produced:
        return Produced(OUT, batch, len(batch), _size(batch))

    def schema_of(self, port: PortName) -> Any:
        return None

    def joined(self, payloads: Sequence[Any]) -> Any:
        return tuple(record for payload in payloads for record in payload)

    def taken(self, batch: Any) -> Any:
        return batch

    def chunk(self, batches: Sequence[Any], rows: int) -> Sequence[Any]:
        return batches

    def diverted(self, inset: InsetId, members: Sequence[Any], events: Sequence[str], failure: Failure) -> Produced:
        rows = tuple(record for batch in members for record in batch)
        return Produced(ERRORS, rows, len(rows), _size(rows))

    def rejected(self, batch: Any) -> Any:
        return batch

    def greatest_time(self, port: PortName, batch: Any) -> int | None:
        return max((record[1] for record in batch), default=None)
