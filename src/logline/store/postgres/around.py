"""What a log in PostgreSQL has besides its journals: bells, mail, crash hints, the lease, the record of the pipeline,
statuses. A log that is spread over several servers has all of it on the first one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from logline.graph.record import from_plain
from logline.names import BellName, BoxName, InstanceName, LogId
from logline.store.bells import BellSocket
from logline.store.channels import HandOver
from logline.store.marks import Mark, check_may_run
from logline.store.postgres import lease as leases
from logline.store.postgres.address import PgAddress
from logline.store.postgres.columns import escape, unescape
from logline.store.postgres.connections import Connections
from logline.store.postgres.dsn import piped
from logline.store.postgres.graph import write_graph
from logline.store.postgres.lease import PgLease
from logline.store.postgres.relay import HostBells
from logline.store.postgres.restore import read_mark, write_mark
from logline.store.seam import Compacted, Holder, Meta, StoreTraits, Worth, check_line

if TYPE_CHECKING:
    from psycopg import Connection


class PgMailbox:
    """Messages as rows. Senders to one box take turns, so that a number is seen before the next one."""

    def __init__(self, connections: Connections, box: str, ring: Callable[[], None]) -> None:
        self._connections = connections
        self._box = box
        self._ring = ring
        self._seen = 0

    def send(self, message: bytes) -> None:
        """Inserts the message and rings the bell."""
        check_line(message)

        def work(connection: Connection[Any]) -> None:
            with piped(connection):
                connection.execute(
                    "select pg_advisory_xact_lock('mail'::regclass::oid::int, hashtext(%s))", (self._box,)
                )
                connection.execute("insert into mail (box, message) values (%s, %s)", (self._box, message))

        self._connections.run(work)
        self._ring()

    def receive(self) -> list[bytes]:
        """Returns what this object has not seen."""
        query = "select number, message from mail where box = %s and number > %s order by number"
        rows = self._connections.run(lambda c: c.execute(query, (self._box, self._seen), binary=True).fetchall())
        if rows:
            self._seen = rows[-1][0]
        return [bytes(message) for _, message in rows]

    def drop(self) -> None:
        """Deletes the messages; numbers go on."""
        self._connections.quickly("delete from mail where box = %s", (self._box,))


class PgCrashHint:
    """A row that is written in place, without waiting for the disk."""

    def __init__(self, connections: Connections, instance: InstanceName) -> None:
        self._connections = connections
        self._instance = instance

    def write(self, text: str) -> None:
        """Replaces what was there."""
        query = "insert into hints values (%s, %s) on conflict (instance) do update set hint = excluded.hint"
        self._connections.quickly(query, (self._instance, escape(text)))

    def read(self) -> str:
        """The text that was written last; empty if there is none."""
        query = "select hint from hints where instance = %s"
        found = self._connections.run(lambda c: c.execute(query, (self._instance,)).fetchone())
        return "" if found is None else unescape(found[0])

    def drop(self) -> None:
        """Removes the hint, if there is one."""
        self._connections.quickly("delete from hints where instance = %s", (self._instance,))

    def close(self) -> None:
        """Does nothing: a hint holds no connection."""


class PgLog:
    """A log without its journals."""

    def __init__(
        self, address: PgAddress, log_id: LogId, commits: Connections, direct: Connections, bells: HostBells
    ) -> None:
        """`direct`: past a pooler, for what belongs to a session."""
        self.address = address
        self.log_id = log_id
        self.traits = StoreTraits("hosts", frozenset({"claim", "commit", "read"}))
        self.fresh = HandOver()
        self._commits = commits
        self._direct = direct
        self._bells = bells
        self._leases: list[PgLease] = []

    def shared(self) -> tuple[PgAddress, LogId, Connections, Connections, HostBells]:
        """What another object needs to be this log too, but for its journals."""
        return self.address, self.log_id, self._commits, self._direct, self._bells

    def compact(self, worth: Worth) -> Sequence[tuple[InstanceName, Compacted]]:
        """Nothing: segments give their room back when they are emptied."""
        return ()

    def ring(self, whom: BellName) -> None:
        """Rings the bell, if somebody listens; a ring may be lost."""
        self._bells.ring(whom)

    def on_bell(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls `heard` on a thread of its own when the bell rings; returns a function that ends this."""
        return self._bells.listen(whom, heard)

    def bell(self, instance: InstanceName) -> BellSocket:
        """A bell for a loop that waits for it without a thread."""
        return self._bells.bell(instance)

    def mail(self, box: str) -> PgMailbox:
        """The box of that name."""
        return PgMailbox(self._commits, box, lambda: self.ring(BoxName(box)))

    def crash_hint(self, instance: InstanceName) -> PgCrashHint:
        """The crash hint of that instance."""
        return PgCrashHint(self._commits, instance)

    def lease(self, run: str, *, takeover: bool = False) -> PgLease:
        """Takes the lease; raises LogInUse if another run holds it and there is no `takeover`."""
        check_may_run(self.mark())
        taken = PgLease(
            self._direct,
            run,
            takeover=takeover,
            log=repr(self.address),
            clear=self._bells.clear,
            released=self._rest,
        )
        for old in self._leases:
            old.lose()
        self._leases = [taken]
        return taken

    def _rest(self) -> None:
        """The run is over. Its log can still be read, but whoever holds it may never do so."""
        self._commits.rest()
        self._direct.rest()

    def running(self) -> Holder | None:
        """The run that holds the lease, if its process lives."""
        return leases.holder(self._commits)

    def meta(self) -> Meta | None:
        """The pipeline this log belongs to."""
        found = self._commits.run(lambda c: c.execute("select pipeline, graph from about").fetchone())
        if found is None or found[0] is None:
            return None
        return Meta(unescape(found[0]), from_plain(msgspec.json.decode(found[1])))

    def set_meta(self, meta: Meta) -> None:
        """Keeps what the log knows of the pipeline, for the next run."""
        self._commits.run(lambda connection: write_graph(connection, meta))

    def mark(self) -> Mark | None:
        """What the log is besides itself."""
        return self._commits.run(read_mark)

    def set_mark(self, mark: Mark | None) -> None:
        """Replaces what the log is besides itself; None takes it away."""
        self._commits.run(partial(write_mark, mark=mark))

    def put_status(self, name: str, status: bytes) -> None:
        """Keeps the newest status of that name; waits for no disk."""
        query = (
            "insert into statuses (name, status) values (%s, %s) "
            "on conflict (name) do update set status = excluded.status, at = now()"
        )
        self._commits.quickly(query, (name, status))

    def statuses(self) -> Mapping[str, bytes]:
        """The newest status of each name."""
        rows = self._commits.run(lambda c: c.execute("select name, status from statuses", binary=True).fetchall())
        return {name: bytes(status) for name, status in rows}
