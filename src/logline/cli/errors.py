"""`logline errors`: what is on the ports `errors` of a log."""

from __future__ import annotations

import json

from logline.cli.common import Format, LogUrl, aligned, open_used

WIDTH = 60
"""Characters of a reason that a table shows."""


def errors(log: LogUrl, format: Format = "table") -> None:
    """List rejected rows and diverted input sets.

    \b
    logline errors lmdb:sales.log
    logline show lmdb:sales.log enrich.errors:3      one of them, with its traceback and its rows
    """
    found = open_used(log).errors().drop_columns(["data"]).to_pylist()
    if format == "json":
        print(json.dumps(found))
    elif not found:
        print("there is nothing on any port 'errors'")
    else:
        rows = ([e["event"], e["inset"], len(e["events"]), _short(e["reason"])] for e in found)
        print(aligned(["event", "input set", "events", "reason"], rows, left=4))


def _short(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first if len(first) <= WIDTH else first[: WIDTH - 1] + "…"
