"""The address of a log: which store it is in, and where.

    memory:NAME                                     in this process
    lmdb:PATH                                       in a folder of this host
    postgresql://user@host/database?log=NAME        in PostgreSQL, for processes of any host; several, with spaces
                                                    in between: spread over these servers
    env:NAME                                        what that environment variable says, here and in every worker

An address may hold a password, so no message repeats more of it than its kind. `env:NAME` travels as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from logline.errors import LogError, OptionError, a_kind
from logline.graph.secrets import Secret
from logline.names import LogId
from logline.store.marks import Mark, check_whole
from logline.store.memory import copy_memory, find_memory, memory_names, open_memory
from logline.store.seam import Reach, Store

if TYPE_CHECKING:
    from logline.store.postgres.spread import SpreadStore
    from logline.store.postgres.store import PgStore

_POSTGRES = ("postgres", "postgresql")
_KINDS = "'memory:NAME', 'lmdb:PATH', for example 'lmdb:orders.log', or 'postgresql://user@host/database?log=NAME'"


def as_text(log: str | Secret) -> str:
    """The address as it travels: `ll.env("PG")` is `env:PG`."""
    return f"env:{log.variable}" if isinstance(log, Secret) else log


def shown(url: str) -> str:
    """The address as messages have it: without a password.

    >>> shown("postgresql://ada:hunter2@db.example/shop?log=sales"), shown("lmdb:sales.log"), shown("env:PG")
    ('postgresql://ada@db.example/shop?log=sales', 'lmdb:sales.log', 'env:PG')
    """
    if url.partition(":")[0] not in _POSTGRES:
        return url
    from logline.store.postgres.address import parse_address

    return " ".join(repr(parse_address(one))[1:-1] for one in url.split())


def check_address(log: object) -> None:
    """Whether it is a text at all, said before anything looks into it."""
    if isinstance(log, str):
        return
    meant = f"; did you mean 'lmdb:{log}'?" if isinstance(log, PurePath) else ""
    raise OptionError(f"log is an address such as 'lmdb:PATH', not {a_kind(log)}{meant}")


def open_store(url: str | None, *, durability: Literal["disk", "process"] | None = None) -> Store:
    """The store at that address, made if it is not there; None is a fresh one in memory."""
    if url is None:
        return open_memory("")
    kind, place = _split(url)
    if kind == "memory":
        return _whole(open_memory(place), url)
    if kind == "postgresql":
        return _whole(_in_postgres(place, create=True), url)
    from logline.store.lmdb.folder import LmdbStore

    return _whole(LmdbStore(Path(place), durability=durability), url)


def _whole(store: Store, url: str) -> Store:
    """The store, unless it is a copy that is not finished."""
    try:
        check_whole(store.mark(), shown_address(url))
    except BaseException:
        store.close()
        raise
    return store


def make_copy(url: str, log_id: LogId, mark: Mark) -> Store:
    """A log at that address to write another one into, which is marked before anything else. LogError if there is one
    already, unless it is what is left of an earlier copy of the same log: that goes."""
    kind, place = _split(url)
    if kind == "memory":
        return copy_memory(place, log_id, mark)
    if kind == "postgresql":
        made = _in_postgres(place, create=True, copy_of=log_id)
        try:
            made.begin_copy(log_id, mark)
        except BaseException:
            made.close()
            raise
        return made
    from logline.store.lmdb.folder import LmdbStore
    from logline.store.lmdb.restore import clear_for_copy

    clear_for_copy(Path(place).absolute(), log_id, mark)
    return LmdbStore(Path(place), log_id=log_id)


def unfinished_copy(url: str, log_id: LogId) -> Store | None:
    """The copy of that log at that address which is marked as not finished, if there is one."""
    store = _find(url)
    if store is None:
        return None
    mark = store.mark()
    if mark is not None and mark.kind == "unfinished" and store.log_id == log_id:
        return store
    store.close()
    return None


def shown_address(url: str) -> str:
    """The address as messages and other logs may have it: whole, and without a password.

    >>> shown_address("postgresql://ada:hunter2@db1/shop?log=sales postgresql://db2/shop?log=sales")
    'postgresql://ada@db1/shop?log=sales postgresql://db2/shop?log=sales'
    """
    kind, colon, _ = url.partition(":")
    return shown(url) if colon and kind in _POSTGRES else absolute(url)


def _in_postgres(
    url: str, *, create: bool, known: bool = False, copy_of: LogId | None = None
) -> PgStore | SpreadStore:
    from logline.store.postgres.dsn import check_installed

    check_installed("a log in PostgreSQL")
    from logline.store.postgres.address import parse_address
    from logline.store.postgres.spread import SpreadStore
    from logline.store.postgres.store import PgStore

    addresses = [parse_address(one) for one in url.split()]
    if len(addresses) == 1:
        return PgStore(addresses[0], create=create, known=known, copy_of=copy_of)
    return SpreadStore(addresses, create=create, known=known, copy_of=copy_of)


def find_store(url: str, *, known: bool = False) -> Store | None:
    """The store at that address, if there is one; makes nothing. `known`: its server was there a moment ago."""
    found = _find(url, known=known)
    return None if found is None else _whole(found, url)


def _find(url: str, *, known: bool = False) -> Store | None:
    kind, place = _split(url)
    if kind == "memory":
        return find_memory(place)
    if kind == "postgresql":
        from logline.store.postgres.store import NoLog

        try:
            return _in_postgres(place, create=False, known=known)
        except NoLog:
            return None
    from logline.store.lmdb.folder import LmdbStore, is_log

    return LmdbStore(Path(place), create=False) if is_log(Path(place)) else None


def find_same(url: str, log_id: LogId) -> Store:
    """The log that another process of the same run has opened. Makes none: where that one is not to be seen, an empty
    one would be worked on."""
    store = find_store(url, known=True)
    if store is None:
        raise no_log(url)
    if store.log_id != log_id:
        raise LogError(
            f"the log that is found at the address of the driver's is another one ({store.log_id}, not {log_id}): "
            "somebody has put it there, or this is another machine. Bring the log back, or start the pipeline again "
            "to run it on this one"
        )
    return store


def reach_of(url: str | None) -> Reach:
    """Who can open the log at that address; None is a fresh one in memory. Opens nothing.

    >>> reach_of("lmdb:sales.log"), reach_of("memory:sales"), reach_of("postgresql://db.example/shop")
    ('host', 'process', 'hosts')
    """
    if url is None or url == "memory:":  # as `Log.url` says it of a log without a name
        return "process"
    return _REACH[_split(url)[0]]


_REACH: Mapping[str, Reach] = {"memory": "process", "lmdb": "host", "postgresql": "hosts"}


def takes_durability(url: str | None) -> bool:
    """Whether the user decides what a commit of this log survives."""
    return reach_of(url) == "host"


def absolute(url: str) -> str:
    """The address as a process with another working directory understands it."""
    kind, colon, place = url.partition(":")
    return f"lmdb:{Path(place).absolute()}" if kind == "lmdb" and colon and place else url


def in_folder(path: Path | str) -> str:
    """The address of the log in that folder.

    >>> in_folder("sales.log")
    'lmdb:sales.log'
    """
    return f"lmdb:{path}"


def address_of(text: str) -> str:
    """The address that somebody means who may have given the path of a log's folder.

    >>> address_of("lmdb:sales.log"), address_of("data/sales.log"), address_of("postgresql://db/sales")
    ('lmdb:sales.log', 'lmdb:data/sales.log', 'postgresql://db/sales')
    """
    check_address(text)
    return in_folder(text) if _is_path(text) or (Path(text) / "log.json").exists() else text


def _is_path(text: str) -> bool:
    """Whether it looks like a path, and so holds no password."""
    return re.fullmatch(r"[\w./~+-]+", text) is not None


def no_log(url: str) -> LogError:
    """What to say where `find_store` has found nothing."""
    kind, place = _split(url)
    if kind == "postgresql":
        from logline.store.postgres.address import parse_address

        address = parse_address(place.split()[0])
        return LogError(
            f"there is no log {address.log!r} in {address.dsn!r}: check the address and its ?log=, or run a pipeline "
            "on it first"
        )
    if kind == "lmdb":
        return LogError(f"there is no log at {Path(place).absolute()}: check the path, or run a pipeline on it first")
    known = [f"memory:{name}" for name in memory_names()]
    there = f"there are {', '.join(known)}" if known else "a log in memory is gone with its process"
    return LogError(f"there is no such log in this process; {there}")


def _split(url: str) -> tuple[str, str]:
    check_address(url)
    kind, colon, place = url.partition(":")
    if colon and kind == "env" and place:
        return _split(Secret(place).resolve())
    if colon and kind in ("memory", "lmdb") and place:
        return kind, place
    if colon and kind in _POSTGRES and place:
        return "postgresql", url
    if kind in ("memory", "lmdb") and not place:
        raise LogError(f"the address of a log says where it is: {_KINDS}")
    meant = f"; did you mean {in_folder(url)!r}?" if _is_path(url) else ""
    raise LogError(f"this is not the address of a log: use {_KINDS}{meant}")
