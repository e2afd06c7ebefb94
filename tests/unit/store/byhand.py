"""Journals that a test writes step by step, in any store."""

from __future__ import annotations

from typing import Any

import msgspec

from logline.graph.record import record_of
from logline.names import InstanceName
from logline.store.seam import Meta, Store
from logline.testing.conformance.model import step_of


class ByHand:
    """Journals that a test writes, a step at a time."""

    def __init__(self, store: Store, graph: Any, **actions: dict[str, str]) -> None:
        store.set_meta(Meta(graph.name, msgspec.structs.replace(record_of(graph), actions=actions)))
        self.store = store
        self.counts = dict.fromkeys(graph.nodes, 0)
        self.journals = {name: store.claim(InstanceName(name)) for name in graph.nodes}

    def commit(self, name: Any, **step: Any) -> None:
        self.counts[name] += 1
        self.journals[name].commit(step_of(number=self.counts[name], **step))
