"""`logline status`: a log at this moment, also one that runs in other processes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from logline.cli.common import Format, LogUrl, aligned, open_used

if TYPE_CHECKING:
    from rich.table import Table

    from logline.runtime.log.log_status import LogStatus

LOOK = 1.0
"""Seconds between two looks of --watch."""
SILENCE = 15.0
"""Seconds without a note after which a run that holds its lease is worth a remark."""


def status(
    log: LogUrl,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on looking until the run is over.")] = False,
    format: Format = "table",
) -> None:
    """Say who runs a log, and how far each operator is.

    \b
    logline status lmdb:sales.log
    logline status lmdb:sales.log --watch
    logline status lmdb:sales.log --format json | jq .operators.hourly.lag

    in, out: events taken in and put out. lag: events that senders have logged and the operator has not taken.
    written, pending: writes that are done, and that are logged and not done. errors: those that are open. Below the
    table: rows answered within events, and what a drain waits for. The log may be run by another process, or by none.
    """
    from logline.runtime.log.log_status import log_status

    opened = open_used(log)
    if not watch:
        _say(log_status(opened.store), format)
    elif format == "table" and sys.stdout.isatty():
        _watch_live(lambda: log_status(opened.store))
    else:
        while True:
            found = log_status(opened.store)
            _say(found, format)
            sys.stdout.flush()
            if found.run is None:
                break
            time.sleep(LOOK)


def _say(found: LogStatus, format: str) -> None:
    print(_json(found) if format == "json" else _text(found))


def _json(found: LogStatus) -> str:
    from dataclasses import asdict

    operators = {n: {**asdict(o), "counters": dict(o.counters)} for n, o in found.operators.items()}
    return json.dumps({f: getattr(found, f) for f in found.__slots__ if f != "operators"} | {"operators": operators})


def _text(found: LogStatus) -> str:
    from logline.runtime.status import all_remarks

    head = ["operator", "in", "out", "lag", "open sets", "in flight", "written", "pending", "restarts", "errors"]
    rows = [
        [n, o.taken, o.out, o.lag, o.open_sets, o.in_flight, o.written, o.pending, o.restarts, o.errors]
        for n, o in found.operators.items()
    ]
    if any(o.pid for o in found.operators.values()):
        head.append("process")
        for row, o in zip(rows, found.operators.values(), strict=True):
            row.append(f"{o.pid} on {o.host}" if o.pid else "")
    return "\n".join([_headline(found), aligned(head, rows), *all_remarks(found.operators, found.ephemeral)])


def _headline(found: LogStatus) -> str:
    """Who runs it, in one line."""
    text = f"{found.pipeline}: {found.phase}"
    if found.run is not None:
        text += f", run {found.run} in process {found.pid}"
        if found.silent is not None and found.silent > SILENCE and found.phase != "starting":
            text += f", which has said nothing for {found.silent:.0f} s"
    elif found.phase == "died":
        text += ": its process ended without a word; run it again and it goes on"
    if found.error:
        text += f"\n{found.error}"
    return text


def _watch_live(look: Callable[[], LogStatus]) -> None:
    from rich.console import Console
    from rich.live import Live

    from logline.runtime.control.progress import Rates, table
    from logline.runtime.status import Status

    rates, began = Rates(), time.monotonic()

    def drawn(found: LogStatus) -> Table:
        now = time.monotonic()
        plain = Status(found.phase, found.operators, found.error, ephemeral=found.ephemeral)  # type: ignore[arg-type]
        return table(found.pipeline, plain, rates.note(plain, now), now - began)

    found = look()
    with Live(drawn(found), console=Console(), auto_refresh=False) as live:
        while found.run is not None:
            time.sleep(LOOK)
            found = look()
            live.update(drawn(found), refresh=True)
