"""Rows in files that a person can change: Parquet, CSV or JSON lines, by the ending of the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from logline.errors import ConnectorError, SchemaError

_ENDINGS = "name it .parquet, .csv, .jsonl, .ndjson or .json (one object a line)"


def read_rows(path: Path, schema: pa.Schema) -> pa.Table:
    """The rows of a file, with the types of `schema` where the file has none of its own."""
    if not path.is_file():
        raise ConnectorError(f"there is no file {path}")
    try:
        match path.suffix.lower():
            case ".parquet":
                import pyarrow.parquet as pq

                return pq.read_table(path)
            case ".csv":
                import pyarrow.csv as pc

                types = {field.name: field.type for field in schema}
                options = pc.ConvertOptions(
                    column_types=types, strings_can_be_null=True, quoted_strings_can_be_null=False
                )
                return pc.read_csv(path, convert_options=options)
            case ".jsonl" | ".ndjson" | ".json":
                import pyarrow.json as pj

                return pj.read_json(path, parse_options=pj.ParseOptions(explicit_schema=schema))
    except (pa.ArrowException, ValueError) as error:
        raise SchemaError(f"{path} does not hold rows with the columns {_columns(schema)}: {error}") from None
    raise ConnectorError(f"what {path} is can't be told by its name: {_ENDINGS}")


def write_rows(rows: pa.RecordBatch, path: Path) -> None:
    """Writes rows to a new file."""
    if path.exists():
        raise ConnectorError(f"there is a file {path} already: choose another name, or remove it")
    table = pa.Table.from_batches([rows])
    try:
        match path.suffix.lower():
            case ".parquet":
                import pyarrow.parquet as pq

                pq.write_table(table, path)
            case ".csv":
                import pyarrow.csv as pc

                pc.write_csv(table, path)
            case ".jsonl" | ".ndjson" | ".json":
                path.write_text("".join(f"{json.dumps(row, default=_text)}\n" for row in table.to_pylist()))
            case _:
                raise ConnectorError(f"what {path} shall be can't be told by its name: {_ENDINGS}")
    except (pa.ArrowException, TypeError) as error:
        path.unlink(missing_ok=True)
        raise ConnectorError(f"these rows can't be written to {path}: {error}; take a .parquet file") from None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError("JSON has no bytes")
    return str(value)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
