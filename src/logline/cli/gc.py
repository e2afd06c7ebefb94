"""`logline gc`: collects what nobody needs of a log that does not run, and gives its room back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logline.cli.common import LogUrl, aligned, open_used

if TYPE_CHECKING:
    from logline.store.seam import Store


def gc(
    log: LogUrl,
    compact: Annotated[bool, typer.Option("--compact", help="Write files anew, so that they shrink.")] = False,
) -> None:
    """Collect what nobody needs of a log that is not running.

    \b
    logline gc lmdb:sales.log
    logline gc lmdb:sales.log --compact        and give the room back to the disk

    A running pipeline collects by itself. What is on ports `errors`, what lineage keeps, members of open sets and
    what has not been taken stays. Files don't shrink by that: their room is used again. With --compact they are
    written anew without it; for a moment a file and its copy are both there.
    """
    from logline.runtime.log.cleaning import clean
    from logline.runtime.log.held import held_by_errors

    store = open_used(log).store
    found = clean(store)
    print(aligned(["operator", "collected", "kept"], ([n, c.before - c.after, c.after] for n, c in found.items())))
    for name, held in held_by_errors(store).items():
        many = "error holds" if held.errors == 1 else "errors hold"
        print(f"{held.errors:,} open {many} {held.nbytes:,} bytes of {name}: retry or drop, see logline errors {log}")
    if compact:
        _compact(store)


def _compact(store: Store) -> None:
    from logline.runtime.log.cleaning import compact

    freed = 0
    for name, found in compact(store):
        freed += found.before - found.after
        if found.why_not:
            print(f"{name}  {found.before:,} bytes stay: {found.why_not}")
        else:
            print(f"{name}  {found.before:,} bytes -> {found.after:,}")
    print(f"{freed:,} bytes freed on disk")
