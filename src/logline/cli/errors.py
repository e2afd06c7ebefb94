"""`logline errors`: lists what is on the ports `errors` of a log, and retries or drops it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from logline.cli.common import Format, LogUrl, aligned, open_used

if TYPE_CHECKING:
    from logline.runtime.log.log import Log

WIDTH = 60
"""Characters of a reason that a table shows."""
PATIENCE = 30.0
"""Seconds that a run has to do what it is told."""
LOOK = 0.1


def errors(
    log: LogUrl,
    what: Annotated[Literal["list", "retry", "drop"], typer.Argument(help="What to do.")] = "list",
    name: Annotated[str | None, typer.Argument(metavar="[EVENT]", help="operator.errors:number, or all.")] = None,
    format: Format = "table",
) -> None:
    """List rejected rows and diverted input sets; retry or drop one.

    \b
    logline errors lmdb:sales.log
    logline show lmdb:sales.log enrich.errors:3             one of them, with its traceback and its rows
    logline errors lmdb:sales.log retry enrich.errors:3     generate it once more, after a fix
    logline errors lmdb:sales.log drop all                  let go of them

    An event on a port `errors` is kept until it is retried or dropped. A retry makes the operator begin a new life;
    on a log that does not run, the next run does it. What fails again is a new error. When the pipeline has finished
    nothing can be retried: nothing can follow the end of a stream.
    """
    opened = open_used(log)
    if what == "list":
        _list(opened, format)
        return
    if name is None:
        raise typer.BadParameter(f"say which one: logline errors LOG {what} enrich.errors:3, or all")
    names = list(dict.fromkeys(opened.errors()["event"].to_pylist())) if name == "all" else [name]
    for one in names:
        done = _resolve(opened, one, what)
        print(f"{one} is {'retried' if what == 'retry' else 'dropped'}" if done else f"{one} is not open any more")


def _list(log: Log, format: str) -> None:
    found = log.errors().drop_columns(["data"]).to_pylist()
    if format == "json":
        print(json.dumps(found))
    elif not found:
        print("there is nothing on any port 'errors'")
    else:
        rows = ([e["event"], e["inset"], len(e["events"]), _short(e["reason"])] for e in found)
        print(aligned(["event", "input set", "events", "reason"], rows, left=4))


def _resolve(log: Log, event: str, what: Literal["retry", "drop"]) -> bool:
    """Has the run that holds the log do it; does it here if there is none. False if there is nothing to do."""
    from logline.errors import LogError
    from logline.runtime.control.error_resolution import is_open, resolve_at_rest
    from logline.runtime.control.remote_control import tell_run
    from logline.runtime.messages.commands import Drop, Retry

    store = log.store
    holder = store.running()
    if holder is None:
        return resolve_at_rest(store, event, what)
    if not is_open(store, event, what):
        return False
    tell_run(store, Retry(event) if what == "retry" else Drop(event))
    until = time.monotonic() + PATIENCE
    while is_open(store, event, what):
        if time.monotonic() > until:
            raise LogError(f"run {holder.run} (process {holder.pid}) was told to {what} {event} and has not done it")
        time.sleep(LOOK)
    return True


def _short(text: str) -> str:
    """One line: of a traceback the last one."""
    lines = text.strip().splitlines() or [""]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
