"""The right to run the pipeline of a log in PostgreSQL: a row that names the run, and says until when.

The holder renews it every second. A holder whose process died lets go at once: its session on the server held a lock,
which ends with the session. A holder whose host vanished is waited for until the lease has expired. One that can't
reach the server for longer than that goes on as the holder when it is back, unless another run has taken the lease.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from logline.errors import LogError, LogGone, LogInUse
from logline.store.postgres.connections import Connections
from logline.store.postgres.host import host_id
from logline.store.seam import Holder

if TYPE_CHECKING:
    from psycopg import Connection

logger = logging.getLogger("logline")

EXPIRES = 15
"""Seconds after which a lease that is not renewed is free."""
RENEW = 1.0
_ALIVE = """
select run, pid, host, expires > now() and (
    exists (select from pg_locks where locktype = 'advisory' and granted and objsubid = 1
            and database = (select oid from pg_database where datname = current_database())
            and (classid::bigint << 32) | objid::bigint = key)
    or renewed < pg_postmaster_start_time())    -- the server was restarted: its holder may not be back yet
from lease
"""


class Known(NamedTuple):
    """What the log knows of the lease."""

    run: str
    pid: int
    host: str
    alive: bool


def known(connection: Connection[Any]) -> Known | None:
    """Who has the lease, or had it last."""
    found = connection.execute(_ALIVE).fetchone()
    return None if found is None else Known(*found)


def holder(connections: Connections) -> Holder | None:
    """Who runs the pipeline now."""
    found = connections.run(known)
    return Holder(found.run, found.pid) if found is not None and found.alive else None


class PgLease:
    """A lease, with the thread that renews it."""

    def __init__(
        self,
        direct: Connections,
        run: str,
        *,
        takeover: bool,
        log: str,
        clear: Callable[[], None],
        released: Callable[[], None],
    ) -> None:
        """`clear` removes what killed processes have left on this host, when the lease is taken and given up;
        `released` is called after that."""
        self.run = run
        self._clear = clear
        self._released = released
        self._direct = direct
        self._key = secrets.randbits(62)
        self._held = True
        self._error: LogError | None = None
        self._over = threading.Event()
        self._pid = os.getpid()
        self._connection = direct.own(partial(self._take, takeover, log))
        clear()
        self._thread = threading.Thread(target=self._renew_on, name="logline-lease", daemon=True)
        self._thread.start()

    def _take(self, takeover: bool, log: str, connection: Connection[Any]) -> None:
        with connection.transaction():
            connection.execute("set local lock_timeout = 10000")
            connection.execute("lock table lease in share row exclusive mode")
            found = known(connection)
            if found is not None and found.alive and not takeover:
                raise LogInUse(f"the log {log} is in use by run {found.run} (process {found.pid} on {found.host})")
            connection.execute("select pg_advisory_lock(%s)", (self._key,))
            connection.execute("delete from lease")
            connection.execute(
                "insert into lease (run, pid, host, key, renewed, expires) "
                "values (%s, %s, %s, %s, now(), now() + make_interval(secs => %s))",
                (self.run, os.getpid(), host_id(), self._key, EXPIRES),
            )

    def held(self) -> bool:
        """Whether no other run has taken it. LogError if there is no such log any more."""
        if self._error is not None:
            raise self._error
        return self._held

    def lose(self) -> None:
        """Another run of this process has taken it."""
        self._held = False
        self._over.set()

    def release(self) -> None:
        """Gives the lease up, so that another run can begin."""
        if self._pid != os.getpid() or (not self._held and self._over.is_set()):
            return
        self._held = False
        self._over.set()
        self._thread.join()
        import psycopg

        try:
            self._direct.run(lambda c: c.execute("delete from lease where run = %s", (self.run,)), patience=1.0)
        except LogGone:
            pass  # and the lease with it
        except LogError as error:  # it expires
            logger.warning("the lease could not be given up: %s", error)
        finally:
            self._clear()
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._released()

    def _renew_on(self) -> None:
        import psycopg

        while not self._over.wait(RENEW):
            try:
                if not self._renew(self._connection):
                    self._held = False
                    break
            except psycopg.errors.UndefinedTable:
                self._error = LogGone("the log is gone: somebody has removed its schema while this process used it")
                break
            except psycopg.Error:
                self._connection.close()
                self._come_back()
        if not self._held:
            self._connection.close()

    def _renew(self, connection: Connection[Any]) -> bool:
        done = connection.execute(
            "update lease set renewed = now(), expires = now() + make_interval(secs => %s) "
            "where run = %s and key = %s",
            (EXPIRES, self.run, self._key),
        )
        return done.rowcount == 1

    def _come_back(self) -> None:
        """On a new session, with the lock that shows that this process lives."""
        import psycopg

        while not self._over.is_set():
            try:
                connection = self._direct.connect()
                connection.execute("select pg_try_advisory_lock(%s)", (self._key,))
                self._connection = connection
                return
            except psycopg.Error:
                self._over.wait(RENEW)
