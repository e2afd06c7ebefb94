"""Events below a port's base that stay (R12), a row for each block of SSNs:

    PINS  port, block     which of its SSNs are pinned, as bits

A window that is open for long pins its members one beside the other: a row for each would be written and deleted for
every event.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NewType

from logline.names import PortName, Ssn
from logline.store.rows import Rows, Table

BLOCK = 64
Bits = NewType("Bits", int)
"""A number of 64 bits, without a sign."""
PINS: Table[Bits] = Table("pins", Bits, "name", "number")


def of(rows: Rows, port: PortName) -> set[Ssn]:
    """All pinned SSNs of a port."""
    found: set[Ssn] = set()
    for (_, block), bits in rows.scan(PINS, (port,)):
        first = block * BLOCK
        found.update(Ssn(first + at) for at in range(BLOCK) if bits >> at & 1)
    return found


def has(rows: Rows, port: PortName, ssn: int) -> bool:
    """Whether an event is pinned."""
    bits = rows.get(PINS, (port, ssn // BLOCK))
    return bits is not None and bool(bits >> ssn % BLOCK & 1)


def change(rows: Rows, port: PortName, before: set[Ssn], after: Collection[Ssn]) -> None:
    """Writes the blocks that differ."""
    for block in {ssn // BLOCK for ssn in before.symmetric_difference(after)}:
        first = block * BLOCK
        bits = sum(1 << at for at in range(BLOCK) if first + at in after)
        if bits:
            rows.put(PINS, (port, block), Bits(bits))
        else:
            rows.delete(PINS, (port, block))
