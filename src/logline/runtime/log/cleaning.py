"""`logline gc`: collects what nobody needs of a log that does not run (R12), and makes its files smaller.

While a pipeline runs, each instance collects its own journal every few hundred events; what is left over when the run
ends stays until the next one. Here the same rule is applied to every journal, under the lease, so that no life is
fenced off. A file does not shrink by it, since the room is used again: `compact` writes files anew. A run does that
by itself when it starts, for files that are mostly empty.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from logline.engine.spec import InstanceSpec, write_port
from logline.names import InstanceName
from logline.runtime.lives.sweeping import sweep
from logline.runtime.log.log_status import names_in, specs_of
from logline.store.seam import Compacted, Store

logger = logging.getLogger("logline")

LEAST, LEAST_ALONE = 64 << 10, 16 << 20
"""Empty bytes of a file that are worth the copy: when somebody asks for it, and when a run starts."""


class Cleaned(NamedTuple):
    """How many events and write actions a journal held before and after. The marks of a stream, its end say, are
    none."""

    before: int
    after: int


def clean(store: Store) -> dict[InstanceName, Cleaned]:
    """Collects every journal of a log that does not run, under its lease. Raises LogInUse if the pipeline runs."""
    meta = store.meta()
    assert meta is not None
    specs = specs_of(meta.graph)
    with _lease(store):
        # Against the stream: what lineage keeps is known to receivers first.
        there = [spec for name, spec in reversed(specs.items()) if name in store.instances()]
        found = {spec.name: _clean_one(store, spec) for spec in there}
        return {name: found[name] for name in specs if name in found}


def compact(store: Store) -> Iterator[tuple[InstanceName, Compacted]]:
    """Writes the files of a log that does not run anew, one at each step of the iterator, under its lease. Raises
    LogInUse if the pipeline runs."""
    with _lease(store):
        yield from store.compact(lambda size, empty: empty >= LEAST)


def compact_if_mostly_empty(store: Store) -> None:
    """For the holder of the lease that starts a run, before anything lives."""
    meta = store.meta()
    names = {} if meta is None else names_in(meta.graph)
    for instance, found in store.compact(lambda size, empty: empty >= LEAST_ALONE and 2 * empty >= size):
        name = names.get(instance, instance)
        if found.why_not:
            logger.info("the journal of %r is mostly empty and stays so: %s", name, found.why_not)
        else:
            logger.info("the journal of %r is compacted: %d MB instead of %d MB", name, *_megabytes(found))


def _megabytes(found: Compacted) -> tuple[int, int]:
    return found.after >> 20, found.before >> 20


@contextmanager
def _lease(store: Store) -> Iterator[None]:
    lease = store.lease(f"gc-{uuid.uuid4().hex[:8]}")
    try:
        yield
    finally:
        lease.release()


def _clean_one(store: Store, spec: InstanceSpec) -> Cleaned:
    reader = store.read(spec.name)
    ports = (*spec.ports, *map(write_port, spec.targets))

    def held() -> int:
        there = (header for port in ports for header in reader.headers(port, reader.stored(port)))
        return sum(header is not None and not header.mark for header in there)

    before = held()
    sweep(spec, store, all_rest=True)
    return Cleaned(before, held())
