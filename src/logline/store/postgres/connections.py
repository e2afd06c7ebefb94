"""Connections of this process to the log's server: borrowed for a transaction, given back, opened again when lost.

A life needs one while it commits or reads, not while it waits. A process has a few, for all that it does. Where the
server is short of them (`crowded`), it keeps none between two transactions, so that more processes than the server
has connections for can take turns; who finds all taken waits.

Through a pooler each transaction may be on another session. Then nothing is kept in one: the settings are made inside
each transaction, and nothing is prepared on the server.

A server that is restarted, fails over or is away is waited for: the work is done again on a new connection. Work
given to `run` must bear that. Reads do; a commit is numbered, and a repeated one changes nothing.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from logline.errors import LogError, LogGone
from logline.store.postgres.dsn import Dsn, passes, piped, refuses

if TYPE_CHECKING:
    from psycopg import Connection, Error

logger = logging.getLogger("logline")

PATIENCE = 600.0
"""Seconds that work waits for a server that is away, before it fails."""
FIRST_WAIT, LONGEST_WAIT = 0.02, 1.0
"""Seconds between two tries."""
IDLE = 20.0
"""Seconds after which a connection that nobody uses is closed."""
RESTING = 1.0
"""The same, of a log whose run is over: it may be one of many that a process has had."""
T = TypeVar("T")
_TOO_MANY = "53300"
_FULL = ("53100", "53200")
_NOT_THERE = ("3F000", "42P01", "42883")
_NOT_ALLOWED = "42501"


class Closed(LogError):
    """The log was closed while somebody waited for its server."""


class Connections:
    """A small pool; any thread may use it."""

    def __init__(self, dsn: Dsn, schema: str, *, pooled: bool = False) -> None:
        """`pooled`: whether they go through a pooler."""
        self._dsn = dsn
        self._schema = schema
        self._pooled = pooled
        self._settings = {"search_path": f'"{schema}"', "lock_timeout": "3000"}
        self.crowded: Callable[[], bool] = lambda: False
        """Whether the server is short of connections."""
        self._free: list[tuple[float, Connection[Any]]] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pid = os.getpid()
        self._away = False
        self._let_in = False
        """Whether the server has ever let this user in: then it may be failing over, and is waited for."""
        self._idle = IDLE
        self._timer: threading.Timer | None = None
        """There while a connection is free."""

    def run(self, work: Callable[[Connection[Any]], T], *, patience: float = PATIENCE) -> T:
        """Has the work done on a connection; again on another one if that is lost meanwhile."""
        connection, done = self._done(partial(self._with_settings, work), patience)
        self._give_back(connection)
        return done

    def _with_settings(self, work: Callable[[Connection[Any]], T], connection: Connection[Any]) -> T:
        """Does the work, in a transaction with the settings if they are not those of the session."""
        if not self._pooled:
            return work(connection)
        with connection.transaction():
            connection.execute(self._local().encode())
            return work(connection)

    def _local(self) -> str:
        return "; ".join(f"set local {name} = {value}" for name, value in self._settings.items())

    def _done(self, work: Callable[[Connection[Any]], T], patience: float) -> tuple[Connection[Any], T]:
        """Has the work done; returns the connection too, which is still the work's."""
        import psycopg

        began, wait = time.monotonic(), FIRST_WAIT
        while True:
            connection = None
            try:
                connection = self._take()
                done = work(connection)
            except psycopg.Error as error:
                self._drop(connection)
                if not passes(error) or (not self._let_in and refuses(error)):
                    raise self.explained(error) from None
                self._wait(error, began, wait, patience)
                wait = min(wait * 2, LONGEST_WAIT)
            except BaseException:
                self._drop(connection)
                raise
            else:
                if wait > FIRST_WAIT:
                    self._said_back(began)
                return connection, done

    def quickly(self, query: str, given: Sequence[Any]) -> None:
        """Executes a statement without waiting for the server's disk: for what need not survive its loss."""

        def work(connection: Connection[Any]) -> None:
            with piped(connection):
                connection.execute("select set_config('synchronous_commit', 'off', true)")
                connection.execute(query.encode(), given)

        self.run(work)

    def own(self, work: Callable[[Connection[Any]], Any]) -> Connection[Any]:
        """A connection on which the work was done, and which is the caller's from then on."""
        return self._done(work, PATIENCE)[0]

    @contextmanager
    def snapshot(self, tables: Sequence[str]) -> Iterator[Connection[Any]]:
        """A transaction that only reads, and sees one instant, of these tables too: they are not truncated while it
        lasts. What is lost meanwhile is not repeated: whoever reads has read half."""
        import psycopg

        connection, _ = self._done(partial(_begin, self._local() if self._pooled else "", tables), PATIENCE)
        try:
            yield connection
            connection.execute("commit")
        except psycopg.Error as error:
            self._drop(connection)
            raise self.explained(error) from None
        except BaseException:
            self._drop(connection)
            raise
        else:
            self._give_back(connection)

    def explained(self, error: Error) -> LogError:
        """An error of the server's as one of the log, without a password."""
        told = error.diag.message_primary or str(error).strip().replace("\n", ", ")
        code = error.sqlstate
        if code in _NOT_THERE:
            return LogGone(f"the log {self._schema!r} in {self._dsn!r} is gone: somebody has removed its schema")
        if code in _FULL:
            told += ". Make room on the server, and start the pipeline again: nothing is lost"
        elif code == _NOT_ALLOWED:
            told += ". The role needs CREATE and USAGE on the schema of the log, and to own its tables"
        return LogError(self._dsn.hides(f"the log in {self._dsn!r} can't be used: {told}"))

    def _wait(self, error: Error, began: float, wait: float, patience: float) -> None:
        waited = time.monotonic() - began
        if waited >= patience:
            raise self.explained(error) from None
        if not self._away and waited > 1 and error.sqlstate != _TOO_MANY:
            self._away = True
            logger.warning("the log's server is away (%s): waiting for it", self.explained(error))
        if self._closed.wait(wait * (0.5 + random.random())):
            raise Closed("the log was closed while its server was away") from None

    def _said_back(self, began: float) -> None:
        if self._away:
            self._away = False
            logger.warning("the log's server is back after %.0f s: going on", time.monotonic() - began)

    def _take(self) -> Connection[Any]:
        if self._pid != os.getpid():
            raise LogError("a log can't be used across a fork: open it in the process that uses it")
        with self._lock:
            if self._closed.is_set():
                raise Closed("the log is closed")
            if self._free:
                return self._free.pop()[1]
        return self.connect()

    def connect(self) -> Connection[Any]:
        """A connection that is the caller's own."""
        from psycopg.types.string import TextBinaryLoader, TextLoader

        connection = self._dsn.connect_for({} if self._pooled else self._settings)
        self._let_in = True
        connection.prepare_threshold = None if self._pooled else 1
        for loader in (TextLoader, TextBinaryLoader):  # the columns read JSON themselves, by their own types
            connection.adapters.register_loader("json", loader)
        return connection

    def _give_back(self, connection: Connection[Any]) -> None:
        with self._lock:
            kept = not self._closed.is_set() and not self.crowded()
            if kept:
                self._free.append((time.monotonic(), connection))
                self._look_again()
        if not kept:
            connection.close()

    def _look_again(self) -> None:
        """Not only when the next connection is given back: that may never be. Under the lock."""
        if self._timer is None:
            self._timer = threading.Timer(self._idle, self._end_idle)
            self._timer.daemon = True
            self._timer.start()

    def _end_idle(self) -> None:
        since = time.monotonic() - self._idle
        with self._lock:
            old = [known for at, known in self._free if at <= since]
            self._free = [known for known in self._free if known[0] > since]
            self._timer = None
            if self._free:
                self._look_again()
        for known in old:
            known.close()

    def rest(self) -> None:
        """No run uses them any more: closes those that are free, and later ones soon after they were used."""
        self._idle = RESTING
        for connection in self._let_go():
            connection.close()

    def _let_go(self) -> list[Connection[Any]]:
        with self._lock:
            free, self._free = self._free, []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return [connection for _, connection in free]

    @staticmethod
    def _drop(connection: Connection[Any] | None) -> None:
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Nobody waits for the server any more."""
        self._closed.set()
        free = self._let_go()
        if self._pid == os.getpid():
            for connection in free:
                connection.close()


def _begin(local: str, tables: Sequence[str], connection: Connection[Any]) -> Connection[Any]:
    with piped(connection):
        connection.execute("begin isolation level repeatable read read only")
        # These are no queries: the snapshot is taken after them.
        for statement in local.split("; ") if local else ():
            connection.execute(statement.encode())
        connection.execute(f"lock table {', '.join(tables)} in access share mode".encode())
    return connection
