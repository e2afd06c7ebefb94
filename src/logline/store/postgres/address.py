"""The address of a log in PostgreSQL: a libpq URI, with a few words of Logline's own.

    postgresql://ada@db.example/shop?log=sales                  the log `sales` in the database `shop`
    ...&direct=db.example:5432                                  past the pooler that the rest goes through

>>> address = parse_address("postgresql://ada:hunter2@db.example/shop?sslmode=require&log=sales")
>>> address.log, address
('sales', 'postgresql://ada@db.example/shop?log=sales')
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from logline.errors import LogError, OptionError
from logline.store.postgres.dsn import Dsn
from logline.store.postgres.schema import check_log_name

DEFAULT = "logline"
"""The name of a log whose address has none."""


class PgAddress(NamedTuple):
    """Where a log is."""

    dsn: Dsn
    log: str
    direct: Dsn
    """The same database, past a pooler."""
    pooled: bool
    """Whether a pooler stands before it."""

    def __repr__(self) -> str:
        return f"'{str(self.dsn)[1:-1]}?log={self.log}'"


def parse_address(url: str) -> PgAddress:
    """Takes an address apart. Its errors repeat nothing of it: it may hold a password."""
    try:
        parts = urlsplit(url)
        own, rest = {}, []
        for name, value in parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)):
            if name in ("log", "direct"):
                own[name] = value
            else:
                rest.append((name, value))
        direct = own.get("direct")
        at, _, _ = parts.netloc.rpartition("@")
        dsn = beyond = Dsn(urlunsplit(parts._replace(query=urlencode(rest))))
        if direct:
            where = quote(direct, safe=":[],")  # it may be the folder of a socket
            netloc = f"{at}@{where}" if at else where
            there = [(name, value) for name, value in rest if name not in ("host", "hostaddr", "port")]
            beyond = Dsn(urlunsplit(parts._replace(netloc=netloc, query=urlencode(there))))
    except (ValueError, OptionError):
        raise LogError(
            "the address of the log can't be read: write it as postgresql://user:password@host:5432/database?log=sales"
            ". Characters such as @ / : % in a password are written as %40 %2F %3A %25"
        ) from None
    return PgAddress(dsn, check_log_name(own.get("log") or DEFAULT), beyond, direct is not None)
