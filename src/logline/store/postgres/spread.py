"""A log on several PostgreSQL servers: its journals are spread over them, so that commits share no disk.

    postgresql://db1.example/shop?log=sales postgresql://db2.example/shop?log=sales

Which server has a journal follows from its instance's name. A commit touches one journal, so it is atomic on one
server (R1). What belongs to the log as a whole is on the first server: lease, mail, statuses, the record of the
pipeline. The servers, their number and their order are part of the log. A view for people shows what is on its own
server; the command line and `Log` know all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b

from logline.errors import LogError
from logline.names import InstanceName, LogId
from logline.store.marks import Mark
from logline.store.postgres.address import PgAddress
from logline.store.postgres.around import PgLog
from logline.store.postgres.journal import PgJournal
from logline.store.postgres.reader import PgReader, Readers
from logline.store.postgres.store import PgStore
from logline.store.rows import Row
from logline.store.seam import Lying, Meta


def server_of(instance: InstanceName, servers: int) -> int:
    """Which server has the journal of an instance, counted from 0; the same in every process and version.

    >>> [server_of(InstanceName(name), 2) for name in ("orders", "hourly", "store")]
    [1, 1, 0]
    """
    return int.from_bytes(blake2b(instance.encode(), digest_size=8).digest()) % servers


class SpreadStore(PgLog):
    """All journals of one pipeline, on several servers."""

    def __init__(
        self,
        addresses: Sequence[PgAddress],
        *,
        create: bool = True,
        known: bool = False,
        copy_of: LogId | None = None,
    ) -> None:
        """`copy_of` and `known`: see `PgStore`."""
        if len({(address.dsn.given, address.log) for address in addresses}) < len(addresses):
            raise LogError("the address names a server twice: each one has a part of the log's journals")
        self._parts: list[PgStore] = []
        try:
            for at, address in enumerate(addresses):
                first = self._parts[0] if self._parts else None
                # A log that has been used has all its parts: what is missing is elsewhere.
                may_make = create and (first is None or first.meta() is None)
                part_of = copy_of if first is None else first.log_id
                place = at + 1, len(addresses)
                made = PgStore(address, create=may_make, place=place, part_of=part_of, copy_of=copy_of, known=known)
                self._parts.append(made)
        except BaseException:
            self.close()
            raise
        super().__init__(*self._parts[0].shared())
        readers = [part.readers for part in self._parts]
        for one in readers:
            one.any = partial(_read, readers)

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

    def set_meta(self, meta: Meta) -> None:
        """Keeps what the log knows of the pipeline, on every server: the views there show its names."""
        for part in reversed(self._parts):  # the first one counts, and is the last to change
            part.set_meta(meta)

    def set_mark(self, mark: Mark | None) -> None:
        """Replaces what the log is besides itself, on every server."""
        for part in self._parts:  # the first one counts: a copy that is whole there is whole
            part.set_mark(mark)

    def begin_copy(self, log_id: LogId, mark: Mark) -> None:
        """Empties what is left of an earlier copy of the same log. LogError if this is another one."""
        for part in self._parts:  # a copy that is not whole on the first server is not whole on any
            part.begin_copy(log_id, mark)

    def restore(self, instance: InstanceName, rows: Iterable[Row], events: Iterable[Lying]) -> None:
        """Writes a whole journal, on the server that has it."""
        self._of(instance).restore(instance, rows, events)

    def _rest(self) -> None:
        for part in self._parts:
            part._rest()

    def close(self) -> None:
        """Closes the connections to all servers."""
        for part in self._parts:
            part.close()


def _read(readers: Sequence[Readers], instance: InstanceName) -> PgReader:
    return readers[server_of(instance, len(readers))].read(instance)
