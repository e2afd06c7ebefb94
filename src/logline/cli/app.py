"""All commands together. An error of a command becomes one line and an exit code.

    0  finished, or what was asked for is done      1  it failed, or was refused
    2  a wrong command line                         3  --fail-on-errors, and errors are open
    4  another run has the log                    130  Ctrl-C

A command imports what it needs when it runs: `logline --help` loads neither Arrow nor Spark. To add one, write it in
a file of its own and add it at the end of this one.
"""

from __future__ import annotations

import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from logline.cli.common import complain
from logline.cli.control import restart, scale, stop
from logline.cli.demo import demo
from logline.cli.errors import errors
from logline.cli.explain import explain
from logline.cli.gc import gc
from logline.cli.lineage import lineage, sql
from logline.cli.log import log
from logline.cli.rerun import rerun
from logline.cli.run import RunCommand, check, run
from logline.cli.show import show
from logline.cli.state import state
from logline.cli.status import status
from logline.errors import LogInUse, LoglineError, PartialData, TakenOver

ANOTHER_RUN = 4
"""The exit code of a run whose log another run has: it held the log, or has taken it over."""


class Commands(TyperGroup):
    """Turns what a command raises into one line."""

    def invoke(self, ctx: Any) -> Any:
        warnings.showwarning = _show_warning
        try:
            return super().invoke(ctx)
        except LogInUse as error:
            also = ", or fence it off with --takeover" if ctx.invoked_subcommand == "run" else " first"
            complain(f"{error.what}: stop that run, with `logline stop LOG`{also}")
            raise typer.Exit(ANOTHER_RUN) from None
        except TakenOver as error:
            complain(str(error))
            raise typer.Exit(ANOTHER_RUN) from None
        except LoglineError as error:
            complain(str(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


_show_by_default = warnings.showwarning


def _show_warning(message: Warning | str, category: type[Warning], *args: Any, **more: Any) -> None:
    """What the log does not hold any more is said in one line, without the line of code that asked."""
    if issubclass(category, PartialData):
        complain(str(message))
    else:
        _show_by_default(message, category, *args, **more)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def about() -> None:
    """Data pipelines that go on where their log ends. An event is a batch of records.

    \b
    A first look:
      logline demo                                   a pipeline, an operator killed midway
      logline run sales.py --log lmdb:sales.log      run the pipeline in sales.py, or go on with it
      logline status lmdb:sales.log --watch          from another terminal
      logline show lmdb:sales.log hourly:12          one event, and what became of it
      logline lineage lmdb:sales.log hourly:12       what it was made of, back to the sources

    A LOG is the address of a log, lmdb:PATH, or the path of its folder. Events are named operator:number, or
    operator.port:number. `logline COMMAND --help` explains a command with examples.
    """


app.command(cls=RunCommand)(run)
for command in (check, status, stop, restart, errors, show, lineage, explain, state, sql, rerun, gc, demo):
    app.command()(command)
app.add_typer(log, name="log")
app.command("replay", hidden=True)(rerun)  # its name before there was a policy of that name
app.command(hidden=True)(scale)


def main() -> None:
    """The entry point of `logline`."""
    app(prog_name="logline")
