"""What the commands share: the LOG argument, error messages, tables as text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from logline.runtime.log.log import Log
    from logline.store.seam import Store

LogUrl = Annotated[str, typer.Argument(metavar="LOG", help="lmdb:PATH or its path, postgresql://..., or env:NAME.")]
Format = Annotated[Literal["table", "json"], typer.Option(help="For people, or for programs.")]


def log_url(text: str) -> str:
    """The address of a log; the path of its folder will do."""
    from logline.store.address import in_folder

    return in_folder(text) if (Path(text) / "log.json").exists() or ":" not in text else text


def open_used(text: str) -> Log:
    """A log that a pipeline has been run on, for a command that runs no code of its user."""
    store = used_store(text)
    from logline.runtime.log.log import Log

    _spare_pandas()
    return Log(store, log_url(text))


def used_store(text: str) -> Store:
    """The store of such a log. Memory is not shared: a log there is never one of another process."""
    from logline.errors import LogError
    from logline.store.address import find_store, shown

    url = log_url(text)
    store = find_store(url)
    if store is None or store.meta() is None:
        raise LogError(f"there is no log at {shown(url)}: no pipeline has been run on it")
    return store


def _spare_pandas() -> None:
    """Has Arrow find no pandas. It imports pandas with the first array that it makes, to know a frame when it is
    given one. That takes as long as all other imports of a command together, and here nobody has a frame."""
    import pyarrow as pa

    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
        pa.array([])  # it looks once
        del sys.meta_path[0]


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


def complain(text: str) -> None:
    """Prints an error to stderr."""
    print(f"logline: {text}", file=sys.stderr)


def shortened(text: str, width: int) -> str:
    """The text in at most so many characters.

    >>> shortened("item_id", 5)
    'item…'
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def aligned(head: Sequence[str], rows: Iterable[Sequence[Any]], *, left: int = 1) -> str:
    """A table as text: the first `left` columns to the left, numbers to the right.

    >>> print(aligned(["operator", "in"], [["orders", 7], ["hourly", 1200]]))
    operator     in
    orders        7
    hourly    1,200
    """
    table = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
