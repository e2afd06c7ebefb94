"""A log on several PostgreSQL servers: its journals are spread over them, so that commits share no disk.

    postgresql://db1.example/shop?log=sales postgresql://db2.example/shop?log=sales

Which server has a journal follows from its instance's name. A commit touches one journal, so it is atomic on one
server (R1). What belongs to the log as a whole is on the first server: lease, mail, statuses, the record of the
pipeline. The servers, their number and their order are part of the log. A view for people shows what is on its own
server; the command line and `Log` know all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from logline.errors import LogError
from logline.names import BellName, InstanceName
from logline.store.bells import BellSocket
from logline.store.marks import Mark
from logline.store.postgres.address import PgAddress
from logline.store.postgres.journal import PgJournal
from logline.store.postgres.lease import PgLease
from logline.store.postgres.reader import PgReader
from logline.store.postgres.store import PgCrashHint, PgMailbox, PgStore
from logline.store.rows import Row
from logline.store.seam import Compacted, Holder, Lying, Meta, Worth


def server_of(instance: InstanceName, servers: int) -> int:
    """Which server has the journal of an instance, counted from 0; the same in every process and version.

    >>> [server_of(InstanceName(name), 2) for name in ("orders", "hourly", "store")]
    [1, 1, 0]
    """
    return int.from_bytes(blake2b(instance.encode(), digest_size=8).digest()) % servers


class SpreadStore:
    """All journals of one pipeline, on several servers."""

    def __init__(self, addresses: Sequence[PgAddress], *, create: bool = True) -> None:
        self._parts: list[PgStore] = []
        try:
            for at, address in enumerate(addresses):
                first = self._parts[0] if self._parts else None
                # A log that has been used has all its parts: what is missing is elsewhere.
                may_make = create and (first is None or first.meta() is None)
                known = None if first is None else first.log_id
                place = at + 1, len(addresses)
                self._parts.append(PgStore(address, create=may_make, place=place, part_of=known))
        except BaseException:
            self.close()
            raise
        self._first = self._parts[0]
        if len({part.address for part in self._parts}) < len(self._parts):
            self.close()
            raise LogError("the address names a server twice: each one has a part of the log's journals")
        self.address, self.log_id = self._first.address, self._first.log_id
        self.traits, self.fresh = self._first.traits, self._first.fresh
        for part in self._parts:
            part.read_any = self.read

    def _of(self, instance: InstanceName) -> PgStore:
        return self._parts[server_of(instance, len(self._parts))]

    def claim(self, instance: InstanceName) -> PgJournal:
        """Fences older lives (R10)."""
        return self._of(instance).claim(instance)

    def read(self, instance: InstanceName) -> PgReader:
        """A reader of the instance's journal, wherever that is."""
        return self._of(instance).read(instance)

    def instances(self) -> list[InstanceName]:
        """The instances that have a journal."""
        return sorted(instance for part in self._parts for instance in part.instances())

    def compact(self, worth: Worth) -> Sequence[tuple[InstanceName, Compacted]]:
        """Nothing: segments give their room back when they are emptied."""
        return ()

    # ---- on the first server ----------------------------------------------------------------------------------

    def ring(self, whom: BellName) -> None:
        """Rings the bell, if somebody listens; a ring may be lost."""
        self._first.ring(whom)

    def on_bell(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls `heard` on a thread of its own when the bell rings; returns a function that ends this."""
        return self._first.on_bell(whom, heard)

    def bell(self, instance: InstanceName) -> BellSocket:
        """A bell for a loop that waits for it without a thread."""
        return self._first.bell(instance)

    def mail(self, box: str) -> PgMailbox:
        """The box of that name."""
        return self._first.mail(box)

    def crash_hint(self, instance: InstanceName) -> PgCrashHint:
        """The crash hint of that instance."""
        return self._first.crash_hint(instance)

    def lease(self, run: str, *, takeover: bool = False) -> PgLease:
        """Takes the lease; raises LogInUse if another run holds it and there is no `takeover`."""
        return self._first.lease(run, takeover=takeover)

    def running(self) -> Holder | None:
        """The run that holds the lease, if its process lives."""
        return self._first.running()

    def meta(self) -> Meta | None:
        """The pipeline this log belongs to."""
        return self._first.meta()

    def set_meta(self, meta: Meta) -> None:
        """Keeps what the log knows of the pipeline, on every server: the views there show its names."""
        for part in reversed(self._parts):  # the first one counts, and is the last to change
            part.set_meta(meta)

    def mark(self) -> Mark | None:
        """What the log is besides itself."""
        return self._first.mark()

    def set_mark(self, mark: Mark | None) -> None:
        """Replaces it."""
        self._first.set_mark(mark)

    def restore(self, instance: InstanceName, rows: Iterable[Row], events: Iterable[Lying]) -> None:
        """Writes a whole journal, on the server that has it."""
        self._of(instance).restore(instance, rows, events)

    def put_status(self, name: str, status: bytes) -> None:
        """Keeps the newest status of that name; waits for no disk."""
        self._first.put_status(name, status)

    def statuses(self) -> Mapping[str, bytes]:
        """The newest status of each name."""
        return self._first.statuses()

    def close(self) -> None:
        """Closes all connections."""
        for part in self._parts:
            part.close()
