"""The address of a log: which store it is in, and where. `memory:NAME` for now.

An address may hold a password, so no message repeats more of it than its kind.
"""

from __future__ import annotations

from logline.errors import LogError
from logline.store.memory import find_memory, memory_names, open_memory
from logline.store.seam import Store

_LATER = {"lmdb": "LMDB", "postgres": "PostgreSQL", "postgresql": "PostgreSQL"}


def open_store(url: str | None) -> Store:
    """The store at that address, made if it is not there; None is a fresh one in memory."""
    return open_memory("" if url is None else _memory_name(url))


def find_store(url: str) -> Store | None:
    """The store at that address, if there is one; makes nothing."""
    return find_memory(_memory_name(url))


def known_logs() -> list[str]:
    """The addresses that can be opened from this process without knowing them."""
    return [f"memory:{name}" for name in memory_names()]


def _memory_name(url: str) -> str:
    kind, colon, name = url.partition(":")
    if colon and kind == "memory" and name:
        return name
    if colon and kind in _LATER:
        raise LogError(
            f"logs in {_LATER[kind]} are not available in this version: "
            "use 'memory:NAME', which lives as long as the process"
        )
    if url in ("memory", "memory:"):
        raise LogError("a log in memory needs a name to be found by: 'memory:NAME'")
    raise LogError("this is not the address of a log: use 'memory:NAME', for example 'memory:orders'")
