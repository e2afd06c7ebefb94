"""How a source waits for new rows: until it is woken by NOTIFY, and until it is time to look in any case.

LISTEN needs a session, so it has a connection of its own. A notification is a hint: if it is lost, or the connection
is, rows are found by the next look. Notifications that come while nobody waits are not lost: the next wait ends at
once.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from logline.connectors.postgres_table import LONGEST_NAME
from logline.connectors.sql_table import quoted
from logline.errors import OptionError
from logline.graph.durations import duration
from logline.graph.operator import Duration
from logline.store.postgres.dsn import Dsn, explained

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection

logger = logging.getLogger("logline.postgres")

_FALLBACK = timedelta(seconds=10)
"""Between two looks, where rows are notified of."""
_TIMEOUT = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Following:
    """When to look for new rows."""

    every: timedelta
    channel: str | None

    @classmethod
    def of(cls, poll: Duration | None, listen: str | None) -> Following | None:
        """None if it is not to follow."""
        if listen is not None and not 1 <= len(listen.encode()) <= LONGEST_NAME:
            raise OptionError(f"postgres(): listen={listen!r}: name the channel that NOTIFY names")
        if poll is None:
            return None if listen is None else cls(_FALLBACK, listen)
        every = duration(poll)
        if every < timedelta(milliseconds=1):
            raise OptionError(f"postgres(): poll={poll!r}: a millisecond at least, for example '1s'")
        return cls(every, listen)


@dataclass
class Bell:
    """Waits on behalf of one read."""

    following: Following | None
    dsn: Dsn
    named: str
    _db: Connection[Any] | None = field(default=None, init=False)
    _due: float = field(default=0.0, init=False)

    def arm(self) -> None:
        """Called before each look: what is notified of from now on ends the next wait."""
        if self.following is None:
            return
        self._due = time.monotonic() + self.following.every.total_seconds()
        if self.following.channel is not None and self._db is None:
            self._listen(self.following.channel)

    def _listen(self, channel: str) -> None:
        import psycopg

        try:
            self._db = self.dsn.connect(_TIMEOUT)
            self._db.execute(f"listen {quoted(channel)}".encode())
        except psycopg.Error as error:
            self._lost(error)

    def wait(self, longest: float) -> bool:
        """For so many seconds at most; whether it is time to look."""
        import psycopg

        seconds = min(self._due - time.monotonic(), longest)
        if seconds <= 0:
            return self._due <= time.monotonic()
        if self._db is None:
            time.sleep(seconds)
            return self._due <= time.monotonic()
        try:
            woken = bool(list(self._db.notifies(timeout=seconds, stop_after=1)))
        except psycopg.Error as error:
            self._lost(error)
            return True
        return woken or self._due <= time.monotonic()

    def _lost(self, error: psycopg.Error) -> None:
        told = explained(error, self.named, self.dsn, {})
        logger.warning("%s; it looks for new rows as poll= says, and listens again", told)
        self.close()

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()
