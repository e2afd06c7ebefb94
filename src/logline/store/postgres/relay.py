"""Bells of a log in PostgreSQL. Within a host they are datagrams; between hosts one process of each host relays them.

NOTIFY inside a commit would make all commits of the database wait for each other. So a commit never notifies.
Whoever rings sends a datagram, which is all there is to it on one host. If other hosts use the log too, the datagram
also goes to this host's relay. The relay gathers what is rung within some milliseconds and sends one NOTIFY for all
of it, in a transaction of its own that waits for no disk. The relays of the other hosts hear it and ring their bells.

The relay is a thread in one of the host's processes, whichever holds the lock; if that one dies, another takes over.
It needs a session of its own on the server, so it goes past a pooler.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logline.errors import LogError
from logline.names import BellName, BoxName, LogId
from logline.store.bells import Bells, BellSocket, clear
from logline.store.descriptors import disown, own
from logline.store.postgres.connections import Connections
from logline.store.postgres.dsn import piped
from logline.store.postgres.host import MeetingPlace, host_id

if TYPE_CHECKING:
    from psycopg import Connection

logger = logging.getLogger("logline")

TOGETHER = 0.01
"""Seconds within which rings share a NOTIFY. The first one after a pause goes at once."""
BEAT = 5.0
"""Seconds between two looks at which hosts there are."""
GONE = 3 * BEAT
CONNECTING = 2.0
"""Seconds that the end of a relay waits for a server that it may be connecting to."""
TRY = 2.0
"""Seconds between two tries to become the host's relay."""
MOST = 7000
"""Bytes of a NOTIFY."""
CROWDED = 0.7
"""The share of the server's connections from which on they are scarce."""
_RELAY = BoxName("@relay")


class HostBells:
    """The bells of one log, as a process of this host hears and rings them."""

    def __init__(self, log_id: LogId, direct: Connections) -> None:
        self._place = MeetingPlace(log_id)
        self._folder = self._place.folder
        self._bells = Bells(self._folder / "bells")
        self._direct = direct
        self._channel = f"logline_{log_id}"
        self._others = self._folder / "others"
        """There while other hosts use the log."""
        self._crowded = self._folder / "crowded"
        """There while the server is short of connections."""
        self._relay: _Relay | None = None
        """There while somebody in this process listens."""
        self._listeners = 0
        self._lock = threading.Lock()

    def ring(self, whom: BellName) -> None:
        """Rings on this host, and has it relayed if there are others."""
        self._bells.ring(whom)
        if self._relay is None and not self._bells.hangs(_RELAY):
            self._notify_by_hand(whom)
        elif self._others.exists():
            self._bells.send(_RELAY, whom.encode())

    def crowded(self) -> bool:
        """Whether the server is short of connections, as this host's relay sees it."""
        return self._crowded.exists()

    def listen(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls `heard` on a thread of its own when the bell rings; returns a function that ends this."""
        self._begin()
        unlisten = self._bells.listen(whom, heard)

        def stop() -> None:
            unlisten()
            self._end()

        return stop

    def bell(self, whom: BellName) -> BellSocket:
        """A bell for a loop that waits for it without a thread."""
        self._begin()
        return self._bells.bell(whom, self._end)

    def clear(self) -> None:
        """Removes the bells of processes of this host that were killed."""
        clear(self._folder / "bells")

    def _begin(self) -> None:
        with self._lock:
            self._listeners += 1
            if self._relay is None:
                self._relay = _Relay(self._folder, self._bells, self._direct, self._channel)

    def _end(self) -> None:
        with self._lock:
            self._listeners -= 1
            if self._listeners <= 0:
                self._stop()

    def _stop(self) -> None:
        if self._relay is not None:
            self._relay.stop()
            self._relay = None

    def _notify_by_hand(self, whom: BellName) -> None:
        """Nobody on this host runs the pipeline: a command from elsewhere."""
        with contextlib.suppress(LogError):  # a hint
            self._direct.run(
                lambda c: c.execute("select pg_notify(%s, %s)", (self._channel, f"{host_id()}\n{whom}")), patience=0
            )

    def close(self) -> None:
        """Ends all listening, and gives the place on this host back."""
        with self._lock:
            self._stop()
        self._bells.close()
        self._place.leave()


class _Relay:
    """The thread that is this host's relay, or waits to be."""

    def __init__(self, folder: Path, bells: Bells, direct: Connections, channel: str) -> None:
        self._folder = folder
        self._bells = bells
        self._direct = direct
        self._channel = channel
        self._over = threading.Event()
        self._wake = own(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        self._last = 0.0
        self._thread = threading.Thread(target=self._run, name="logline-relay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Another process of this host may be the relay from now on."""
        os.eventfd_write(self._wake, 1)  # before: the thread closes it once it knows
        self._over.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(CONNECTING)

    def _run(self) -> None:
        lock = own(os.open(self._folder / "relay.lock", os.O_RDWR | os.O_CREAT, 0o600))
        try:
            while not self._over.is_set():
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    self._over.wait(TRY)
                    continue
                self._relay()
        finally:
            for file in (lock, self._wake):
                disown(file)
                os.close(file)

    def _relay(self) -> None:
        """Until it is told to stop; a server that is away is waited for."""
        import psycopg

        wait = 0.1
        with contextlib.closing(self._bells.bell(_RELAY)) as rung:
            while not self._over.is_set():
                try:
                    with self._direct.connect() as connection:
                        connection.execute("set synchronous_commit = off")
                        connection.execute(f'listen "{self._channel}"'.encode())
                        wait = 0.1
                        self._serve(connection, rung)
                except psycopg.Error:
                    self._over.wait(wait)
                    wait = min(wait * 2, 2.0)
                except LogError:
                    self._over.wait(2.0)
        self._flag("others", on=False)
        self._flag("crowded", on=False)

    def _serve(self, connection: Connection[Any], rung: BellSocket) -> None:
        beat, waiting = 0.0, set[str]()
        with select.epoll() as poll:
            for file in (connection.fileno(), rung.fileno(), self._wake):
                poll.register(file, select.EPOLLIN)
            while not self._over.is_set():
                now = time.monotonic()
                if now >= beat:
                    beat = now + BEAT
                    self._look_around(connection)
                    if not rung.hangs():
                        return  # another relay hung up its own: the folder was removed, say
                if waiting and now >= self._last + TOGETHER:
                    self._notify(connection, waiting)
                    waiting.clear()
                until = min(beat, self._last + TOGETHER) if waiting else beat
                poll.poll(max(until - time.monotonic(), 0))
                waiting.update(name.decode() for name in rung.messages())
                for heard in connection.notifies(timeout=0):
                    self._hear(heard.payload)

    def _look_around(self, connection: Connection[Any]) -> None:
        """Says that this host is here, and notes whether others are."""
        with piped(connection):
            connection.execute(
                "insert into hosts values (%s, now()) on conflict (host) do update set seen = excluded.seen",
                (host_id(),),
            )
            found = connection.execute(
                "select exists (select from hosts where host <> %s and seen > now() - make_interval(secs => %s))",
                (host_id(), GONE),
            )
            taken = connection.execute(
                "select count(*) > current_setting('max_connections')::int * %s from pg_stat_activity "
                "where backend_type = 'client backend'",
                (CROWDED,),
            )
            others, crowded = found.fetchone(), taken.fetchone()
        self._flag("others", on=others is not None and others[0])
        self._flag("crowded", on=crowded is not None and crowded[0])

    def _flag(self, name: str, *, on: bool) -> None:
        """A file that processes of this host look for: that costs them no round trip."""
        if on:
            (self._folder / name).touch(mode=0o600)
        else:
            (self._folder / name).unlink(missing_ok=True)

    def _notify(self, connection: Connection[Any], names: set[str]) -> None:
        self._last = time.monotonic()
        rest = sorted(names)
        while rest:
            text = host_id()
            while rest and len(text) + len(rest[-1]) < MOST:
                text += f"\n{rest.pop()}"
            connection.execute("select pg_notify(%s, %s)", (self._channel, text))

    def _hear(self, payload: str) -> None:
        host, *names = payload.split("\n")
        if host != host_id():
            for name in names:
                self._bells.ring(BoxName(name))
