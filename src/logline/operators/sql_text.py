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
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from logline.errors import OptionError, SchemaError
from logline.graph.operator import Batch, Dependency
from logline.operators.tables import columns_of

INPUT = "input"
_WHOLE = re.compile(r"\s*(select|from|with)\b", re.IGNORECASE)
_TABLES = {"range", "generate_series", "unnest"}
"""Functions in the place of a table that say the same each time."""
_UNSTEADY = "select distinct function_name from duckdb_functions() where stability <> 'CONSISTENT'"
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
        self._checked()

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
            cursor.register(INPUT, records)
            try:
                return _as_arrow_has_it(cursor.sql(self.text).to_arrow_table())
            except duckdb.Error as error:
                raise ValueError(str(error).partition("\n")[0]) from error
            finally:
                cursor.unregister(INPUT)

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
        found: list[Dependency] = []
        for one in node["select_list"]:
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
        listed = ", ".join(f"'{name}'" for name in sorted(names) if name.isidentifier()) or "''"
        asked = f"select 1 from duckdb_functions() where function_type = 'aggregate' and function_name in ({listed})"
        with self._database.cursor() as cursor:
            return not cursor.execute(asked).fetchall()

    def _checked(self) -> Any:
        with self._database.cursor() as cursor:
            tree = json.loads(cursor.execute("select json_serialize_sql(?::varchar)", [self.text]).fetchall()[0][0])
            unsteady = {name for (name,) in cursor.execute(_UNSTEADY).fetchall()} | _CLOCK
        if tree["error"]:
            raise OptionError(f"the SQL can't be read: {tree.get('error_message', tree)}: {self.text}")
        if len(tree["statements"]) != 1:
            raise OptionError(f"the SQL has {len(tree['statements'])} statements, not one: {self.text}")
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
