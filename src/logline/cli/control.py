"""`logline stop` and `logline restart`: send commands to the process that runs the pipeline of a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from logline.cli.common import LogUrl, open_used

if TYPE_CHECKING:
    from logline.runtime.log.log import Log
    from logline.store.seam import Holder

LOOK = 0.1
"""Seconds between two looks whether the run is over."""
LAST_WORD = 15.0
"""Seconds that a run has to end once it has dropped what was under way."""


def stop(
    log: LogUrl,
    drain: Annotated[bool, typer.Option("--drain", help="Let what is in the pipeline flow out first.")] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds that calls under way have to end; with --drain, seconds to wait.")
    ] = 30.0,
) -> None:
    """Stop the run that holds a log, and wait until it is over.

    \b
    logline stop lmdb:sales.log
    logline stop lmdb:sales.log --drain      read no more, let what is there flow out, then stop

    It begins no call, row, read or write any more. Calls under way come to their end, and their answers are logged;
    after --timeout they are dropped. Open input sets stay open in the log: the next run goes on with them.
    """
    from logline.errors import LogError
    from logline.runtime.control.remote_control import tell_run
    from logline.runtime.log.log_status import log_status
    from logline.runtime.messages.commands import Drain, Stop
    from logline.runtime.status import Status

    opened = open_used(log)
    holder = _holder(opened)
    tell_run(opened.store, Drain() if drain else Stop(timeout))
    until = time.monotonic() + timeout + (0.0 if drain else LAST_WORD)
    told = ""
    while opened.store.running() == holder:
        if time.monotonic() > until:
            raise LogError(f"run {holder.run} (process {holder.pid}) was told to stop, and runs after {timeout:g} s")
        found = log_status(opened.store)
        if found.phase == "stopping" and (summary := Status("stopping", found.operators).summary) != told:
            told = summary
            print(told, flush=True)
        time.sleep(LOOK)
    phase = log_status(opened.store).phase
    print(f"run {holder.run} is over: {phase}{'; run again to go on' if phase == 'stopped' else ''}")


def restart(
    log: LogUrl,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="Its life ends, and a new one begins.")],
) -> None:
    """Restart one operator of a running pipeline.

    \b
    logline restart lmdb:sales.log hourly

    Its life ends as by a crash, and a new one begins where its log ends. The others go on.
    """
    from logline.errors import BadName
    from logline.names import OperatorName
    from logline.runtime.control.remote_control import tell_run
    from logline.runtime.log.log_status import log_status
    from logline.runtime.messages.commands import Restart

    opened = open_used(log)
    operators = log_status(opened.store).operators
    if operator not in operators:
        raise BadName(f"there is no operator {operator!r}; there are {', '.join(operators)}")
    holder = _holder(opened)
    tell_run(opened.store, Restart(OperatorName(operator)))
    print(f"run {holder.run} was asked to restart {operator!r}")


def scale(
    log: LogUrl,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR")],
    replicas: Annotated[str, typer.Argument(metavar="N")],
) -> None:
    """Planned: run several instances of an operator."""
    from logline.planned import ONE_INSTANCE, not_yet

    raise not_yet("logline scale", ONE_INSTANCE)


def _holder(log: Log) -> Holder:
    from logline.errors import LogError
    from logline.store.address import shown

    holder = log.store.running()
    if holder is None:
        where = shown(log.url)
        raise LogError(f"nothing runs on {where}: start it with `logline run FILE --log {where}`")
    return holder
