"""What open errors hold in a log: R12 keeps them, and the input events of diverted sets, until somebody decides.

>>> import pyarrow as pa
>>> import logline as ll
>>> p = ll.Pipeline("held")
>>> source = p.source("numbers", ll.sources.batches([pa.record_batch({"n": [1, 0]})]))
>>> shares = source.map_batches("shares", lambda batch: 1 // 0, schema="n long", on_error="divert")
>>> run = p.run("memory:held", engine="inline")
>>> held = held_by_errors(run.log.store)["shares"]
>>> held.errors, held.nbytes > 0
(1, True)
"""

from __future__ import annotations

from typing import NamedTuple

from logline.engine.error_resolution import on_their_way
from logline.engine.sets import Member
from logline.names import ERRORS, InstanceName, PortName, Ssn, sender_of
from logline.runtime.log.log_status import specs_of
from logline.store.seam import Store


class HeldByErrors(NamedTuple):
    """What the open errors of one instance hold."""

    errors: int
    nbytes: int
    """Of the errors themselves, and of the events that their sets are made of."""


def held_by_errors(store: Store) -> dict[InstanceName, HeldByErrors]:
    """Per instance with open errors. Reads headers, no payloads."""
    meta = store.meta()
    found = {} if meta is None else {name: _held_by(store, name) for name in specs_of(meta.graph)}
    return {name: held for name, held in found.items() if held.errors}


def _held_by(store: Store, name: InstanceName) -> HeldByErrors:
    reader = store.read(name)
    if not reader.outline().unsettled_errors:  # most have none, and some have many sets
        return HeldByErrors(0, 0)
    image = reader.image()
    retried = on_their_way(image, name)
    errors = image.unsettled_errors - len(retried)
    if not errors:
        return HeldByErrors(0, 0)
    waiting = [ssn for ssn in reader.stored(ERRORS) if ssn not in image.resolved and ssn not in retried]
    members = {m for opened in image.sets.values() if opened.cause == "parked" for m in map(_place, opened.members)}
    there: dict[tuple[InstanceName, PortName], list[Ssn]] = {(name, ERRORS): waiting}
    for sender, port, ssn in sorted(members):
        there.setdefault((sender, port), []).append(ssn)
    return HeldByErrors(errors, sum(_nbytes(store, *port, ssns) for port, ssns in there.items()))


def _place(member: Member) -> tuple[InstanceName, PortName, Ssn]:
    return (*sender_of(member.channel), member.ssn)


def _nbytes(store: Store, instance: InstanceName, port: PortName, ssns: list[Ssn]) -> int:
    return sum(header.nbytes for header in store.read(instance).headers(port, ssns) if header is not None)
