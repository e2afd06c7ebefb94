"""The rows of a batch by key: which keys there are, in the order in which they first appear, and which rows each has.

    >>> batch = pa.record_batch({"card": ["b", None, "b"], "amount": [1, 2, 3]})
    >>> rows = RowsByKey.of(batch, ["card"])
    >>> rows.keys, rows.numbers.to_pylist(), rows.first.to_pylist()
    ([('b',), (None,)], [0, 1, 0], [True, True, False])
    >>> [part["amount"].to_pylist() for part in rows.parts(batch)]
    [[1, 3], [2]]

Nulls are one key, as in SQL's `group by`; so are NaN, and zero whatever its sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from logline.errors import OptionError, SchemaError
from logline.graph.keys import Key
from logline.operators.grouping import comparable
from logline.operators.row_answers import in_micros
from logline.operators.tables import columns_of

_NUMBER = pa.int64()


class RowsByKey(NamedTuple):
    """The keys of a batch, and the number of its key for each row."""

    keys: list[Key]
    numbers: pa.Array

    @classmethod
    def of(cls, batch: pa.RecordBatch, by: Sequence[str]) -> RowsByKey:
        """Numbers the rows of a batch by the values of these columns."""
        numbers, values, found = None, [], []
        for name in by:
            column = _plain(batch.column(name))
            coded = column.dictionary_encode(null_encoding="encode")
            codes = coded.indices.cast(_NUMBER)
            values.append(coded.dictionary)
            if numbers is None:
                numbers, found = codes, [pa.array(range(len(coded.dictionary)), _NUMBER)]
                continue
            many = pa.scalar(max(len(coded.dictionary), 1), _NUMBER)
            both = pc.add(pc.multiply(numbers, many), codes).dictionary_encode()
            numbers, pairs = both.indices.cast(_NUMBER), both.dictionary
            before = pc.divide(pairs, many)
            found = [*(codes.take(before) for codes in found), pc.subtract(pairs, pc.multiply(before, many))]
        assert numbers is not None
        columns = [dictionary.take(codes).to_pylist() for dictionary, codes in zip(values, found, strict=True)]
        return cls(list(zip(*columns, strict=True)), numbers)

    @property
    def first(self) -> pa.Array:
        """Whether each row is the first of its key."""
        if not len(self.numbers):
            return pa.array([], pa.bool_())
        highest = pc.cumulative_max(self.numbers)
        before = pa.concat_arrays([pa.array([-1], _NUMBER), highest.slice(0, len(highest) - 1)])
        return pc.greater(self.numbers, before)

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of each key, in their order."""
        if len(self.keys) == 1:
            yield batch
            return
        ordered = batch.take(pc.sort_indices(self.numbers))  # stable
        at = 0
        for count in pc.value_counts(self.numbers).field("counts").to_pylist():  # in the order of first appearance
            yield ordered.slice(at, count)
            at += count


def _plain(column: pa.Array) -> pa.Array:
    """A column whose equal values have the same bits."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    return comparable(in_micros(column))


_KINDS = (
    pt.is_string,
    pt.is_large_string,
    pt.is_binary,
    pt.is_large_binary,
    pt.is_fixed_size_binary,
    pt.is_integer,
    pt.is_floating,
    pt.is_boolean,
    pt.is_decimal,
    pt.is_date,
    pt.is_time,
    pt.is_timestamp,
    pt.is_duration,
    pt.is_null,
)


def key_columns(by: object, what: str = "by") -> tuple[str, ...]:
    """The columns that `by=` names, or a parameter that is called otherwise."""
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise OptionError(f'{what}={by!r}: name the columns of the key, as in {what}=["card"]')
    if len(set(names)) < len(names):
        raise OptionError(f"{what}={by!r}: a column is named twice")
    return names


def check_keys(by: Sequence[str], schema: pa.Schema, what: str = "by") -> None:
    """Raises unless these columns can be a key."""
    for name in by:
        if name not in schema.names:
            raise SchemaError(f"{what}={list(by)!r}: there is no column {name!r}; there are {columns_of(schema)}")
        kind: Any = schema.field(name).type
        kind = kind.value_type if pt.is_dictionary(kind) else kind
        if not any(is_kind(kind) for is_kind in _KINDS):
            raise SchemaError(
                f"{what}={list(by)!r}: column {name!r} is {kind}, and a key is of plain values: cast it before"
            )


def typed_key(key: Key, by: Sequence[str], schema: pa.Schema) -> Key:
    """A key of the log as a batch would give it: with the time zones of its columns."""
    return tuple(_typed(atom, schema.field(name).type) for name, atom in zip(by, key, strict=True))


def _typed(atom: Any, kind: Any) -> Any:
    return in_micros(pa.array([atom], kind))[0].as_py() if pt.is_timestamp(kind) and kind.tz else atom


def parameters_of(by: Sequence[str]) -> Mapping[str, object]:
    """What gives the states of keys their meaning (R14)."""
    return {"by": ", ".join(by)}
