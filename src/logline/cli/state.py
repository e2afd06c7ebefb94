"""`logline state`: the states of an operator's keys."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from logline.cli.common import Format, LogUrl, open_used


def state(
    log: LogUrl,
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="An operator with a state per key.")],
    key: Annotated[
        list[str] | None, typer.Option(metavar="VALUE", help="The key; once for each of its columns.")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Keys to show.")] = 20,
    format: Format = "table",
) -> None:
    """Show the state of keys, as it is committed.

    \b
    logline state lmdb:sales.log fraud                           all keys
    logline state lmdb:sales.log fraud --key 4711                one key
    logline state lmdb:sales.log rates --key EUR --key USD       a key of two columns
    """
    from logline.cli.show import records_text

    found = open_used(log).state(operator, tuple(key) if key else None)
    if format == "json":
        print(json.dumps(found.to_pylist(), default=str))
    elif key and not found.num_rows:
        print(f"{operator} has no state of the key {', '.join(key)}")
    else:
        print(records_text(found, rows))
