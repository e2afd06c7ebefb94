"""`logline errors`: lists what is on the ports `errors` of a log, and retries, drops or exports it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from logline.cli.common import Format, LogUrl, aligned, open_used

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from logline.runtime.control.error_resolution import Request
    from logline.runtime.control.fixed_rows import Fixed
    from logline.runtime.log.log import Log

WIDTH = 60
"""Characters of a reason that a table shows."""
PATIENCE = 60.0
"""Seconds that a run has to do what it is told: calls in flight may take half of it."""
LOOK = 0.1

Action = Literal["list", "retry", "drop", "export"]


def errors(
    log: LogUrl,
    what: Annotated[
        str, typer.Argument(metavar="[OPERATOR|list|retry|drop|export]", help="Whose errors, or what to do.")
    ] = "list",
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[EVENT]...", help="operator.errors:number; export: and a file.")
    ] = None,
    all: Annotated[bool, typer.Option("--all", help="list: settled ones too; retry, drop: all that wait.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="The rows themselves, of one operator.")] = False,
    with_: Annotated[
        Path | None,
        typer.Option("--with", metavar="FILE", help="retry: rows to take instead; .parquet, .csv or .jsonl."),
    ] = None,
    ask: Annotated[bool, typer.Option("--ask", help="retry: ask again what was answered before, too.")] = False,
    format: Format = "table",
) -> None:
    """List rows and input sets that failed; retry or drop them.

    \b
    logline errors lmdb:sales.log                           those that wait, or are being retried
    logline errors lmdb:sales.log enrich --rows             the rows that `enrich` could not process
    logline show lmdb:sales.log enrich.errors:3             one of them, with its traceback
    logline errors lmdb:sales.log retry enrich.errors:3     generate it once more, after a fix
    logline errors lmdb:sales.log retry --all               all that wait
    logline errors lmdb:sales.log drop enrich.errors:3      let go of it
    logline errors lmdb:sales.log export enrich.errors:3 fixed.csv
    logline errors lmdb:sales.log retry enrich.errors:3 --with fixed.csv      after a change of the rows

    An event on a port `errors` is kept until it is retried or dropped. A retry makes the operator begin a new life,
    once its calls in flight are answered; on a log that does not run, the next run does it, also if the pipeline has
    finished. What fails again is a new error.
    """
    opened = open_used(log)
    given = list(names or ())
    if what not in get_args(Action):
        _list(opened, what, rows=rows, settled=all, format=format)
    elif what == "list":
        _list(opened, given[0] if given else None, rows=rows, settled=all, format=format)
    elif what == "export":
        _export(opened, given)
    else:
        _settle(opened, "retry" if what == "retry" else "drop", given, all, with_, ask)


def _list(log: Log, operator: str | None, *, rows: bool, settled: bool, format: str) -> None:
    found = log.errors(operator, rows=rows, settled=settled)
    if format == "json":
        plain = found if rows else found.drop_columns(["data"])
        print(json.dumps(plain.to_pylist(), default=str))
    elif not found.num_rows:
        print("there is nothing on any port 'errors'" if not settled else "there was nothing on any port 'errors'")
    elif rows:
        from logline.cli.show import records_text

        print(records_text(found, found.num_rows).lstrip("\n"))
    else:
        listed = (
            [e["event"], _state(e), e["inset"], len(e["events"]), _short(e["reason"])]
            for e in found.drop_columns(["data"]).to_pylist()
        )
        print(aligned(["event", "state", "input set", "events", "reason"], listed, left=5))


def _state(error: dict[str, Any]) -> str:
    return f"{error['state']}, late ({', '.join(error['late'])})" if error["late"] else str(error["state"])


def _export(log: Log, given: list[str]) -> None:
    from logline.cli.row_files import write_rows
    from logline.errors import LogError
    from logline.runtime.control.error_resolution import find_error, parse_error
    from logline.runtime.lives.dead_letters import rows_of

    if len(given) != 2:
        raise typer.BadParameter("say which one, and where to: logline errors LOG export enrich.errors:3 fixed.csv")
    name, file = given
    error = find_error(log.store, parse_error(log.store, name))
    if error is None or not error.payload.column("data")[0].is_valid:
        gone = "is settled and collected" if error is None else "is of events with different columns"
        raise LogError(f"{name} {gone}: there are no rows to export")
    rows = rows_of(error.payload)
    write_rows(rows, Path(file))
    print(f"{rows.num_rows:,} rows of {name} are in {file}; retry with them: --with {file}")


def _settle(
    log: Log, what: Literal["retry", "drop"], given: list[str], all: bool, file: Path | None, ask: bool
) -> None:
    from logline.runtime.control.error_resolution import Request, waiting

    all = all or given == ["all"]
    if not given and not all:
        raise typer.BadParameter(f"say which one: logline errors LOG {what} enrich.errors:3, or --all")
    if what == "drop" and (file is not None or ask):
        raise typer.BadParameter("--with and --ask are for a retry")
    if file is not None and (all or len(given) != 1):
        raise typer.BadParameter(
            "--with has the rows of one error: logline errors LOG retry enrich.errors:3 --with FILE"
        )
    fixed = None if file is None else _fixed(log, given[0], file)
    wanted = waiting(log.store) if all else given
    at_rest = log.store.running() is None
    done = _resolve(log, [Request(what, name, ask, fixed) for name in wanted])
    for name in wanted:
        settled = "retried" if what == "retry" else "dropped"
        print(f"{name} is {settled}" if name in done else f"{name} is not open any more")
    if not wanted:
        print("no error waits")
    if what == "retry" and done:
        _say_lateness(log, done)
        if at_rest:
            print("nothing runs on this log: the next run does it")


def _fixed(log: Log, event: str, file: Path) -> Fixed:
    from logline.cli.row_files import read_rows
    from logline.graph.instances import expand
    from logline.graph.record import graph_of, schema_of
    from logline.runtime.control.error_resolution import parse_error
    from logline.runtime.control.fixed_rows import fixed_rows
    from logline.store.tables import record_in

    instance, record = parse_error(log.store, event).instance, record_in(log.store)
    expansion = expand(graph_of(record))
    channel = expansion.into(instance)[0]
    rows: pa.Table = read_rows(file, schema_of(record, expansion.called(channel.sender), channel.out))
    return fixed_rows(log.store, event, rows, source=str(file))


def _resolve(log: Log, requests: Sequence[Request]) -> list[str]:
    """Has the run that holds the log do it; does it here if there is none. Returns what is done now."""
    from logline.errors import LogError
    from logline.runtime.control.error_resolution import is_open, resolve_at_rest
    from logline.runtime.control.remote_control import tell_run
    from logline.runtime.messages.commands import Drop, Retry

    store = log.store
    holder = store.running()
    if holder is None:
        return resolve_at_rest(store, requests)
    todo = [request for request in requests if is_open(store, request)]
    if not todo:
        return []
    names, one = [request.event for request in todo], todo[0]
    if one.what == "drop":
        tell_run(store, Drop(names))
    else:
        rows, by = (None, "") if one.fixed is None else (one.fixed.rows, one.fixed.by)
        tell_run(store, Retry(names, one.ask, rows, by))
    until = time.monotonic() + PATIENCE
    while any(is_open(store, request) for request in todo):
        if time.monotonic() > until:
            said = f"{one.what} {', '.join(names)}"
            raise LogError(f"run {holder.run} (process {holder.pid}) was told to {said} and has not done it")
        time.sleep(LOOK)
    return names


def _say_lateness(log: Log, events: Sequence[str]) -> None:
    """What comes of a retry may be late: its windows may be out by now."""
    from logline.names import parse_events
    from logline.runtime.log.error_states import windows_out

    out: dict[Any, Any] = {}
    for operator in dict.fromkeys(parse_events(event).called for event in events):
        out |= windows_out(log.store, operator)
    for name, until in out.items():
        print(f"windows of {name} up to {until:%Y-%m-%d %H:%M:%S} UTC are out: rows for them leave on {name}.late")


def _short(text: str) -> str:
    """One line: of a traceback the last one."""
    lines = text.strip().splitlines() or [""]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
