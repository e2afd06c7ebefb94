"""Schemas: known before anything runs, and checked whenever something is emitted.

`schema` reads what an author declared. `to_batches` turns what an author's code yielded, a table of any
library that speaks Arrow, into record batches of exactly the declared schema. It adapts where nothing can
be lost (another column order, a string in another layout, a wider integer) and refuses the rest with a
message that names the port, the column, both types and the remedy.

    >>> declared = schema("id long, name string")
    >>> to_batches(pa.table({"name": ["a"], "id": pa.array([1], pa.int32())}), declared, "people.out")[0]
    pyarrow.RecordBatch
    id: int64
    name: string
    ----
    id: [1]
    name: ["a"]
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from logline.errors import SchemaError
from logline.graph.ddl import parse_ddl
from logline.graph.operator import SchemaLike, Tabular

_INDEX = re.compile(r"__index_level_\d+__\Z")  # what pandas adds for an index that has no name


def schema(like: SchemaLike) -> pa.Schema:
    """An Arrow schema from an Arrow schema or from Spark DDL; metadata is dropped.

    >>> schema("at timestamp, price decimal(10,2)")
    at: timestamp[us, tz=UTC]
    price: decimal128(10, 2)
    """
    if isinstance(like, str):
        return parse_ddl(like)
    if not isinstance(like, pa.Schema):
        raise SchemaError(
            f"{like!r} is not a schema: pass a pyarrow.Schema or Spark DDL such as 'id long, score double'"
        )
    names = like.names
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"the schema has the column {name!r} twice: rename one")
    return like.remove_metadata()


def to_batches(data: Tabular, schema: pa.Schema, where: str) -> list[pa.RecordBatch]:
    """Record batches of exactly `schema`. One yield is one event, so this is one batch, maybe of zero rows.

    `where` names the port for the messages, as in "hourly.out".
    """
    if isinstance(data, pa.RecordBatch) and data.schema.equals(schema):
        return [data]
    table = to_table(data, where)
    _check_columns(table.schema.names, schema.names, where)
    columns = [_column(table.column(field.name), field, where) for field in schema]
    if not columns:
        return [pa.RecordBatch.from_struct_array(pa.array([{}] * table.num_rows, pa.struct([])))]
    return [pa.RecordBatch.from_arrays(columns, schema=schema)]


def to_table(data: Tabular, where: str) -> pa.Table:
    """Whatever speaks Arrow, as a table; the nameless index of a pandas frame is left out."""
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif hasattr(data, "__arrow_c_stream__"):
        table = pa.table(data)
    elif hasattr(data, "__arrow_c_array__"):
        table = pa.Table.from_batches([pa.record_batch(data)])
    else:
        raise SchemaError(
            f"{where}: got {type(data).__name__}, which is not a table: yield a pyarrow RecordBatch or "
            "Table, a pandas or polars DataFrame, or an Emit of one"
        )
    index = [name for name in table.schema.names if _INDEX.match(name)]
    return table.drop_columns(index) if index else table


def _check_columns(got: list[str], wanted: list[str], where: str) -> None:
    twice = sorted({name for name in got if got.count(name) > 1})
    missing = [name for name in wanted if name not in got]
    extra = [name for name in got if name not in wanted]
    if not (twice or missing or extra):
        return
    faults = []
    if missing:
        faults.append(_said(missing, "is missing", "are missing"))
    if extra:
        faults.append(_said(extra, "is not in the schema", "are not in the schema"))
    if twice:
        faults.append(_said(twice, "comes twice", "come twice"))
    raise SchemaError(
        f"{where}: {', and '.join(faults)}: expected the columns {_list(wanted)}, got {_list(got)}; "
        "yield these columns, or change the schema of the port"
    )


def _said(names: list[str], of_one: str, of_many: str) -> str:
    return f"the column {_list(names)} {of_one}" if len(names) == 1 else f"the columns {_list(names)} {of_many}"


def _list(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names) if names else "(none)"


def _column(column: pa.ChunkedArray, field: pa.Field, where: str) -> pa.Array:
    """One column as one array of the declared type."""
    if not column.type.equals(field.type):
        if not lossless(column.type, field.type):
            raise _mismatch(column.type, field, where, "cast it, or change the schema of the port")
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            # A value that does not fit after all: a timestamp between two microseconds, say.
            raise _mismatch(column.type, field, where, f"round or cast it yourself ({error})") from error
    if not field.nullable and column.null_count:
        raise SchemaError(
            f"{where}: the column {field.name!r} is declared NOT NULL and has {column.null_count} null(s): "
            "fill or drop them, or declare the column nullable"
        )
    if column.num_chunks == 1:
        return column.chunk(0)
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        raise SchemaError(f"{where}: the column {field.name!r} is too large for one event: yield smaller tables")
    return whole


def _mismatch(got: pa.DataType, field: pa.Field, where: str, remedy: str) -> SchemaError:
    return SchemaError(f"{where}: the column {field.name!r} has type {got}, expected {field.type}: {remedy}")


_TEXTS = (pt.is_string, pt.is_large_string, pt.is_string_view)
_BYTES = (pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary)
_LISTS = (pt.is_list, pt.is_large_list, pt.is_list_view, pt.is_large_list_view, pt.is_fixed_size_list)


def lossless(got: pa.DataType, to: pa.DataType) -> bool:
    """Whether every value of `got` is a value of `to`, or the cast itself finds the one that is not.

    The latter holds for units of time: pandas knows hardly anything but nanoseconds, so they are cast
    to the declared unit, and a value that does not fit is an error rather than rounded.
    """
    if got.equals(to) or pt.is_null(got):
        return True
    if pt.is_dictionary(got):
        return lossless(got.value_type, to)
    if _both(_TEXTS, got, to):
        return True
    if _both(_BYTES, got, to):
        return not pt.is_fixed_size_binary(to)
    if pt.is_integer(got) and pt.is_integer(to):
        if pt.is_signed_integer(got) and not pt.is_signed_integer(to):
            return False
        same_sign = pt.is_signed_integer(got) == pt.is_signed_integer(to)
        return bool(to.bit_width >= got.bit_width if same_sign else to.bit_width > got.bit_width)
    if pt.is_floating(got) and pt.is_floating(to):
        return bool(to.bit_width >= got.bit_width)
    if pt.is_timestamp(got) and pt.is_timestamp(to):
        return (got.tz is None) == (to.tz is None)  # two zones are two ways to show one instant
    if pt.is_time(got) and pt.is_time(to):
        return True
    if pt.is_duration(got) and pt.is_duration(to):
        return True
    if pt.is_decimal(got) and pt.is_decimal(to):
        return bool(to.scale >= got.scale and to.precision - to.scale >= got.precision - got.scale)
    return _nested(got, to)


def _nested(got: Any, to: Any) -> bool:
    if _both(_LISTS, got, to):
        return not pt.is_fixed_size_list(to) and lossless(got.value_type, to.value_type)
    if pt.is_map(got) and pt.is_map(to):
        return lossless(got.key_type, to.key_type) and lossless(got.item_type, to.item_type)
    if pt.is_struct(got) and pt.is_struct(to):
        ours, theirs = list(got), list(to)
        return [f.name for f in ours] == [f.name for f in theirs] and all(
            lossless(a.type, b.type) for a, b in zip(ours, theirs, strict=True)
        )
    return False


def _both(family: tuple[Any, ...], got: pa.DataType, to: pa.DataType) -> bool:
    return any(test(got) for test in family) and any(test(to) for test in family)
