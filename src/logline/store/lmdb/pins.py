"""Events below a port's base that stay (R12), a row for each block of SSNs:

    k  port, block -> which of its SSNs are pinned, as bits

A window that is open for long pins its members one beside the other: a row for each would be written and deleted for
every event.
"""

from __future__ import annotations

from collections.abc import Collection

import lmdb

from logline.names import PortName, Ssn
from logline.store.lmdb import rows

BLOCK = 64


def of(txn: lmdb.Transaction, port: PortName) -> set[Ssn]:
    """All of a port."""
    found: set[Ssn] = set()
    prefix = _prefix(port)
    for key, value in rows.scan(txn, prefix):
        first, bits = rows.read_number(key[len(prefix) :]) * BLOCK, rows.unpack(value)
        found.update(Ssn(first + at) for at in range(BLOCK) if bits >> at & 1)
    return found


def has(txn: lmdb.Transaction, port: PortName, ssn: int) -> bool:
    """Whether an event is pinned."""
    raw = txn.get(_prefix(port) + rows.number(ssn // BLOCK))
    return raw is not None and bool(rows.unpack(raw) >> ssn % BLOCK & 1)


def change(txn: lmdb.Transaction, port: PortName, before: set[Ssn], after: Collection[Ssn]) -> None:
    """Writes the blocks that differ."""
    prefix = _prefix(port)
    for block in {ssn // BLOCK for ssn in before.symmetric_difference(after)}:
        first, key = block * BLOCK, prefix + rows.number(block)
        bits = sum(1 << at for at in range(BLOCK) if first + at in after)
        if bits:
            rows.put(txn, key, rows.pack(bits))
        else:
            txn.delete(key)


def _prefix(port: PortName) -> bytes:
    return b"k" + rows.hashed(port)
