"""`logline show`: one event and what became of it; or the story of a life, for debugging."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from logline.cli.common import Format, LogUrl, aligned, open_used

if TYPE_CHECKING:
    import pyarrow as pa

    from logline.runtime.log.about import About

WIDTH = 40
"""Characters of a value that a table shows."""
SOME = 10
"""Members of an input set that are named."""


def show(
    log: LogUrl,
    event: Annotated[
        str,
        typer.Argument(metavar="EVENT", help="operator:number, operator.port:number; with --story an operator."),
    ],
    rows: Annotated[int, typer.Option(help="Records, or entries of a story, to show.")] = 20,
    format: Format = "table",
    story: Annotated[bool, typer.Option("--story", help="What the operator's life heard and did lately.")] = False,
) -> None:
    """Show an event: its records, its origin, and who took it.

    \b
    logline show lmdb:sales.log hourly:12
    logline show lmdb:sales.log enrich.errors:3      a diverted set, or rejected rows, with the reason
    logline show lmdb:sales.log orders:7 --format json
    logline show lmdb:sales.log hourly --story       for debugging; the run was started with LOGLINE_STORY=200
    """
    if story:
        print(_story(log, event, rows, format))
        return
    from logline.errors import BadName
    from logline.names import parse_events
    from logline.runtime.log.about import about

    wanted = parse_events(event)
    if wanted.first != wanted.last:
        raise BadName(f"{event!r} names several events: show one, for example {event.partition('..')[0]!r}")
    found = about(open_used(log), event)
    if format == "json":
        print(_json(found, rows))
        return
    print(_header(found))
    if found.sender.endswith(".errors"):
        print("\n".join(_error(one, rows) for one in found.records.to_pylist()))
    else:
        print(records_text(found.records, rows))


def _story(log: str, operator: str, rows: int, format: str) -> str:
    from datetime import UTC, datetime, timedelta

    from logline.errors import LogError
    from logline.graph.record import find_instance
    from logline.names import parse_called
    from logline.runtime.lives.stories import VARIABLE, read_story
    from logline.runtime.messages.wire import encode
    from logline.store.tables import record_in

    store = open_used(log).store
    found = read_story(store, find_instance(record_in(store), parse_called(operator)))
    if found is None:
        raise LogError(f"no life of {operator!r} has kept a story: set {VARIABLE}=200 in the environment of the run")
    if format == "json":
        return encode(found).decode()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    lines = [f"{operator}, life {found.incarnation}" + (f", ended: {found.over}" if found.over else "")]
    for entry in found.entries[-rows:]:
        at = (epoch + timedelta(microseconds=entry.at)).astimezone().strftime("%H:%M:%S.%f")
        lines.append(f"{at}  {entry.phase:<10}  {entry.heard}")
        lines += [f"{'':<15}  {'':<10}    {action}" for action in entry.asked]
    return "\n".join(lines)


def _header(found: About) -> str:
    lines = [f"{found.event}  {found.records.num_rows:,} records, {found.nbytes:,} bytes, sent by {found.sender}"]
    if found.made_from is not None:
        named = ", ".join(found.members[:SOME]) + (", ..." if len(found.members) > SOME else "")
        lines.append(f"made from   {found.made_from}: {named} ({len(found.members):,} events)")
    for one in found.taken:
        became = "not taken or not generated yet" if one.status == "undone" else "done"
        lines.append(f"taken by    {one.by}: {became}" + (f", in {one.inset}" if one.inset is not None else ""))
    if not found.taken:
        lines.append("taken by    nobody: the port is connected to nothing")
    return "\n".join(lines)


def records_text(records: pa.Table, rows: int) -> str:
    shown = [[_short(value) for value in row.values()] for row in records.slice(0, rows).to_pylist()]
    text = "\n" + aligned(records.column_names, shown, left=len(records.column_names))
    more = records.num_rows - len(shown)
    return text + (f"\n... and {more:,} more: --rows {records.num_rows}" if more else "")


def _error(one: dict[str, Any], rows: int) -> str:
    text = f"\n{one['reason']}\ninput set   {one['inset']}\nof events   {', '.join(one['events'][:SOME])}"
    if one["traceback"]:
        text += f"\n\n{one['traceback'].rstrip()}"
    if one["data"] is not None:
        import pyarrow as pa

        text += "\n" + records_text(pa.ipc.open_stream(one["data"]).read_all(), rows)
    return text


def _json(found: About, rows: int) -> str:
    records = found.records.slice(0, rows).to_pylist()
    taken = [{"by": one.by, "status": one.status, "inset": one.inset} for one in found.taken]
    plain = {"event": found.event, "sender": found.sender, "rows": found.records.num_rows, "nbytes": found.nbytes}
    more = {"made_from": found.made_from, "members": found.members, "taken": taken, "records": records}
    return json.dumps({**plain, **more}, default=_text)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
