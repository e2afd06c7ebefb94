"""`logline gc`: collects what nobody needs of a log that does not run."""

from __future__ import annotations

from logline.cli.common import LogUrl, aligned, open_used


def gc(log: LogUrl) -> None:
    """Collect what nobody needs of a log that is not running.

    \b
    logline gc lmdb:sales.log

    A running pipeline collects by itself. What is on ports `errors`, what lineage keeps, members of open sets and
    what has not been taken stays. Files don't shrink: their room is used again.
    """
    from logline.runtime.log.cleaning import clean

    found = clean(open_used(log).store)
    print(aligned(["operator", "collected", "kept"], ([n, c.before - c.after, c.after] for n, c in found.items())))
