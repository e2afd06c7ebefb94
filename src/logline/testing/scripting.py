"""`run`: a whole pipeline in a test, fed by a script in which crashes are items.

>>> import pyarrow as pa, pyarrow.compute as pc
>>> import logline as ll
>>> p = ll.Pipeline("demo")
>>> numbers = p.source("numbers", ll.sources.batches([pa.record_batch({"n": [0]})]))
>>> doubled = numbers.map_batches("doubled", lambda b: pa.record_batch({"n": pc.multiply(b["n"], 2)}))
>>> doubled.sink("kept", ll.sinks.collect())
>>> one, two = pa.record_batch({"n": [1]}), pa.record_batch({"n": [2]})
>>> run(p, {"numbers": [one, CRASH("doubled"), two]})["doubled"].to_pylist()
[{'n': 2}, {'n': 4}]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from logline.connectors.sinks import Collect, collect
from logline.engine.codec import micros
from logline.errors import BadName
from logline.graph.connector import Source
from logline.graph.ephemeral import logged
from logline.graph.operator import Tabular
from logline.graph.schemas import to_batches
from logline.graph.validate import validate
from logline.names import InstanceName, Ssn
from logline.pipeline import Pipeline
from logline.runtime.lives.instances import Instance, find, instances_of
from logline.store.memory import MemoryStore
from logline.testing.driving import NOON
from logline.testing.stage import Stage


@dataclass(frozen=True, slots=True)
class CRASH:
    """In the input of a source: kill this operator's life now, wherever it is."""

    operator: str


class _Scripted(Source):
    """A source of the pipeline with the script in the place of what it reads."""

    gather = False

    def __init__(self, name: str, like: Source, script: Sequence[Tabular | CRASH], crashes: list[str]) -> None:
        self.schema = like.schema
        self.replayable = like.replayable
        self._crashes = crashes
        self._fired: set[int] = set()
        self._script = [
            item if isinstance(item, CRASH) else to_batches(item, like.schema, f"{name}.out")[0] for item in script
        ]

    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, Any] | None]:
        for index in range(offset or 0, len(self._script)):
            item = self._script[index]
            if not isinstance(item, CRASH):
                yield item, index + 1
                if self.replayable:
                    yield None  # an event at a time, so that a crash strikes between two of them
            elif index not in self._fired:
                self._fired.add(index)
                self._crashes.append(item.operator)
                yield None


def run(p: Pipeline, inputs: Mapping[str, Sequence[Tabular | CRASH]]) -> dict[str, pa.Table]:
    """Runs the pipeline on scripted inputs to its end and returns what was on every port, by its short name.

    Sinks and targets are replaced: nothing is written outside, and what would have been written stands under the
    operator's name. The crashes strike lives, not this process; every life begins with a fresh copy of its operator.
    """
    graph = p.graph()
    validate(graph)
    graph = logged(graph)
    sources = [name for name, node in graph.nodes.items() if node.source is not None]
    for name in (*inputs, *sources):
        if name not in inputs or name not in sources:
            raise BadName(
                f"the sources of the pipeline are {', '.join(map(repr, sources))}: give inputs for each of them"
            )
    store = MemoryStore("test")
    crashes: list[str] = []
    kept: dict[str, Collect] = {}
    instances: dict[InstanceName, Instance] = {}
    for name, made in instances_of(graph, store.log_id, collect=False).items():
        if made.source is not None:
            scripted = _Scripted(name, made.source, inputs[name], crashes)
            spec = replace(made.spec, partitions=made.spec.partitions[:1], destructive=False)
            instances[name] = replace(made, source=scripted, spec=spec, items=1)
        else:
            sinks = {target: collect() for target in made.sinks or {}}
            kept |= {name if len(sinks) == 1 else f"{name}.{target}": sink for target, sink in sinks.items()}
            instances[name] = replace(made, sinks=sinks)
    stage = Stage(instances, store, now=micros(NOON))

    def strike() -> None:
        while crashes:
            victim = crashes.pop()
            try:
                name = find(instances, victim)
            except BadName:
                raise BadName(f"CRASH({victim!r}): the pipeline has no such operator") from None
            if stage.lives[name].over is None:
                stage.crash(name)

    stage.after_step = strike
    try:
        stage.run_out()
    finally:
        stage.close()
    found: dict[str, pa.Table] = {}
    for name, made in instances.items():
        for port in made.spec.ports:
            events = store.read(name).events(port, Ssn(0), limit=1 << 30, max_bytes=1 << 62)
            table = pa.Table.from_batches(
                [e.payload for e in events if not e.mark], schema=made.payloads.schema_of(port)
            )
            found[name if port == "out" else f"{name}.{port}"] = table
    return found | {name: sink.table() for name, sink in kept.items()}
