"""What a run shows of itself while somebody waits for it.

In a terminal: a table that is redrawn in place, on stderr. Elsewhere (a pipe, a file, a notebook, a service): a line
through logging (`logline`, level INFO) when something has changed, every few seconds at most; so by default nothing,
and with `logging.basicConfig(level=logging.INFO)` the lines. `Pipeline.start` and `Run.wait` show nothing.

A Ctrl-C stops the run in order, says what that waits for (level WARNING), and is raised again when the run is over. A
second one drops what is under way.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from logline.runtime.status import OperatorStatus, Status

if TYPE_CHECKING:
    from rich.table import Table

logger = logging.getLogger("logline")

LOOK = 0.25
"""Seconds between two looks at the run."""
SPEAK = 5.0
"""Seconds between two lines."""
SPAN = 5.0
"""Seconds over which a rate is taken."""


class Watched(Protocol):
    """A run, as far as progress knows it."""

    def wait(self, timeout: float | None = None) -> Status: ...

    def status(self) -> Status: ...

    def stop(self, *, timeout: float = ...) -> Status: ...


class Rates:
    """Events per second of each operator, over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str, int]]] = deque()

    def note(self, status: Status, now: float) -> dict[str, float]:
        """Adds this status, and returns the rates over the last seconds."""
        last = self._seen[-1][1] if self._seen else {}
        # A life that begins anew counts from what is logged: a number may step back, a rate never does, and what is
        # done again is not counted twice.
        counts = {name: max(_events(one), last.get(name, 0)) for name, one in status.operators.items()}
        self._seen.append((now, counts))
        while now - self._seen[0][0] > SPAN and len(self._seen) > 2:
            self._seen.popleft()
        then, before = self._seen[0]
        passed = now - then
        return {n: (c - before.get(n, c)) / passed if passed > 0 else 0.0 for n, c in counts.items()}


def _events(one: OperatorStatus) -> int:
    """What an operator has worked on: events taken in; of a source, events put out."""
    return one.taken or one.out


def follow(run: Watched, name: str) -> Status:
    """Waits until the run is over, and shows how it goes. Raises what `Run.wait` raises; and KeyboardInterrupt, or
    the SystemExit of a signal handler, once it has stopped the run for it."""
    if not is_terminal():
        return _follow_in_lines(run, name)
    from rich.console import Console
    from rich.live import Live

    rates, began = Rates(), time.monotonic()

    def drawn(status: Status) -> Table:
        now = time.monotonic()
        return table(name, status, rates.note(status, now), now - began)

    with Live(drawn(run.status()), console=Console(stderr=True), auto_refresh=False) as live:

        def look() -> Status:
            status = run.status()
            live.update(drawn(status), refresh=True)
            return status

        try:
            return _wait(run, name, look)
        finally:
            look()


def _follow_in_lines(run: Watched, name: str) -> Status:
    rates, said, at = Rates(), "", time.monotonic()

    def look() -> Status:
        nonlocal said, at
        now, status = time.monotonic(), run.status()
        speeds = rates.note(status, now)
        text = line(name, status)
        if now - at >= SPEAK and text != said:
            said, at = text, now
            logger.info("%s; %.0f events/s", text, sum(speeds.values()))
        return status

    return _wait(run, name, look)


def _wait(run: Watched, name: str, look: Callable[[], Status]) -> Status:
    told = False
    try:
        while True:
            try:
                return run.wait(LOOK)
            except TimeoutError:
                status = look()
            if not told and status.phase == "stopping":  # another process has said so
                told = True
                logger.info("%s %s", name, status.summary)
    except (KeyboardInterrupt, SystemExit):
        _stop(run, name, look)
        raise


def _stop(run: Watched, name: str, look: Callable[[], Status]) -> None:
    """Stops the run in order, and shows how that goes. On a second Ctrl-C it drops what is under way."""
    stopping = threading.Thread(target=_try_to_stop, args=(run,), name="logline-stop", daemon=True)
    stopping.start()
    told = False
    try:
        while stopping.is_alive():
            status = look()
            if status.phase == "stopping" and not told:
                told = True
                logger.warning("%s %s. Ctrl-C once more does not wait", name, status.summary)
            stopping.join(LOOK)
    except (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(TimeoutError):
            run.stop(timeout=0)
        logger.warning("%s was cut short; what is logged stays logged. Run again to go on", name)
        raise
    phase = run.status().phase
    logger.warning("%s %s", name, f"{phase}; run again to go on" if phase == "stopped" else phase)


def _try_to_stop(run: Watched) -> None:
    try:
        run.stop()
    except TimeoutError as error:
        logger.warning("%s", error)


def is_terminal() -> bool:
    """Whether somebody looks at stderr, on something that can redraw."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def line(name: str, status: Status) -> str:
    """A run in one line.

    >>> line("sales", Status("running", {"orders": OperatorStatus(out=7), "store": OperatorStatus(taken=5, lag=2)}))
    'sales running: orders 7 out; store 5 in, lag 2'
    """
    return f"{name} {status.summary}: " + "; ".join(_operator(n, o) for n, o in status.operators.items())


def _operator(name: str, one: OperatorStatus) -> str:
    parts: list[tuple[object, str]] = [
        (one.taken, "{} in"),
        (one.out, "{} out"),
        (one.lag, "lag {}"),
        (one.open_sets, "{} open sets"),
    ]
    parts += [(one.progress, "{} answered"), (one.pending, "{} writes pending")]
    parts += [(one.restarts, "{} restarts"), (one.errors, "{} errors")]
    parts += [(one.late, "{} late"), (one.errors_retried, "{} errors being retried"), (one.waits, "waits: {}")]
    return f"{name} " + (", ".join(text.format(n) for n, text in parts if n) or "nothing yet")


def table(name: str, status: Status, rates: dict[str, float], seconds: float) -> Table:
    """A run as a table for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    said = [*map(escape, status.remarks), *([f"[red]{escape(status.error)}[/red]"] if status.error else [])]
    found = Table(
        title=f"[bold]{escape(name)}[/bold] {status.summary}, {seconds:.0f} s",
        title_justify="left",
        caption="\n".join(said) or None,
        caption_justify="left",
        box=None,
        pad_edge=False,
    )
    found.add_column("operator")
    for column in ("in", "out", "events/s", "lag", "open sets", "in flight", "pending", "restarts", "errors"):
        found.add_column(column, justify="right")
    for operator, o in status.operators.items():
        rate = rates.get(operator, 0.0)
        found.add_row(
            operator,
            *(f"{n:,}" for n in (o.taken, o.out)),
            f"{rate:,.0f}",
            *(f"{n:,}" for n in (o.lag, o.open_sets, o.in_flight, o.pending)),
            f"[yellow]{o.restarts}[/yellow]" if o.restarts else "0",
            f"[red]{o.errors:,}[/red]" if o.errors else "0",
        )
    return found
