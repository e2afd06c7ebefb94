"""`logline rerun`: runs an operator again on what made an event."""

from __future__ import annotations

from typing import Annotated

import typer

from logline.cli.common import LogUrl, used_store

MOST = 20
"""Differences that are shown."""


def rerun(
    log: LogUrl,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="operator:number, or operator.port:number.")],
    code: Annotated[
        str, typer.Option("--with", metavar="FILE[:NAME]", help="The pipeline's file, if not the one that ran.")
    ] = "",
    ask: Annotated[bool, typer.Option("--ask", help="Call the outside again; by default the log answers.")] = False,
) -> None:
    """Run an operator again on what made an event, and compare.

    It runs here, in the foreground: a breakpoint in its code works. Nothing is logged, sent or written. A function of
    map_rows is run around the answers that its ctx.call got; one that makes no ctx.call is run with --ask only. The
    exit code is 1 if something else comes out, or if nothing was run.

    \b
    logline rerun lmdb:sales.log hourly:12                     the code as it is in the pipeline's file now
    logline rerun lmdb:sales.log hourly:12 --with fixed.py     try changed code on it
    """
    from logline.cli.load import load_pipeline
    from logline.errors import LogError
    from logline.runtime.log.rerun import rerun as run_again

    store = used_store(log)
    meta = store.meta()
    script = code or ("" if meta is None else meta.graph.script or "")
    if not script:
        raise LogError("the log does not know the file of its pipeline: say --with FILE[:NAME]")
    found = run_again(store, load_pipeline(script).graph(), event, ask=ask)
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
