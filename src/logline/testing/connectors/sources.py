"""A source under faults (R9): does the next life read on where the log has it?

A life of a source is an object of its own that reads. What the log has of it are the batches up to some offset.

- replayable: from each offset on, any life reads the same rows, once, while others that are over read on.
- not replayable: a pass that broke off can be made again.
- destructive: a message comes again until it is confirmed, by whichever life, and not after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa

from logline.engine import codec
from logline.errors import CodecError, OptionError
from logline.graph.connector import Source, is_read_item
from logline.graph.schemas import schema as read_schema
from logline.testing.connectors.crashing import crashes, lines_of, points
from logline.testing.connectors.findings import BrokenPromise, Checked

Items = list[tuple[list[dict[str, Any]], Any]]
"""Rows of each batch, and the offset after it."""


class SourceCheck:
    """All cases of one source."""

    def __init__(self, make: Callable[[], Source], *, most: int) -> None:
        first = make()
        self.make, self.most = make, most
        self.name = type(first).__name__
        self.schema = read_schema(first.schema)
        self.kind = "destructive" if first.destructive else "replayable" if first.replayable else "not replayable"
        self.partitions = list(first.partitions())
        self.faults = 0

    def run(self) -> Checked:
        """Raises BrokenPromise at the first case that breaks one."""
        again = list(self.make().partitions())
        if again != self.partitions:
            raise self._broken("partitions keep their names", f"they were {self.partitions}, and then {again}")
        check = {
            "replayable": self._replayable,
            "not replayable": self._not_replayable,
            "destructive": self._destructive,
        }[self.kind]
        if sum(check(partition) for partition in self.partitions) < 2:
            raise OptionError(
                f"check(): {self.name} gave less than two batches, so no life can die between them: "
                "give it more to read, or have it make smaller batches"
            )
        return Checked(self.kind, self.faults)

    # ---- replayable -----------------------------------------------------------------------------------

    def _replayable(self, partition: str) -> int:
        whole = self._pass(partition, None)
        rows = [row for batch, _ in whole for row in batch]
        self._same(rows, self._pass(partition, None), f"partition {partition!r} was read again from its beginning")
        read = 0
        for n, (batch, offset) in enumerate(whole, start=1):
            read += len(batch)
            when = f"partition {partition!r} was read on after batch {n} of {len(whole)} (offset {offset!r})"
            self._same(rows[read:], self._pass(partition, offset), when)
            self._beside_a_zombie(partition, n, rows[read:], offset, when)
        self._crashes_within(partition, rows)
        return len(whole)

    def _beside_a_zombie(self, partition: str, n: int, rest: list[dict[str, Any]], offset: Any, when: str) -> None:
        """The former life is not dead, and reads on in between."""
        self.faults += 1
        zombie, heir = self.make(), self.make()
        late = self._reading(zombie, partition, None)
        for _ in range(n):
            next(late)
        got: Items = []
        for item in self._reading(heir, partition, offset):
            got.append(item)
            next(late, None)
        self._same(rest, got, f"{when}, while the former life read on")
        zombie.close()
        heir.close()

    def _crashes_within(self, partition: str, rows: list[dict[str, Any]]) -> None:
        lines = lines_of(lambda: self._pass(partition, None))
        for at in points(lines, self.most):
            got: Items = []
            dead = self.make()
            crashes(_collecting(got, self._reading(dead, partition, None)), at)
            with suppress(Exception):
                dead.close()
            done = sum(len(batch) for batch, _ in got)
            when = (
                f"a life died at line {at} of {lines} of read(), after {len(got)} batches, and the next one read on"
            )
            self._same(rows[done:], self._pass(partition, got[-1][1] if got else None), when)

    # ---- not replayable -------------------------------------------------------------------------------

    def _not_replayable(self, partition: str) -> int:
        whole = self._pass(partition, None)
        for n in range(len(whole)):
            self.faults += 1
            dead = self.make()
            reading = self._reading(dead, partition, None)
            for _ in range(n):
                next(reading, None)
            del reading
            with suppress(Exception):
                dead.close()
        if whole and not self._pass(partition, None):
            raise self._broken(
                "a pass that broke off is made again",
                f"partition {partition!r} gave {len(whole)} batches, and none after {len(whole)} passes broke off",
            )
        return len(whole)

    # ---- destructive ----------------------------------------------------------------------------------

    def _destructive(self, partition: str) -> int:
        first = self._messages(partition)
        if not first:
            return 0
        again = self._messages(partition)
        lost = [id_ for id_ in first if id_ not in again]
        if lost:
            raise self._broken(
                "a message stays until it is confirmed",
                f"{len(lost)} of {len(first)} messages of partition {partition!r} are gone after a life read them "
                f"and died, the first is {lost[0]!r}",
            )
        for id_ in first:
            if first[id_] != again[id_]:
                raise self._broken(
                    "an id is never used for another message", f"message {id_!r} came again with other rows"
                )
        left = list(first)
        while left:
            gone, *left = left
            for time in ("", " again"):
                confirmed = self._messages(partition, confirm=[gone])
                said = f"message {gone!r} was confirmed{time} by a life that had not read it"
                if gone in confirmed:
                    raise self._broken("what is confirmed is gone", f"{said}, and it came once more")
                lost = [id_ for id_ in left if id_ not in confirmed]
                if lost:
                    raise self._broken(
                        "a message stays until it is confirmed",
                        f"{said}, and then {len(lost)} of {len(left)} others are gone, the first is {lost[0]!r}",
                    )
        return len(first)

    def _messages(self, partition: str, confirm: list[Any] | None = None) -> dict[Any, list[dict[str, Any]]]:
        """What a new life reads, by id; it confirms some others before."""
        self.faults += 1
        life = self.make()
        if confirm:
            life.confirm(partition, [_logged(id_) for id_ in confirm])
        found = list(self._reading(life, partition, None))
        life.close()
        by_id: dict[Any, list[dict[str, Any]]] = {}
        for rows, id_ in found:
            if id_ in by_id and by_id[id_] != rows:
                raise self._broken("an id is never used for another message", f"{id_!r} came twice with other rows")
            by_id[id_] = rows
        return by_id

    # ---- what they have in common ---------------------------------------------------------------------

    def _pass(self, partition: str, offset: Any) -> Items:
        """All that a new life reads, up to the end or a None."""
        self.faults += 1
        life = self.make()
        found = list(self._reading(life, partition, offset))
        life.close()
        return found

    def _reading(self, life: Source, partition: str, offset: Any) -> Iterator[tuple[list[dict[str, Any]], Any]]:
        items = life.read(partition, None if offset is None else _logged(offset))
        for item in items:
            if item is None:
                return
            if not is_read_item(item):
                raise self._broken("read() yields (batch, offset) or None", f"it yielded {type(item).__name__}")
            batch, after = item
            if not isinstance(batch, pa.RecordBatch) or not batch.schema.equals(self.schema):
                found = batch.schema.to_string() if isinstance(batch, pa.RecordBatch) else type(batch).__name__
                raise self._broken(
                    "batches have the schema", f"the schema is {self.schema.to_string()!r}, and a batch has {found!r}"
                )
            if after is None and self.kind != "not replayable":
                raise self._broken("a batch comes with what to go on after", "one came with None")
            try:
                same = _logged(after) == after
            except CodecError as error:
                raise self._broken("the log can hold what comes with a batch", f"{error}") from None
            if not same:
                raise self._broken(
                    "the log can hold what comes with a batch", f"{after!r} comes back as {_logged(after)!r}"
                )
            yield batch.to_pylist(), after

    def _same(self, wanted: list[dict[str, Any]], items: Items, when: str) -> None:
        found = [row for batch, _ in items for row in batch]
        if found == wanted:
            return
        at = next(
            (n for n, (a, b) in enumerate(zip(wanted, found, strict=False)) if a != b), min(len(wanted), len(found))
        )
        one, other = (rows[at] if at < len(rows) else "nothing" for rows in (wanted, found))
        raise self._broken(
            "the next life reads the same rows, and each once",
            f"{when}: {len(found)} rows came where {len(wanted)} were left, and row {at + 1} of them is {other}, not "
            f"{one}",
        )

    def _broken(self, promise: str, found: str) -> BrokenPromise:
        return BrokenPromise(f"{self.name} is {self.kind}, so {promise}; but {found}")


def _logged(value: Any) -> Any:
    """As it comes out of the log."""
    return codec.decode(codec.encode(value))


def _collecting(into: Items, reading: Iterator[Any]) -> Callable[[], None]:
    def collect() -> None:
        for item in reading:
            into.append(item)  # one by one: what came before a crash counts

    return collect
