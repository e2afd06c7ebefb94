"""The running top n rows of each key.

After each event it puts out, for every key whose list has changed, the whole list as it is now: at most n rows, best
first, with the column `rank` from 1 on. A list only grows, up to n rows; so a table that is written by key and rank
(`mode="upsert"`, `key=[*by, "rank"]`) always holds the lists of now. Rows that are equal in `order` stand in the
order in which they came; nulls come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, SchemaError
from logline.graph.operator import Batch, Context, Dependency, Operator, SchemaLike
from logline.names import InsetId
from logline.operators.by_key import RowsByKey, check_keys, key_columns, parameters_of
from logline.operators.checks import at_least_one
from logline.operators.grouping import count_to
from logline.operators.kept_rows import check_kept, rows_of_states, rows_to_states
from logline.operators.tables import columns_of, same_columns

RANK = "rank"
_NUMBER = pa.int64()
_KEY, _CAME = "\0key", "\0came"
"""Columns of its own: the number of the key, and in which order the rows came."""


class Top(Operator[Batch, None]):
    """Keeps the best n rows of each key. The state of a key is its rows, as an Arrow record batch."""

    reuses_memory = False
    Keyed = bytes

    def __init__(self, n: int, by: Iterable[str], order: str | Sequence[str]) -> None:
        self.n = at_least_one(n, "n")
        self.by = key_columns(by)
        self.order = _order(order)
        self.input = pa.schema([])

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        self.input = inputs["in"]
        check_keys(self.by, self.input)
        for name, _ in self.order:
            if name not in self.input.names:
                raise SchemaError(f"order: there is no column {name!r}; there are {columns_of(self.input)}")
        if RANK in self.input.names:
            raise SchemaError(f"the input has a column {RANK!r}, which top() adds: rename it before")
        check_kept(self.input, "top()")
        return {"out": self.input.append(pa.field(RANK, _NUMBER))}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def parameters(self) -> Mapping[str, object]:
        order = ", ".join(f"{name} {'desc' if how == 'descending' else 'asc'}" for name, how in self.order)
        return {**parameters_of(self.by), "n": self.n, "order": order}

    def key_rows(self) -> pa.Schema:
        return self.input

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[pa.Table]:
        rows = RowsByKey.of(acc, self.by)
        known, of = rows_of_states(ctx.keys.get_all(rows.keys), self.input)
        before = known.num_rows
        table = pa.concat_tables([known, pa.Table.from_batches([acc], schema=self.input)])
        table = table.append_column(_KEY, pa.concat_arrays([of, rows.numbers]))
        table = table.append_column(_CAME, count_to(table.num_rows))
        sort = [(_KEY, "ascending"), *self.order, (_CAME, "ascending")]
        table = table.take(pc.sort_indices(table, sort_keys=sort))
        table = table.append_column(RANK, pc.add(_places(table[_KEY].combine_chunks()), 1))
        table = table.filter(pc.less_equal(table[RANK], self.n))
        changed = pc.unique(table[_KEY].filter(pc.greater_equal(table[_CAME], before)))
        table = table.filter(pc.is_in(table[_KEY], value_set=changed)).combine_chunks()
        if not table.num_rows:
            return
        lists = table.select(self.input.names).to_batches()[0]
        counts = pc.value_counts(table[_KEY].combine_chunks())
        states = rows_to_states(lists, counts.field("counts").to_pylist())
        ctx.keys.set_all([rows.keys[number] for number in counts.field("values").to_pylist()], states)
        yield table.select([*self.input.names, RANK])


def _places(numbers: pa.Array) -> pa.Array:
    """For each row its place among those of its key; the keys stand one after the other."""
    counts = pc.value_counts(numbers).field("counts")
    ends = pc.cumulative_sum(counts) if len(counts) else counts
    starts = pc.subtract(ends, counts)
    which = numbers.dictionary_encode().indices
    return pc.subtract(count_to(len(numbers)), starts.take(which))


def _order(order: object) -> list[tuple[str, Any]]:
    """`"price desc, at"`, or a list of such parts."""
    parts = order.split(",") if isinstance(order, str) else list(order) if isinstance(order, Sequence) else []
    found: list[tuple[str, Any]] = []
    for part in parts:
        words = part.split() if isinstance(part, str) else []
        how = words[1].lower() if len(words) == 2 else "asc"
        if len(words) not in (1, 2) or how not in ("asc", "desc"):
            raise OptionError(f"order={order!r}: name columns, each with asc or desc, as in 'price desc, at'")
        found.append((words[0], "ascending" if how == "asc" else "descending"))
    if not found:
        raise OptionError(f"order={order!r}: name at least one column, as in 'price desc'")
    return found
