"""`logline gc`: collects what nobody needs of a log that does not run (R12).

While a pipeline runs, each instance collects its own journal every few hundred events; what is left over when the run
ends stays until the next one. Here the same rule is applied to every journal, under the lease, so that no life is
fenced off. A file does not shrink by it: the room is used again.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from logline.engine.spec import InstanceSpec, write_port
from logline.names import InstanceName
from logline.runtime.lives.sweeping import sweep
from logline.runtime.log.log_status import specs_of
from logline.store.seam import Store


class Cleaned(NamedTuple):
    """What a journal held before and after."""

    before: int
    after: int


def clean(store: Store) -> dict[InstanceName, Cleaned]:
    """Collects every journal of a log that does not run, under its lease. Raises LogInUse if the pipeline runs."""
    meta = store.meta()
    assert meta is not None
    specs = specs_of(meta.graph)
    lease = store.lease(f"gc-{uuid.uuid4().hex[:8]}")
    try:
        # Against the stream: what lineage keeps is known to receivers first.
        there = [spec for name, spec in reversed(specs.items()) if name in store.instances()]
        found = {spec.name: _clean_one(store, spec) for spec in there}
        return {name: found[name] for name in specs if name in found}
    finally:
        lease.release()


def _clean_one(store: Store, spec: InstanceSpec) -> Cleaned:
    reader = store.read(spec.name)
    ports = (*spec.ports, *map(write_port, spec.targets))

    def held() -> int:
        return sum(len(reader.stored(port)) for port in ports)

    before = held()
    sweep(spec, store, all_rest=True)
    return Cleaned(before, held())
