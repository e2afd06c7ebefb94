"""The columns of a join: by which ones rows match, and what a joined row has.

A joined row has the columns of the left side, then those of the right side without its keys, which would say the same
again. A column of the right side whose name is taken gets a suffix.

    >>> left, right = pa.schema({"id": pa.int64(), "n": pa.int64()}), pa.schema({"id": pa.int64(), "n": pa.string()})
    >>> JoinColumns(left, right, ["id"], "inner").output.names
    ['id', 'n', 'n_right']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, SchemaError
from logline.graph.operator import Dependency
from logline.operators.checks import column_name
from logline.operators.grouping import comparable
from logline.operators.tables import columns_of

How = Literal["inner", "left", "right", "outer", "semi", "anti"]
Side = Literal["left", "right"]
On = Sequence[str] | Mapping[str, str]
"""Columns that both sides have, or a column of the left side to the one of the right side that it equals."""

LEFT: Side = "left"
RIGHT: Side = "right"
SIDES: tuple[Side, Side] = (LEFT, RIGHT)
_ONE_SIDE = ("semi", "anti")
_TWINS = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary(), pa.float16(): pa.float32()}
"""Types with the same values as another one, in which they are compared."""
_LACKS_LEFT = ("right", "outer")
_LACKS_RIGHT = ("left", "outer")


class JoinColumns:
    """Which columns of two sides are compared, and which ones come out."""

    def __init__(
        self, left: pa.Schema, right: pa.Schema, on: On, how: How, suffix: str = "_right", added: Iterable[str] = ()
    ) -> None:
        self.inputs: Mapping[Side, pa.Schema] = {LEFT: left, RIGHT: right}
        self.how: How = _how(how)
        for side in SIDES:
            _check_once(self.inputs[side], side)
        pairs = _pairs(on)
        self.keys: Mapping[Side, tuple[str, ...]] = {LEFT: tuple(pairs), RIGHT: tuple(pairs.values())}
        for mine, other in pairs.items():
            self._check_key(mine, other)
        self.names = {name: name for name in right.names if name not in self.keys[RIGHT]}
        """The columns of the right side that come out, with their names there."""
        self._name(suffix, added)
        self.output = self._output()

    def _check_key(self, mine: str, other: str) -> None:
        kinds: list[pa.DataType] = []
        for side, name in ((LEFT, mine), (RIGHT, other)):
            schema = self.inputs[side]
            if name not in schema.names:
                raise SchemaError(f"on: the {side} side has no column {name!r}: it has {columns_of(schema)}")
            kinds.append(_compared(schema.field(name).type))
            if pa.types.is_nested(kinds[-1]) or pa.types.is_null(kinds[-1]):
                raise SchemaError(f"on: {name!r} of the {side} side is {kinds[-1]}: rows match by plain values only")
        if kinds[0] != kinds[1]:
            raise SchemaError(
                f"on: {mine!r} of the left side is {kinds[0]} and {other!r} of the right side is {kinds[1]}: "
                "give both one type, as select() or with_columns() before the join can"
            )

    def _name(self, suffix: str, added: Iterable[str]) -> None:
        given: object = suffix
        if not isinstance(given, str):
            raise OptionError(f"suffix={suffix!r}: must be a text, for example '_right'")
        if self.how in _ONE_SIDE:
            self.names = {}
        taken = {*self.inputs[LEFT].names, *added}
        for name in added:
            if name in self.inputs[LEFT].names:
                raise OptionError(f"the window adds the column {name!r} itself; give yours another name")
        for name in self.names:
            self.names[name] = made = name + suffix if name in taken else name
            if made in taken or (made != name and made in self.inputs[RIGHT].names):
                raise OptionError(
                    f"the column {name!r} is on both sides, and with suffix={suffix!r} it would be {made!r}, which "
                    "is taken: give another suffix="
                )

    def _output(self) -> pa.Schema:
        left = [field.with_nullable(True) if self.how in _LACKS_LEFT else field for field in self.inputs[LEFT]]
        right = [self.inputs[RIGHT].field(name).with_name(made) for name, made in self.names.items()]
        if self.how in _LACKS_RIGHT:
            right = [field.with_nullable(True) for field in right]
        return pa.schema([*left, *right])

    def dependencies(self) -> list[Dependency]:
        """Of which records of which side a joined record is made. An unmatched one has no time of the other side,
        where every record has one: so it is made of none of them."""
        left = [Dependency(name, name, port=LEFT) for name in self.inputs[LEFT].names]
        keys = [Dependency(mine, other, port=RIGHT) for mine, other in zip(*self.keys.values(), strict=True)]
        return [*left, *keys, *(Dependency(made, name, port=RIGHT) for name, made in self.names.items())]

    def needed(self, side: Side, whole: bool, time: str | None) -> tuple[str, ...]:
        """The columns that a side's rows are kept with: all, or those by which they match."""
        names = self.inputs[side].names
        return tuple(name for name in names if whole or name in self.keys[side] or name == time)

    def key_columns(self, side: Side, table: pa.Table) -> dict[str, pa.ChunkedArray]:
        """The keys of a side as columns k0, k1, ... of types that compare."""
        columns = [table.column(name) for name in self.keys[side]]
        return {f"k{at}": comparable(one.cast(_compared(one.type))) for at, one in enumerate(columns)}

    def rows(self, pairs: pa.Table, left: pa.Table, right: pa.Table) -> pa.Table:
        """The joined rows, of pairs of row numbers `l` and `r`, of which one may be null. A side that has given its
        keys alone has no row in any pair."""
        made = [self._taken(left, name, pairs["l"]) for name in self.inputs[LEFT].names]
        if self.how in _LACKS_LEFT:
            for mine, other in zip(*self.keys.values(), strict=True):
                at = self.inputs[LEFT].get_field_index(mine)
                made[at] = pc.coalesce(made[at], self._taken(right, other, pairs["r"]).cast(made[at].type))
        made += [self._taken(right, name, pairs["r"]) for name in self.names]
        return pa.Table.from_arrays(made, schema=self.output)

    def _taken(self, table: pa.Table, name: str, rows: pa.ChunkedArray) -> pa.ChunkedArray:
        if name in table.schema.names:
            return table.column(name).take(rows)
        return pa.chunked_array([pa.nulls(len(rows), self.inputs[LEFT].field(name).type)])


def _how(how: object) -> How:
    if how not in get_args(How):
        raise OptionError(f"how={how!r}: take one of {', '.join(get_args(How))}")
    return how  # type: ignore[return-value]


def _pairs(on: object) -> dict[str, str]:
    if isinstance(on, Mapping):
        found = {column_name(mine, "on"): column_name(other, "on") for mine, other in on.items()}
        if len(set(found.values())) < len(found):
            raise OptionError(f"on={on!r}: a column of the right side is there twice")
    elif isinstance(on, Sequence) and not isinstance(on, str):
        found = {column_name(name, "on"): name for name in on}
    else:
        raise OptionError(f'on={on!r}: write columns of both sides, as in ["id"], or {{"id": "order_id"}}')
    if not found:
        raise OptionError('on: name at least one column by which rows match, as in on=["id"]')
    return found


def _check_once(schema: pa.Schema, side: Side) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SchemaError(f"the {side} side has several columns {name!r}: rename all but one before the join")


def _compared(kind: pa.DataType) -> pa.DataType:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _TWINS.get(plain, plain)
