"""Windows of event time that overlap: a record is in several input sets.

Windows that overlap share what they have in common. The state of a window is one part for each of its *panes*, the
spans of which all windows are made up. A pane's part is the same object in every window: its rows are filtered and
aggregated once, and the windows hold it together. Recovery, which rebuilds one set after the other, makes parts that
are equal and not the same; they give the same result.

Parts of panes merge in order of time. Where order of arrival counts (`first`, `collect_list`), and for functions of
whole sets, each window takes its rows by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logline.graph.operator import Batch
from logline.operators.aggregates import Aggregates, Parts, Reduction
from logline.operators.saving import pack, unpack
from logline.operators.window import Times, TumblingAggregate
from logline.operators.windows import Sliding


class Pane:
    """The rows of one pane, aggregated. It does not change; the partial that it comes to is made once."""

    __slots__ = ("_whole", "parts")

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._whole: pa.Table | None = None

    def whole(self, aggregates: Aggregates) -> pa.Table:
        """All of it as one partial."""
        if self._whole is None:
            self._whole = aggregates.whole(self.parts)
        return self._whole


class _Shared:
    """What the windows of the last event share: by pane what was there before it, and what came of it. No part of
    what the operator is."""

    __slots__ = ("batch", "panes")

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.panes: dict[int, tuple[Pane | None, Pane]] = {}

    def __reduce__(self) -> tuple[type[_Shared], tuple[()]]:
        return _Shared, ()


class SlidingAggregate(TumblingAggregate):
    """One output event per window, as of windows that tumble."""

    def __init__(self, window: Sliding, aggregates: Reduction[Any]) -> None:
        super().__init__(window, aggregates)
        self._panes = aggregates if isinstance(aggregates, Aggregates) and not aggregates.in_order else None
        self._shared = _Shared()

    def parameters(self) -> Mapping[str, object]:
        return {**super().parameters(), "step": self.window.step}

    def _add(self, parts: Any, times: Times, start: int) -> Any:
        if self._panes is None:
            return super()._add(parts, times, start)
        if self._shared.batch is not times.batch:
            self._shared.batch, self._shared.panes = times.batch, {}
        known: dict[int, Pane] = parts or {}
        end = times.axis.end(start)
        return {**known, **{at: self._pane(known.get(at), times, at) for at in times.panes if start <= at < end}}

    def _pane(self, before: Pane | None, times: Times, at: int) -> Pane:
        assert self._panes is not None
        found = self._shared.panes.get(at)
        if found is not None and found[0] is before:
            return found[1]
        whole = len(times.panes) == 1 and not times.ticks.null_count
        inside = None if whole else pc.equal(times.axis.pane_of(times.ticks), at)
        rows = times.batch if inside is None else times.batch.filter(inside)
        made = Pane(self._panes.add(None if before is None else before.parts, rows))
        self._shared.panes[at] = before, made
        return made

    def _encode_parts(self, parts: Any) -> bytes:
        if self._panes is None:
            return super()._encode_parts(parts)
        return pack([(at, self._panes.encode(pane.parts)) for at, pane in parts.items()])

    def _decode_parts(self, data: bytes) -> Any:
        if self._panes is None:
            return super()._decode_parts(data)
        return {at: Pane(self._panes.decode(one)) for at, one in unpack(data)}

    def _result(self, parts: Any) -> pa.Table:
        if self._panes is None:
            return super()._result(parts)
        partials = [parts[at].whole(self._panes) for at in sorted(parts)]
        return self._panes.final(self._panes.merge(partials))
