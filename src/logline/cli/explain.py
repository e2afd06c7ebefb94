"""`logline explain`: what became of rows on their way to a port."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from logline.cli.common import Format, LogUrl, open_used, shortened

RECORD = 60
"""Characters of a record that the table shows."""


def explain(
    log: LogUrl,
    port: Annotated[
        str, typer.Argument(metavar="PORT", help="Where the row is missing: hourly, hourly.late, a sink.")
    ],
    where: Annotated[str, typer.Option(metavar="SQL", help="A condition on the rows of the sources.")],
    source: Annotated[str, typer.Option(metavar="PORT", help="Follow the rows of this port instead.")] = "",
    rows: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 100,
    format: Format = "table",
) -> None:
    """Say why a row is not there.

    \b
    logline explain lmdb:sales.log hourly --where "item_id = 'BZ234'"
    logline explain lmdb:sales.log store --where "amount > 100" --source sold
    \b
    Follows the rows for which the condition is true from the sources to the port and says what became of each:
    arrived, open, waiting, unread, diverted, late, filtered, dropped, elsewhere, untraced, collected.
    """
    found = open_used(log).explain(port, where, source=source or None)
    if format == "json":
        print(json.dumps(found.to_pylist()))
        return
    for row in found.slice(0, rows).to_pylist():
        name = row["source"] if row["row"] is None else f"{row['source']} row {row['row']}"
        what = row["what"] + ("" if row["level"] == "row" else " (event level)")
        print(f"{name}  {shortened(row['record'] or '', RECORD)}".rstrip())
        print(f"  {what} at {row['operator']}: {row['detail']}")
    more = found.num_rows - rows
    if more > 0:
        print(f"... and {more:,} more: --rows {found.num_rows}")
