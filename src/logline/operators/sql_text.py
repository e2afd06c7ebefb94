"""SQL on the rows of one batch, by DuckDB in memory.

A text is checked when the pipeline is defined: it is one `select`, it reads nothing but `input`, and it gives the
same rows for the same batch, so functions of time and chance are refused. It has no access to files and networks.
Times are in UTC, and rows keep their order.

    >>> query = Query("item, amount * 2 as twice where amount > 3")
    >>> query.run(pa.record_batch({"item": ["tea", "jam"], "amount": [3, 4]})).to_pylist()
    [{'item': 'jam', 'twice': 8}]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from logline.errors import OptionError, SchemaError
from logline.graph.operator import Batch, Dependency
from logline.operators.tables import columns_of

INPUT = "input"
_WHOLE = re.compile(r"\s*(select|from|with)\b", re.IGNORECASE)
_TABLES = {"range", "generate_series", "unnest"}
"""Functions in the place of a table that say the same each time."""
_UNSTEADY = "stability <> 'CONSISTENT'"
_AGGREGATE = "function_type = 'aggregate'"
_CLOCK = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
_SETTINGS = (
    "set python_enable_replacements = false",  # no variables of the caller
    "set TimeZone = 'UTC'",
    "set lock_configuration = true",
)


class _Database:
    """The connection of this process. It is no part of what the operator is: a copy in a worker makes its own."""

    __slots__ = ("_connection",)

    def __init__(self) -> None:
        self._connection: Any = None

    def __reduce__(self) -> tuple[type[_Database], tuple[()]]:
        return _Database, ()

    def cursor(self) -> Any:
        """A connection of its own: several sets may be in generation at once."""
        if self._connection is None:
            import duckdb

            # One thread: more of them would answer in any order.
            found = duckdb.connect(":memory:", config={"enable_external_access": "false", "threads": "1"})
            for setting in _SETTINGS:
                found.execute(setting).fetchall()
            self._connection = found
        return self._connection.cursor()


class Query:
    """One statement on a table `input`: a whole `select`, or what follows the word."""

    def __init__(self, text: str) -> None:
        given: object = text
        if not isinstance(given, str) or not text.strip():
            raise OptionError(
                f"{text!r} is no SQL: write columns, as in 'item, amount * 2 as twice where amount > 3'"
            )
        self.text = text if _WHOLE.match(text) else f"from {INPUT} select {text}"
        self._database = _Database()
        parts = list(_parts(self._checked()))
        stars = any(part.get("class") == "STAR" for part in parts)
        named = sorted({n.lower() for part in parts for n in part.get("column_names", ())})
        self._names = None if stars else named
        """The names that it mentions, columns among them, in an order that its digest can rely on. None: any."""

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """What it makes of these columns: it is run on no rows."""
        _check_names(schema)
        try:
            return self.run(schema.empty_table().combine_chunks()).schema
        except ValueError as error:
            raise SchemaError(f"the SQL can't be applied to {columns_of(schema)}: {error}") from error

    def run(self, records: Batch | pa.Table) -> pa.Table:
        """The rows that it gives."""
        import duckdb

        with self._database.cursor() as cursor:
            try:
                cursor.register(INPUT, self._with_whole_spans(records))
                return _as_arrow_has_it(cursor.sql(self.text).to_arrow_table())
            except duckdb.Error as error:
                raise ValueError(str(error).partition("\n")[0]) from error
            finally:
                cursor.unregister(INPUT)

    def _with_whole_spans(self, records: Batch | pa.Table) -> Batch | pa.Table:
        """Spans in microseconds: DuckDB would cut those in nanoseconds, pandas' default, without a word."""
        for at, field in enumerate(records.schema):
            if (whole := _in_micros(field.type)) != field.type and self._mentions(field.name):
                try:
                    spans = _apart(records.column(at)).cast(whole)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise _too_fine(field, str(error)) from error
                records = records.set_column(at, field.with_type(whole), spans)
            elif _has(field.type, _is_interval) and self._mentions(field.name):
                _check_intervals(field, records.column(at))
        return records

    def _mentions(self, column: str) -> bool:
        return self._names is None or column.lower() in self._names

    def passed(self, schema: pa.Schema) -> list[Dependency]:
        """The columns that pass as they are, if every row is made of one row of the input."""
        node = self._checked()["statements"][0]["node"]
        if (
            node.get("type") != "SELECT_NODE"
            or node["from_table"].get("table_name") != INPUT
            or node["cte_map"]["map"]
        ):
            return []
        if node["modifiers"] or node["group_expressions"] or node.get("qualify") or not self._is_by_row(node):
            return []
        columns = {name.lower(): name for name in schema.names}
        table = (node["from_table"]["alias"] or INPUT).lower()
        found: list[Dependency] = []
        for one in node["select_list"]:
            of = one["relation_name"] if one["class"] == "STAR" else ".".join(one.get("column_names", ())[:-1])
            if of and of.lower() != table:
                continue  # a field of a struct, which may be called like a column
            if one["class"] == "STAR" and not (one["replace_list"] or one.get("rename_list") or one["columns"]):
                found += [Dependency(name, name) for name in schema.names if name not in one["exclude_list"]]
            elif one["class"] == "COLUMN_REF" and one["column_names"][-1].lower() in columns:
                name = one["column_names"][-1]
                found.append(Dependency(one["alias"] or name, columns[name.lower()]))
        made = self.schema(schema).names
        return [one for one in found if made.count(one.out) == 1]

    def _is_by_row(self, node: Any) -> bool:
        parts = list(_parts(node))
        if any(part.get("class") in ("WINDOW", "SUBQUERY", "LAMBDA") for part in parts):
            return False
        names = {part["function_name"] for part in parts if "function_name" in part}
        return names.isdisjoint(_functions(_AGGREGATE))

    def _checked(self) -> Any:
        with self._database.cursor() as cursor:
            tree = json.loads(cursor.execute("select json_serialize_sql(?::varchar)", [self.text]).fetchall()[0][0])
        if tree["error"]:
            raise OptionError(f"the SQL can't be read: {tree.get('error_message', tree)}: {self.text}")
        if len(tree["statements"]) != 1:
            raise OptionError(f"the SQL has {len(tree['statements'])} statements, not one: {self.text}")
        unsteady = _functions(_UNSTEADY) | _CLOCK
        for part in _parts(tree):
            name = part.get("function_name", "")
            if part.get("type") == "TABLE_FUNCTION" and part["function"].get("function_name") not in _TABLES:
                raise OptionError(
                    f"the SQL reads {part['function'].get('function_name')}(): it may read {INPUT!r} only"
                )
            if part.get("type") == "COLUMN_REF" and part["column_names"][-1].lower() in _CLOCK:
                name = part["column_names"][-1].lower()  # these need no parentheses
            if part.get("type") in ("FUNCTION", "COLUMN_REF") and name in unsteady:
                raise OptionError(
                    f"the SQL calls {name}(), which gives something else each time: take map_rows, and ctx.now()"
                )
            if part.get("sample"):
                raise OptionError("the SQL takes a sample, which is another one each time: choose by a column")
        return tree


@cache
def _functions(where: str) -> frozenset[str]:
    """Functions of DuckDB. To list them takes longer than a query of a batch, so a process asks once."""
    import duckdb

    with duckdb.connect(":memory:") as db:
        listed = db.execute(f"select function_name from duckdb_functions() where {where}").fetchall()
    return frozenset(name for (name,) in listed)


def _parts(tree: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _parts(part)


def _check_names(schema: pa.Schema) -> None:
    known: dict[str, str] = {}
    for name in schema.names:
        if (other := known.setdefault(name.lower(), name)) is not name:
            raise SchemaError(f"the columns {other!r} and {name!r} are one to SQL, which ignores case: rename one")


def _too_fine(field: pa.Field, why: str) -> ValueError:
    return ValueError(
        f"column {field.name!r} is {field.type} and has values between two microseconds, which SQL "
        f"can't hold ({why}): round it, or cast it to an integer, before"
    )


def _apart(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Without what lies beside a slice: Arrow casts all elements of the lists it is a slice of."""
    return values.take(pa.array(range(len(values)), pa.int64())) if values.type.num_fields else values


def _in_micros(kind: pa.DataType) -> pa.DataType:
    """That type with spans in microseconds in the place of nanoseconds, at any depth."""
    if pa.types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_in_micros(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_micros(kind.key_type), kind.item_field.with_type(_in_micros(kind.item_type)))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_in_micros(kind.value_type)), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_in_micros(kind.value_type)))
    return kind


def _has(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    return wanted(kind) or any(_has(kind.field(at).type, wanted) for at in range(kind.num_fields))


def _is_interval(kind: pa.DataType) -> bool:
    return bool(kind.id == pa.month_day_nano_interval().id)


def _check_intervals(field: pa.Field, values: pa.Array | pa.ChunkedArray) -> None:
    """Arrow can't cast intervals of months, days and nanoseconds: they are looked at one by one."""
    for value in values.to_pylist():
        for one in _leaves(value):
            if isinstance(one, pa.MonthDayNano) and one.nanoseconds % 1000:
                raise _too_fine(field, f"{one.nanoseconds} ns")


def _leaves(value: Any) -> Iterator[Any]:
    """What lies in a value of Python that Arrow made."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list) or (isinstance(value, tuple) and not isinstance(value, pa.MonthDayNano)):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _as_arrow_has_it(made: pa.Table) -> pa.Table:
    """With the names that Arrow gives within types: DuckDB writes "Etc/UTC", and calls the elements of a list "l"."""
    wanted = pa.schema([pa.field(one.name, _kind(one.type)) for one in made.schema])
    return made if made.schema.equals(wanted) else made.cast(wanted)


def _kind(kind: Any) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_kind(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _kind(one.type)) for one in kind])
    return kind
