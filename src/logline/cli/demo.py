"""`logline demo`: LOG.io's Figure 1, with an operator killed midway."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def demo(
    records: Annotated[int, typer.Option(min=1000, help="How many sales records.")] = 300_000,
    engine: Annotated[
        Literal["spark", "processes"], typer.Option(help="On Spark (needs Java), or as processes of this machine.")
    ] = "processes",
) -> None:
    """Run LOG.io's Figure 1 and kill an operator midway.

    \b
    logline demo --engine processes
    logline demo --engine spark

    Sales records become totals per 100 events and totals per hour. Every operator has a process of its own; the one
    of `hourly` is killed with kill -9 while the others go on. At the end the result is compared with a plain
    aggregate of the same data. It leaves nothing behind.
    """
    from logline.cli.figure1 import show

    if not show(records, engine):
        raise typer.Exit(1)
