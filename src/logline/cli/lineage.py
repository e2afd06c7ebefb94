"""`logline lineage` and `logline sql`: what an event was made of, what came of it, and questions in SQL."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from logline.cli.common import Format, LogUrl, aligned, open_used, shortened

if TYPE_CHECKING:
    import pyarrow as pa

    from logline.lineage.trace import Trace
    from logline.lineage.view import Event, LogView

WIDTH = 100
"""Characters of a record that a tree shows."""
CELL = 40
"""Characters of a value that a table shows."""


def lineage(
    log: LogUrl,
    event: Annotated[
        str,
        typer.Argument(metavar="EVENT|PORT", help="hourly:12, hourly:12..40, or with --where a port: hourly."),
    ],
    to: Annotated[str, typer.Option(metavar="PORT", help="Only what leads to this port.")] = "",
    where: Annotated[str, typer.Option(metavar="SQL", help="A condition on the records of the events.")] = "",
    forward: Annotated[bool, typer.Option("--forward", help="What came of it, not what made it.")] = False,
    records: Annotated[bool, typer.Option("--records", help="Only the records that can have to do with it.")] = False,
    samples: Annotated[int, typer.Option(min=0, help="Records to show of each event.")] = 2,
    format: Annotated[
        Literal["table", "json", "dot", "svg"], typer.Option(help="A tree, or for programs and browsers.")
    ] = "table",
) -> None:
    """Show what an event was made of, or what came of it.

    \b
    logline lineage lmdb:sales.log hourly:12                      back to the sources
    logline lineage lmdb:sales.log hourly:12 --to orders
    logline lineage lmdb:sales.log orders:7 --forward
    logline lineage lmdb:sales.log hourly --where "item_id = 'BZ234'" --records
    logline lineage lmdb:sales.log hourly:12 --format svg > hourly.svg
    """
    from logline.errors import LogError
    from logline.lineage import drawing
    from logline.lineage.queries import follow, found_as_table
    from logline.lineage.view import LogView

    view = LogView(open_used(log).store)
    found = follow(view, event, "forward" if forward else "backward", to=to or None, where=where or None)
    if not found.asked:
        raise LogError(f"no event of {event!r} in the log has a record with {where}")
    if format == "json":
        table = found_as_table(view, found, to=None, where=where or None, records=records)
        print(json.dumps(table.to_pylist(), default=str, indent=1))
    elif format == "dot":
        print(drawing.draw_dot(found))
    elif format == "svg":
        print(drawing.draw_svg(view, found))
    else:
        print(drawing.draw_tree(found, _sampler(view, found, where or None, records, samples)))


def _sampler(view: LogView, found: Trace, where: str | None, records: bool, samples: int) -> Any:
    from logline.lineage.records import Chosen

    chosen = Chosen(view, found, where) if records else Chosen(view, type(found)(found.direction, []), None)

    def sample(event: Event) -> list[str]:
        rows = sorted(chosen.rows.get(event, ())) if records else None
        shown, total = chosen.sample(event, rows, samples)
        lines = [
            shortened(", ".join(f"{name}: {value}" for name, value in record.items()), WIDTH) for record in shown
        ]
        return lines + ([f"... {total - len(shown):,} more"] if samples and total > len(shown) else [])

    return sample


def sql(
    log: LogUrl,
    query: Annotated[str, typer.Argument(metavar="SQL", help="One select; ports and the log's tables are tables.")],
    rows: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 100,
    format: Format = "table",
) -> None:
    """Ask the log in SQL.

    \b
    Tables: event_log, event_data, read_action, state, event_lineage, lineage_edges, checkpoints, and each port
    with its records and the column _event: orders, hourly, "hourly.late".
    \b
    logline sql lmdb:sales.log "select item_id, sum(amount) from orders group by all"
    logline sql lmdb:sales.log "select * from lineage_edges where input = 'orders:7'"
    """
    found = open_used(log).sql(query)
    if format == "json":
        print(json.dumps(found.slice(0, rows).to_pylist(), default=_plain))
    else:
        print(_table(found, rows))


def _plain(value: Any) -> Any:
    """What JSON has no word for. A sum of integers is a decimal without a fraction."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return value.hex() if isinstance(value, bytes) else str(value)


def _table(found: pa.Table, rows: int) -> str:
    shown = [[shortened(str(value), CELL) for value in row.values()] for row in found.slice(0, rows).to_pylist()]
    text = aligned(found.column_names, shown, left=len(found.column_names))
    more = found.num_rows - len(shown)
    return text + (f"\n... and {more:,} more: --rows {found.num_rows}" if more else "")
