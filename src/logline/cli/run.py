"""`logline run` and `logline check`: the pipeline in a file."""

from __future__ import annotations

import logging
import signal
import sys
import time
import types
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from logline.cli.common import log_url

if TYPE_CHECKING:
    from logline.runtime.control.settings import Settings

File = Annotated[str, typer.Argument(metavar="FILE[:NAME]", help="A Python file; NAME: its Pipeline, or a function.")]


def run(
    file: File,
    log: Annotated[str | None, typer.Option(metavar="URL", help="Where it is logged; without it, nowhere.")] = None,
    engine: Annotated[
        Literal["spark", "processes", "inline"], typer.Option(help="Who executes it: Spark, processes, this process.")
    ] = "spark",
    master: Annotated[str | None, typer.Option(help="The Spark master, for example local[8].")] = None,
    durability: Annotated[
        Literal["disk", "process"], typer.Option(help="What a commit survives: a power cut, or kill -9.")
    ] = "disk",
    until: Annotated[Literal["end", "now"], typer.Option(help="now: read what is there, then end.")] = "end",
    close: Annotated[
        bool, typer.Option("--close", help="With --until now: generate windows that are still open, too.")
    ] = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --until now: again and again, as in --every 1h.")
    ] = None,
    fail_on_errors: Annotated[
        bool, typer.Option("--fail-on-errors", help="Exit with 3 if errors wait to be retried or dropped.")
    ] = False,
    fresh: Annotated[
        list[str],
        typer.Option(
            "--fresh",
            metavar="[OPERATOR]",
            help="Make an operator anew, with all that follows it. Without a name: refuse a log that has been used.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    takeover: Annotated[bool, typer.Option("--takeover", help="Fence off a run that holds the log.")] = False,
    openlineage: Annotated[
        str | None, typer.Option(metavar="TO", help="Export the run as OpenLineage events: file:PATH or http://HOST.")
    ] = None,
) -> None:
    """Run the pipeline in a file, or go on with what its log holds.

    \b
    logline run sales.py --log lmdb:sales.log
    logline run sales.py:make --log lmdb:sales.log --engine processes
    logline run sales.py --log lmdb:sales.log --until now      read what is there, then end
    logline run sales.py --log lmdb:sales.log --until now --every 1h
    logline run sales.py --log lmdb:sales.log --fresh hourly   hourly and what follows, from what is logged

    Stopped, failed or killed: the same command goes on from the log. Ctrl-C stops it in order: calls under way come
    to their end, and no other is begun; a second one does not wait for them. In a terminal it shows how it goes;
    elsewhere it says so in lines, on stderr.
    """
    if master is not None and engine != "spark":
        raise typer.BadParameter("--master is for --engine spark")
    pause = _pause(every, until, log)
    _say_log_lines()
    signal.signal(signal.SIGTERM, _terminated)
    from logline.cli.load import load_pipeline
    from logline.runtime.control.progress import follow, line
    from logline.store.address import reach_of

    url = None if log is None else log_url(log)
    unused, anew = NO_NAME in fresh, [name for name in fresh if name != NO_NAME]
    if unused and url is not None:
        _refuse_used(url)
    if engine == "processes" and reach_of(url) == "process":
        raise typer.BadParameter("--engine processes needs a log that processes can share: --log lmdb:PATH")
    pipeline = load_pipeline(file)
    settings: Settings = {
        "engine": engine,
        "durability": durability,
        "resume": "never" if unused else "must" if anew else "auto",
        "until": until,
        "close": close,
        "takeover": takeover,
        "openlineage": openlineage,
        "fresh": anew,
    }
    from logline.graph.ephemeral import logged
    from logline.runtime.control.launch import has_finished

    if master is not None and not has_finished(logged(pipeline.graph()), url, until):
        from logline.spark.session import session

        settings["spark"] = session(pipeline.name, master=master)
    while True:
        began = time.monotonic()
        with pipeline.start(url, **settings) as run:
            follow(run, pipeline.name)
            status = run.status()
            print(line(pipeline.name, status), flush=True)
            if status.phase == "stopped":
                print("stopped; run again to go on", flush=True)
        if pause is None or status.phase == "stopped":
            break
        settings["fresh"] = []  # once is enough
        time.sleep(max(began + pause - time.monotonic(), 0.0))
    if fail_on_errors and status.open_errors:
        raise typer.Exit(ERRORS_OPEN)


ERRORS_OPEN = 3
"""The exit code of `--fail-on-errors`."""


NO_NAME = ""
"""What `--fresh` says if no operator is named."""


class RunCommand(TyperCommand):
    """`--fresh` may stand alone, or name an operator."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*_with_names(args)])


def _with_names(args: Sequence[str]) -> Iterator[str]:
    """Gives a `--fresh` that stands alone the empty name: it is the last, or another option or the file follows."""
    for arg, after in zip_longest(args, args[1:], fillvalue="-"):
        alone = after.startswith("-") or after.partition(":")[0].endswith(".py")
        yield f"--fresh={NO_NAME}" if arg == "--fresh" and alone else arg


def _pause(every: str | None, until: str, log: str | None) -> float | None:
    """Seconds between the beginnings of two runs; None for one run."""
    if every is None:
        return None
    if until != "now" or log is None:
        raise typer.BadParameter("--every is for --until now and a --log: a run goes on where the last one stopped")
    from logline.graph.durations import duration

    return duration(every).total_seconds()


def _refuse_used(url: str) -> None:
    """Refuses a used log in the words of the command line; `resume="never"` would refuse it in any case."""
    from logline.errors import LogError
    from logline.store.address import find_store, shown

    store = find_store(url)
    meta = None if store is None else store.meta()
    if meta is not None:
        raise LogError(
            f"--fresh: the log {shown(url)} has been used by pipeline {meta.pipeline!r}: "
            "say --log with another one, or leave --fresh out to go on with it"
        )


def check(
    file: File,
    log: Annotated[str | None, typer.Option(metavar="URL", help="A log to compare the pipeline with.")] = None,
    fresh: Annotated[
        list[str], typer.Option(metavar="OPERATOR", help="With --log: what if this one is made anew?")
    ] = [],  # noqa: B006 - typer copies it
) -> None:
    """Say whether a pipeline can run, and with which guarantees.

    \b
    logline check sales.py
    logline check sales.py --log lmdb:sales.log      can it go on with this log?

    Moves nothing.
    """
    from logline.cli.load import load_pipeline

    pipeline = load_pipeline(file)
    report = pipeline.check(None if log is None else log_url(log), fresh=fresh)
    print(pipeline)
    print(report)
    if not report.can_resume:
        raise typer.Exit(1)


def _terminated(number: int, frame: types.FrameType | None) -> None:
    """Handles the SIGTERM of a service manager like a Ctrl-C: the run stops in order."""
    sys.exit(128 + number)


class _Lines(logging.Handler):
    """Log records as plain lines. On the stderr of the moment: a live view puts its own in place."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def _say_log_lines() -> None:
    """What a run says through logging is for the one who started it. Once: a file that sets up logging itself would
    have it said again."""
    handler = _Lines()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("logline")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
