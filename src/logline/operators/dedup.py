"""The first row of each key, and no other: for good, or within a time.

With `within` a row counts as seen before if a row of its key was passed on less than that before it: by the column
`time`, or by the wall clock at which it came. It works on whole batches; only the lookup of each distinct key is
Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from logline.engine.codec import micros
from logline.errors import OptionError
from logline.graph.durations import duration
from logline.graph.operator import Batch, Context, Dependency, Duration, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.by_key import RowsByKey, check_keys, key_columns, parameters_of
from logline.operators.grouping import count_to
from logline.operators.tables import same_columns

_NUMBER = pa.int64()
_NO_TIME = -(1 << 61)
"""The time of a row without one: it is passed on if its key was never seen, and holds back no other."""


class Dedup(Operator[Batch, None]):
    """Passes on the first row of each key. The state of a key is when its last row was passed on."""

    reuses_memory = False
    Keyed = int

    def __init__(self, by: Iterable[str], within: Duration | None = None, time: str | None = None) -> None:
        self.by = key_columns(by)
        self.within = None if within is None else duration(within)
        if self.within is not None and self.within.total_seconds() <= 0:
            raise OptionError(f"within={within!r}: the time must be positive")
        if time is not None and within is None:
            raise OptionError(f"time={time!r}: there is no within= that it would be for")
        self.ttl = self.within
        self.time = {} if time is None else {"in": time}

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        check_keys(self.by, inputs["in"])
        return {"out": inputs["in"]}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def parameters(self) -> Mapping[str, object]:
        return parameters_of(self.by)

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Batch]:
        rows = RowsByKey.of(acc, self.by)
        # What is still there of those to be forgotten counts: a row may be older than the newest of its event.
        seen = pa.array(ctx.keys.get_all(rows.keys, stale=True), _NUMBER)
        if self.within is None:
            mask = pc.and_(rows.first, pc.is_null(seen).take(rows.numbers))
            passed = rows.numbers.filter(mask).to_pylist()
            ctx.keys.set_all([rows.keys[number] for number in passed], [0] * len(passed))
        else:
            mask = self._mask(rows, seen, self._times(acc, ctx), ctx)
        if (kept := acc.filter(mask)).num_rows:
            yield kept

    def _times(self, batch: Batch, ctx: Context[None]) -> pa.Array:
        """When each row was, in microseconds."""
        if not self.time:
            return pa.repeat(pa.scalar(micros(ctx.now()), _NUMBER), batch.num_rows)
        column = batch.column(self.time["in"])
        zone = getattr(column.type, "tz", None)
        return pc.fill_null(column.cast(pa.timestamp("us", zone), safe=False).cast(_NUMBER), _NO_TIME)

    def _mask(self, rows: RowsByKey, last: pa.Array, times: pa.Array, ctx: Context[None]) -> pa.Array:
        """Which rows are passed on. Each round finds the next one of every key."""
        assert self.within is not None
        span = pa.scalar(self.within // timedelta(microseconds=1), _NUMBER)
        left = pa.table({"key": rows.numbers, "at": times, "row": count_to(len(times))})
        every, passed, found = count_to(len(rows.keys)), [], last
        while left.num_rows:
            until = pc.add(found, span).take(left["key"])
            left = left.filter(pc.fill_null(pc.greater_equal(left["at"], until), True))
            firsts = left.group_by("key", use_threads=False).aggregate([("row", "min")])
            taken = firsts["row_min"].combine_chunks()
            passed.append(taken)
            place = pc.index_in(every, value_set=firsts["key"].combine_chunks())
            found = pc.coalesce(times.take(taken).take(place), found)
        newest = found.to_pylist()
        changed = [number for number, old in enumerate(last.to_pylist()) if old != newest[number]]
        ctx.keys.set_all([rows.keys[number] for number in changed], [newest[number] for number in changed])
        return pc.is_in(
            pa.array(range(len(times)), _NUMBER), value_set=pa.concat_arrays([*passed, every.slice(0, 0)])
        )
