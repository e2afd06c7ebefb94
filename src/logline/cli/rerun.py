"""`logline rerun`: runs an operator again on what made an event."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from logline.cli.common import LogUrl, used_store

if TYPE_CHECKING:
    from logline.graph.model import Graph
    from logline.store.seam import Store

EVERY = 100
"""Input sets between two lines that say how far it is."""
MOST = 20
"""Differences that are shown."""


def rerun(
    log: LogUrl,
    event: Annotated[
        str,
        typer.Argument(metavar="[EVENT]", help="operator:number, or operator.port:number; with --since an operator."),
    ] = "",
    code: Annotated[
        str, typer.Option("--with", metavar="FILE[:NAME]", help="The pipeline's file, if not the one that ran.")
    ] = "",
    ask: Annotated[bool, typer.Option("--ask", help="Call the outside again; by default the log answers.")] = False,
    since: Annotated[
        str, typer.Option(metavar="VERSION", help="All that operators have made since that version of their code.")
    ] = "",
    limit: Annotated[
        int, typer.Option(metavar="N", help="With --since: the last N input sets of each operator.")
    ] = 1000,
) -> None:
    """Run an operator again on what made an event, and compare.

    It runs here, in the foreground: a breakpoint in its code works. Nothing is logged, sent or written. A function of
    map_rows is run around the answers that its ctx.call got; one that makes no ctx.call is run with --ask only. The
    exit code is 1 if something else comes out, or if nothing was run.

    \b
    logline rerun lmdb:sales.log hourly:12                     the code as it is in the pipeline's file now
    logline rerun lmdb:sales.log hourly:12 --with fixed.py     try changed code on it
    logline rerun lmdb:sales.log --since 2026-03-01            all sets since that version: a test from production
    """
    if bool(since) == (":" in event):
        raise typer.BadParameter("name one EVENT, or say --since VERSION")
    from logline.runtime.log.rerun import rerun as run_again

    store = used_store(log)
    script, graph = _named(code) if code else _recorded(store)
    if since:
        _rerun_since(store, graph, since, event or None, limit)
        return
    found = run_again(store, graph, event, ask=ask)
    print(f"{found.event}  made by {found.operator} from {found.inset}: {', '.join(found.members[:10])}")
    if len(found.members) > 10:
        print(f"  ... {len(found.members):,} events in all")
    if found.answers:
        print(f"answers     {found.answers:,} from the log")
    if found.rows_run:
        print(f"run         the function of {found.operator}, for {found.rows_run:,} rows")
    if found.rows_kept:
        print(f"not run     the function of {found.operator}, for {found.rows_kept:,} rows: --ask runs it")
    changed = found.version[0] != found.version[1]
    print(f"code        {script}" + (", changed since the run" if changed else ""))
    if found.rows_kept and not found.rows_run:
        print("result      the log's own: nothing was run")
        raise typer.Exit(1)
    if found.same:
        records = sum(table.num_rows for _, table in found.made)
        print(f"result      the same: {len(found.made):,} events, {records:,} records")
        return
    differences = found.differences()
    print("result      different (- as logged, + now)")
    print("\n".join(f"  {line}" for line in differences[:MOST]))
    if len(differences) > MOST:
        print(f"  ... and {len(differences) - MOST:,} more")
    raise typer.Exit(1)


def _named(script: str) -> tuple[str, Graph]:
    from logline.cli.load import load_pipeline
    from logline.graph.ephemeral import logged

    return script, logged(load_pipeline(script).graph())


def _recorded(store: Store) -> tuple[str, Graph]:
    """The pipeline in the file that the log knows."""
    from logline.cli.load import load_recorded
    from logline.errors import LogError
    from logline.graph.ephemeral import logged

    meta = store.meta()
    script = None if meta is None else meta.graph.script
    how = "say --with FILE[:NAME], a file with the pipeline at module level, or with a function NAME that makes it"
    if script is None:
        raise LogError(f"the log does not know the file of its pipeline, made in a notebook or alike: {how}")
    try:
        return script, logged(load_recorded(script).graph())
    except typer.BadParameter as error:
        raise LogError(f"the log says that its pipeline is in {script}, but {error.message}: {how}") from None


def _rerun_since(store: Store, graph: Graph, since: str, operator: str | None, limit: int) -> None:
    from logline.runtime.log.regression import Compared, rerun_since

    tallies: dict[str, Compared] = {}
    for found in rerun_since(store, graph, since, operator=operator, limit=limit):
        tallies[found.operator] = found
        if found.done % EVERY == 0 and 0 < found.done < found.total:
            print(f"{found.operator}: {found.done:,} of {found.total:,}", file=sys.stderr, flush=True)
    for found in tallies.values():
        skipped = f", {found.skipped:,} not run" if found.skipped else ""
        print(
            f"{found.operator}  {found.total:,} input sets: {found.same:,} the same, "
            f"{found.different:,} different{skipped}"
        )
        for event, differences in found.shown:
            print(f"  {event} (- as logged, + now)")
            print("\n".join(f"    {line}" for line in differences[:MOST]))
        if found.why:
            print(f"  not run: {found.why}")
    if any(found.different for found in tallies.values()) or not any(found.same for found in tallies.values()):
        raise typer.Exit(1)
