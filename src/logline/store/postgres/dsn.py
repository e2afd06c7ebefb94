"""Connections to PostgreSQL, for a log and for connectors: the DSN, which may hold a password, and what to make of
the server's errors.

A connection holds no state of a session: settings are made for a transaction, and nothing is prepared. So it may go
through a pooler that gives each transaction to another server process.

>>> Dsn("postgresql://ada:hunter2@db.example/shop")
'postgresql://ada@db.example/shop'
>>> Dsn(Secret("PG"))
env('PG')
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from logline.errors import ConnectorError, OptionError, PermanentError, a_kind
from logline.graph.secrets import Secret

if TYPE_CHECKING:
    from psycopg import Connection, Error

_DEFAULTS: dict[str, Any] = {
    "application_name": "logline",
    "connect_timeout": 10,
    # A server whose machine is gone says nothing. Without these a write would wait for hours.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""Settings of libpq that a DSN may have otherwise."""
_PASSING = ("08", "40", "53", "57", "58")
"""Classes of SQLSTATE that are over by themselves: connection, serialization, resources, shutdown, system."""
_PASSING_CODES = ("25006", "25P03", "25P04", "55006", "55P03", "XX000")
"""The same, code by code: a server that only reads (while another one takes over), timeouts, locks."""
_REFUSAL = re.compile(
    r'FATAL:\s+(database|role) ".*" does not exist|FATAL:\s+password authentication failed|'
    r"FATAL:\s+no pg_hba\.conf entry|fe_sendauth: no password supplied"
)
_HINTS = {
    "21000": "keys that differ in the rows are the same in the table: give its columns the types of the rows",
    "22001": "make the column wider, or shorten the values before the sink",
    "22003": "make the column larger, or filter such rows out before the sink",
    "22P05": "PostgreSQL can't hold this character: remove it before the sink",
    "28P01": "check user and password",
    "3F000": "create the schema",
    "42501": "the role needs INSERT on the table (for an upsert also SELECT and UPDATE), all three on "
    "_logline_positions, and CREATE on the schema where these are to be made",
    "53100": "make room, and start the pipeline again on the same log: nothing is lost",
    "55P03": "another transaction holds a lock on the table; end it, or raise lock_timeout=",
    "57014": "it took longer than statement_timeout=: raise it, or write smaller events",
}


class Dsn:
    """Where a database is: a text that libpq understands, or a reference to one."""

    def __init__(self, given: str | Secret) -> None:
        asked: object = given
        if not isinstance(asked, str | Secret):
            raise OptionError(f"postgres(): the DSN is {a_kind(asked)}: give a text, or ll.env('NAME')")
        self.given = given
        if isinstance(given, str):
            self.settings()

    def settings(self) -> dict[str, Any]:
        """The settings that it has. Its errors repeat nothing of it: what can't be read may be a password."""
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        text = self.given if isinstance(self.given, str) else self.given.resolve()
        try:
            found = conninfo_to_dict(text)
        except ProgrammingError:
            found = {}
        # An unescaped character ends the password before its end, and the rest is taken for something else.
        torn = "@" in f"{found.get('host')}{found.get('dbname')}" or not _is_port(str(found.get("port") or ""))
        if not found or torn:
            name = "the DSN" if isinstance(self.given, str) else repr(self.given)
            raise OptionError(
                f"postgres(): {name} can't be read: write it as 'postgresql://user:password@host:5432/database' or "
                "'host=... dbname=...'. In the first form, characters such as @ / : % in a password are written as "
                "%40 %2F %3A %25"
            )
        return found

    def connect(self, timeout: timedelta) -> Connection[Any]:
        """A connection on which every transaction is begun and ended by hand."""
        import psycopg

        settings = _DEFAULTS | self.settings()
        settings.setdefault("tcp_user_timeout", max(int(timeout.total_seconds() * 1000), 1000))
        return psycopg.connect(autocommit=True, prepare_threshold=None, **settings | {"client_encoding": "utf8"})

    def connect_for(self, options: dict[str, str]) -> Connection[Any]:
        """The same with settings of the session, beside those that the DSN has."""
        import psycopg

        known = self.settings()
        said = " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in options.items())
        settings = _DEFAULTS | known
        if said:  # a pooler may not know the parameter at all
            settings["options"] = f"{known.get('options') or ''} {said}".strip()
        settings.setdefault("tcp_user_timeout", 15_000)
        return psycopg.connect(autocommit=True, prepare_threshold=None, **settings | {"client_encoding": "utf8"})

    def hides(self, text: str) -> str:
        """The text without passwords that the DSN has."""
        found = self.settings()
        for name in ("password", "sslpassword"):
            for secret in {found.get(name), quote(str(found.get(name) or ""), safe="")}:
                text = text.replace(secret, "***") if secret else text
        return text

    def parts(self) -> tuple[str, str, str, str]:
        """User, host, port and database, as far as it names them."""
        found = self.settings()
        user, host, port, database = (str(found.get(name) or "") for name in ("user", "host", "port", "dbname"))
        return user, host, port, database

    def __repr__(self) -> str:
        if isinstance(self.given, Secret):
            return repr(self.given)
        user, host, port, database = self.parts()
        at = f"{user}@" if user else ""
        return repr(f"postgresql://{at}{host}{f':{port}' if port else ''}/{database}")


@contextmanager
def piped(connection: Connection[Any]) -> Iterator[None]:
    """Statements in one round trip. psycopg's own `pipeline()` warns of a second error if the connection is lost in
    the middle: that the server was restarted is said elsewhere, once."""
    import psycopg

    with ExitStack() as stack:
        stack.enter_context(connection.pipeline())
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):
                stack.close()  # as if nothing had happened in it
            raise


def _is_port(text: str) -> bool:
    return all(not part or part.isdecimal() for part in text.split(","))


def explained(error: Error, named: str, dsn: Dsn, hints: Mapping[str, str] = _HINTS) -> ConnectorError:
    """An error of psycopg as one that says what to do, and whether another try may help. It has no password, also
    not in a cause: raise it from None. `hints`: what to do by SQLSTATE, for those who do not write to a table."""
    code = error.sqlstate
    told = [error.diag.message_primary or str(error).strip(), error.diag.message_detail, error.diag.context]
    text = f"{named}: " + "; ".join(
        part.strip().replace("\n", ", ") for part in (*told, hints.get(code or "")) if part
    )
    return (ConnectorError if passes(error) else PermanentError)(dsn.hides(text))


def passes(error: Error) -> bool:
    """Whether it may be over by itself: another try can help."""
    import psycopg

    if error.sqlstate is None:  # the server did not say it: there is no connection, or no longer
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_PASSING) or error.sqlstate in _PASSING_CODES


def refuses(error: Error) -> bool:
    """Whether a server answers, and does not let this user in. libpq gives no SQLSTATE of a connection that was not
    made. A server that speaks another language than English is waited for."""
    return error.sqlstate is None and _REFUSAL.search(str(error)) is not None


def check_installed(what: str = "postgres()") -> None:
    """Raises if the extra is not installed that this needs."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise OptionError(
            f"{what} needs psycopg, which can't be imported ({error}): install it with pip install "
            "'logline[postgres]', here and where the operators run"
        ) from error
