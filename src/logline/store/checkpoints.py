"""Checkpoints of open sets as rows (R22).

    CHECKPOINTS    serial               how many members it covers, their digest, its size and layout
    SAVED          serial               the event state itself
    COVERED_LOWS   channel, serial      under a lineage scope: the first member that is covered

The state is apart: whoever asks what recovery would have to do, and every sender that asks what is needed, reads the
small rows alone. A new checkpoint replaces the rows of the one before: the newest wins. They go when the set is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from logline.engine.sets import Checkpoint
from logline.names import ChannelName, Serial, Ssn
from logline.store import members
from logline.store.rows import Rows, Table


class CheckpointRow(NamedTuple):
    """A checkpoint without its state."""

    covers: int
    nbytes: int
    layout: str
    digest: bytes
    lows: dict[ChannelName, Ssn]


CHECKPOINTS = Table("checkpoints", CheckpointRow, "number")
SAVED = Table("saved", bytes, "number")
COVERED_LOWS = Table("covered_lows", Ssn, "name", "number")


def put(rows: Rows, serial: Serial, checkpoint: Checkpoint) -> int | None:
    """The newest checkpoint of a set whose members are in the log. Returns how many the one before it covers."""
    before = rows.get(CHECKPOINTS, (serial,))
    members.cover(rows, serial, 0 if before is None else before.covers, checkpoint.covers)
    _put(rows, serial, checkpoint)
    return None if before is None else before.covers


def _put(rows: Rows, serial: Serial, checkpoint: Checkpoint) -> None:
    covers, state, layout, digest, lows = checkpoint
    rows.put(CHECKPOINTS, (serial,), CheckpointRow(covers, len(state), layout, digest, lows))
    rows.put(SAVED, (serial,), state)
    for channel, ssn in lows.items():
        rows.put(COVERED_LOWS, (channel, serial), ssn)


def hand_on(rows: Rows, serial: Serial, to: Serial) -> bool:
    """The checkpoint of a parked set is now also that of the one in which it is retried, with what it covers. Whether
    it had one."""
    found = of(rows, serial)
    if found is not None:
        members.hand_on(rows, serial, to)
        _put(rows, to, found)
    return found is not None


def has(rows: Rows, serial: Serial) -> bool:
    """Whether a set has a checkpoint."""
    return rows.get(CHECKPOINTS, (serial,)) is not None


def of(rows: Rows, serial: Serial) -> Checkpoint | None:
    """The newest checkpoint of a set, if it has one."""
    row = rows.get(CHECKPOINTS, (serial,))
    if row is None:
        return None
    return Checkpoint(row.covers, rows.get(SAVED, (serial,)) or b"", row.layout, row.digest, row.lows)


def load(rows: Rows) -> Iterator[tuple[Serial, Checkpoint]]:
    """All of them, with their states."""
    found = dict(every(rows))
    for (serial,), state in rows.scan(SAVED) if found else ():
        row = found[serial]
        yield serial, Checkpoint(row.covers, state, row.layout, row.digest, row.lows)


def every(rows: Rows) -> Iterator[tuple[Serial, CheckpointRow]]:
    """All of them, without their states."""
    for (serial,), row in rows.scan(CHECKPOINTS):
        yield serial, row


def drop(rows: Rows, serial: Serial) -> int | None:
    """The set is done. Returns how many members its checkpoint covers, if it had one."""
    row = rows.get(CHECKPOINTS, (serial,))
    if row is None:
        return None
    rows.delete(CHECKPOINTS, (serial,))
    rows.delete(SAVED, (serial,))
    for channel in row.lows:
        rows.delete(COVERED_LOWS, (channel, serial))
    return row.covers


def low(rows: Rows, channel: ChannelName) -> Ssn | None:
    """The first event of a channel that a checkpoint covers and lineage may lead to."""
    return min((ssn for _, ssn in rows.scan(COVERED_LOWS, (channel,))), default=None)


TABLES: list[Table[Any]] = [members.COVERED, CHECKPOINTS, SAVED, COVERED_LOWS]
