"""`logline gc`: collects what nobody needs of a log that does not run, and gives its room back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from logline.cli.common import LogUrl, aligned, open_used

if TYPE_CHECKING:
    from collections.abc import Mapping

    from logline.names import Called, InstanceName
    from logline.store.seam import Store


def gc(
    log: LogUrl,
    compact: Annotated[bool, typer.Option("--compact", help="Write files anew, so that they shrink.")] = False,
) -> None:
    """Collect what nobody needs of a log that is not running.

    \b
    logline gc lmdb:sales.log
    logline gc lmdb:sales.log --compact        and give the room back to the disk

    collected, kept: events and write actions. A running pipeline collects by itself. What is on ports `errors`, what
    lineage keeps, members of open sets and what has not been taken stays. Files don't shrink by that: their room is
    used again. With --compact they are written anew without it; for a moment a file and its copy are both there.
    """
    from logline.runtime.log.cleaning import clean
    from logline.runtime.log.held import held_by_errors
    from logline.runtime.log.log_status import names_in
    from logline.store.tables import record_in

    store = open_used(log).store
    names = names_in(record_in(store))
    found = clean(store)
    counts = ([names[one], c.before - c.after, c.after] for one, c in found.items())
    print(aligned(["operator", "collected", "kept"], counts))
    for one, held in held_by_errors(store).items():
        many = "error holds" if held.errors == 1 else "errors hold"
        what = f"{held.errors:,} open {many} {held.nbytes:,} bytes of {names[one]}"
        print(f"{what}: retry or drop, see logline errors {log}")
    if compact:
        _compact(store, names)


def _compact(store: Store, names: Mapping[InstanceName, Called]) -> None:
    from logline.runtime.log.cleaning import compact

    freed = 0
    for one, found in compact(store):
        name = names.get(one, one)
        freed += found.before - found.after
        if found.why_not:
            print(f"{name}  {found.before:,} bytes stay: {found.why_not}")
        else:
            print(f"{name}  {found.before:,} bytes -> {found.after:,}")
    print(f"{freed:,} bytes freed on disk")
