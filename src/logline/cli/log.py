"""`logline log`: what is done to a log as a whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from logline.cli.common import log_url

if TYPE_CHECKING:
    from logline.names import InstanceName

Address = Annotated[str, typer.Argument(metavar="FROM", help="The log: its address, or the path of its folder.")]
Elsewhere = Annotated[
    str, typer.Argument(metavar="TO", help="Where it shall be: the address of a log that is not there.")
]

log = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@log.callback()
def about() -> None:
    """Move or copy a log.

    \b
    logline log copy lmdb:sales.log postgresql://ada@db.example/shop?log=sales
    """


@log.command()
def copy(
    source: Address,
    target: Elsewhere,
    keep: Annotated[bool, typer.Option("--keep", help="FROM stays the log that runs; TO can only be read.")] = False,
) -> None:
    """Move a log that is not running to another store.

    \b
    logline log copy lmdb:sales.log postgresql://ada@db.example/shop?log=sales
    logline log copy postgresql://ada@db.example/shop?log=sales lmdb:copy.log --keep

    The pipeline then goes on at TO, where it was: TO has the same log id, so that targets know it. FROM can be read,
    and a run on it is refused and says where the log is now. With --keep it is the other way around. A copy that was
    killed can be repeated; nobody can open TO before it is whole.
    """
    from logline.store.copying import copy_log

    with _progress() as told:
        copied = copy_log(log_url(source), log_url(target), keep=keep, told=told)
    if not copied.journals:
        print("the move was done but for its last step, which is done now")
    else:
        print(f"{copied.journals:,} journals with {copied.events:,} events {'copied' if keep else 'moved'}")


@contextmanager
def _progress() -> Iterator[Callable[[InstanceName, int, int], None]]:
    """A bar for each journal on a terminal, a line for each elsewhere."""
    if not sys.stderr.isatty():
        yield lambda instance, done, many: None if done else print(f"{instance}: {many:,} events", file=sys.stderr)
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    with Progress(console=Console(stderr=True)) as shown:
        tasks: dict[str, TaskID] = {}

        def told(instance: InstanceName, done: int, many: int) -> None:
            if instance not in tasks:
                tasks[instance] = shown.add_task(str(instance), total=many)
            shown.update(tasks[instance], completed=done)

        yield told
