"""Pipelines for the simulator: fixed ones for exhaustive runs, and random ones drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any, Literal

import pyarrow as pa

from logline.engine.spec import Limits, RetrySpec
from logline.graph.connector import Guarantee, Source
from logline.graph.eventual import Eventual
from logline.graph.model import Connection, Graph, Node, NodeOptions, Retry, Scope
from logline.graph.operator import Operator
from logline.names import ERRORS, IN, InstanceName, LogId, OperatorName, PortName, TargetName
from logline.runtime.lives.instances import Instance, instances_of
from logline.testing.sim.keyed import KeyedLists, KeyedSets, TimedKeyedLists
from logline.testing.sim.merging import Merging, TellingMerging
from logline.testing.sim.operators import (
    Blocks,
    Choosy,
    Deliver,
    Dropper,
    Flaky,
    FlakyAsync,
    Mirror,
    Pairs,
    Patient,
    Pick,
    Rows,
    SimOperator,
    Store,
    Straight,
    Windows,
)
from logline.testing.sim.outside import PaidService, QuerySource, QueueSource, ReplayableSource, Target
from logline.testing.sim.plain import PlainPayloads, Records
from logline.testing.sim.riding import with_riders

ReadKind = Literal["replayable", "files", "apart", "non-replayable", "destructive"]
TIGHT = Limits(
    run_events=2,
    commit_events=3,
    commit_bytes=200,
    fetch_events=2,
    inbox_bytes=40,
    port_bytes=120,
    ack_after=500_000,
    collect_events=1,
    write_retry=RetrySpec(attempts=100, wait=1000, factor=1.0),
)
"""Small bounds, so that every one of them is reached."""


@dataclass
class Scenario:
    """A pipeline with its outside world."""

    instances: Mapping[InstanceName, Instance]
    service: PaidService
    description: str = ""
    targets: list[Target] = field(default_factory=list)
    graph: Graph | None = None


class _Builder:
    def __init__(self, rnd: Random, limits: Limits) -> None:
        self.rnd = rnd
        self.limits = limits
        self.nodes: dict[OperatorName, Node] = {}
        self.connections: list[Connection] = []
        self.service = PaidService()
        self.targets: list[Target] = []
        self.lineage: list[Scope] = []
        self.riders: Random | None = None
        """Draws ephemeral operators on connections, if there are to be any."""

    def source(self, name: str, source: Source, options: NodeOptions | None = None) -> tuple[str, str]:
        ports = {PortName("out"): pa.schema([])}
        self.nodes[OperatorName(name)] = Node(
            OperatorName(name), source, None, (), ports, options=options or NodeOptions()
        )
        return name, "out"

    def add(
        self,
        name: str,
        op: SimOperator,
        inputs: Mapping[str, list[tuple[str, str]]],
        options: NodeOptions | None = None,
        targets: Mapping[str, Target] | None = None,
    ) -> list[tuple[str, str]]:
        op.name = name
        ports = {PortName(p): pa.schema([]) for p in (*op.ports, ERRORS)}
        sinks: Any = {TargetName(t): s for t, s in (targets or {}).items()}
        self.targets.extend(sinks.values())
        self.nodes[OperatorName(name)] = Node(
            OperatorName(name),
            None,
            op,
            tuple(PortName(p) for p in inputs),
            ports,
            sinks,
            options or NodeOptions(),
        )
        for port, streams in inputs.items():
            for sender, out in streams:
                self.connections.append(
                    Connection(OperatorName(sender), PortName(out), OperatorName(name), PortName(port))
                )
        return [(name, p) for p in op.ports]

    def scopes(self, rnd: Random) -> None:
        """Lineage scopes: everything, or from a source to one of the operators that it reaches."""
        for _ in range(rnd.randint(1, 2)):
            keep = timedelta(microseconds=rnd.choice((500, 20_000, 400_000, 5_000_000)))
            start = rnd.choice([None, *(n for n, node in self.nodes.items() if node.source is not None)])
            reached = [c.receiver for c in self.connections if start in (None, c.sender)]
            for name in reached:
                reached += [c.receiver for c in self.connections if c.sender == name and c.receiver not in reached]
            ends = [(n, port) for n in reached for port in self.nodes[n].outputs if port != ERRORS]
            target = rnd.choice([None, *ends])
            self.lineage.append(Scope(None if start is None else (start, PortName("out")), target, keep))

    def build(self, description: str) -> Scenario:
        graph = Graph("simulated", self.nodes, tuple(self.connections), tuple(self.lineage))
        graph = graph if self.riders is None else with_riders(graph, self.riders)
        instances = instances_of(graph, LogId("sim"), limits=self.limits, payloads=lambda node: PlainPayloads())
        plain = {n: replace(p, items=self.rnd.randint(1, 2), within=0) for n, p in instances.items()}
        return Scenario(plain, self.service, description, self.targets, graph)


def batches(rnd: Random, count: int, tag: str) -> list[Records]:
    """So many batches of one or two records, with times that mostly rise."""
    found: list[Records] = []
    at = 0
    for index in range(count):
        rows = []
        for row in range(rnd.randint(1, 2)):
            at = max(0, at + rnd.randint(-2, 3))
            rows.append((f"{tag}{index}.{row}", at))
        found.append(tuple(rows))
    return found


def make_source(kind: ReadKind, rnd: Random, tag: str, count: int) -> Source:
    """A source of one kind, with its own chance."""
    own = Random(rnd.random())
    if kind == "replayable":
        return ReplayableSource(batches(own, count, tag), parts=own.choice((1, 1, 2)))
    if kind in ("files", "apart"):
        return ReplayableSource(batches(own, count, tag), parts=3, apart=kind == "apart", files=True)
    if kind == "non-replayable":
        return QuerySource(own, reads=2)
    return QueueSource(own, messages=count)


def chain(
    kind: ReadKind,
    guarantee: Guarantee,
    seed: int = 0,
    events: int = 4,
    *,
    plain: bool = False,
    eventual: bool = False,
) -> Scenario:
    """Source -> stateless -> stateful with two input sets per event -> writer. With `plain` events go through the
    first and the last in runs (`do.Apply`). With `eventual` open sets have checkpoints, one after each event."""
    rnd = Random(seed)
    make = _Builder(rnd, TIGHT)
    out = make.source("source", make_source(kind, rnd, "s", events))
    again = NodeOptions(retry=Retry(attempts=2, wait="1s"))
    checkpoints = NodeOptions(policy="eventual", eventual=Eventual(replay=0, every="0s")) if eventual else None
    picked = make.add("pick", Straight() if plain else Pick(), {IN: [out]}, again if plain else None)
    blocks = make.add("blocks", Blocks(make.service), {IN: picked}, checkpoints)
    make.add("store", Deliver() if plain else Store(), {IN: blocks}, targets={"store": Target(guarantee)})
    return make.build(f"chain({kind}, {guarantee}, seed={seed})")


def merging(seed: int = 0, events: int = 5) -> Scenario:
    """Source -> sets that merge and are kept open -> writer, with everything in a lineage scope."""
    rnd = Random(seed)
    make = _Builder(rnd, TIGHT)
    out = make.source("source", make_source("replayable", rnd, "s", events))
    merged = make.add("merging", Merging(), {IN: [out]})
    make.add("store", Store(), {IN: merged}, targets={"store": Target("positioned")})
    make.lineage.append(Scope(None, None, timedelta(seconds=5)))
    return make.build(f"merging(seed={seed})")


def windows_of_windows(seed: int = 0, *, sources: int = 2, events: int = 6) -> Scenario:
    """Sources of event time, with records out of order in several partitions; what comes of them is dropped in part,
    gathered for a while, or in sets that merge and stay open, and goes into windows, and these into windows three
    times as long. No record may be late."""
    rnd = Random(seed)
    make = _Builder(rnd, TIGHT)
    lateness = rnd.choice((0, 2, 4))
    timed = NodeOptions(time="t", lateness=timedelta(microseconds=lateness))
    outs = []
    for index in range(sources):
        found = [
            tuple((f"s{index}_{n}.{row}", 2 * n + rnd.randint(0, lateness // 2)) for row in range(rnd.randint(1, 2)))
            for n in range(events)
        ]
        outs.append(make.source(f"source{index}", ReplayableSource(found, parts=rnd.choice((1, 2))), timed))
    picked = make.add("pick", Pick(), {IN: outs}, NodeOptions(concurrency=rnd.choice((1, 3))))
    gathers = rnd.random() < 0.5
    merges = gathers and Random(f"merging {seed}").random() < 0.5
    gathered, *kept = picked
    if gathers:
        merging = TellingMerging if Random(f"telling {seed}").random() < 0.5 else Merging
        gathered, *kept = make.add("patient", merging() if merges else Patient(), {IN: picked})
    hours, days = Windows(), Windows()
    days.size = 3 * hours.size
    hours.in_time = days.in_time = True
    hourly = make.add("hours", hours, {IN: [gathered]}, NodeOptions(concurrency=rnd.choice((1, 2)), ordered=False))
    daily = make.add("days", days, {IN: hourly[:1]})
    make.add("store", Deliver(), {IN: [*daily, hourly[1], *kept]}, targets={"store": Target("positioned")})
    return make.build(f"windows_of_windows(seed={seed})")


_KINDS: tuple[ReadKind, ...] = ("replayable", "apart", "non-replayable", "destructive")
_GUARANTEES: tuple[Guarantee, ...] = ("positioned", "guarded", "named")


def drawn(seed: int) -> Scenario:
    """A random graph of random operators."""
    rnd = Random(seed)
    tight = rnd.random() < 0.7
    make = _Builder(rnd, TIGHT if tight else replace(TIGHT, run_events=8, port_bytes=2000, commit_events=16))
    streams: list[tuple[str, str]] = []
    used: set[tuple[str, str]] = set()
    timing = _timing(Random(f"event time {seed}"))
    for index in range(rnd.choice((1, 1, 2))):
        kind = rnd.choice(_KINDS)
        if kind == "replayable" and Random(f"partitions {seed}").random() < 0.3:
            kind = "files"
        made = make_source(kind, rnd, f"s{index}_", rnd.randint(3, 7))
        streams.append(make.source(f"source{index}", made, timing))
    for index in range(rnd.randint(1, 4)):
        kind_of: type[SimOperator] = rnd.choice((Pick, Blocks, Pairs, Windows, Patient, Rows, Flaky, Dropper, Mirror))
        if kind_of is Pick:
            kind_of = (Straight, Choosy, Pick, Choosy)[seed % 4]
        if seed % 3 == 1 and kind_of in (Patient, Windows):
            kind_of = KeyedLists if kind_of is Patient else TimedKeyedLists
        if kind_of is KeyedLists and Random(f"keyed sets {seed}").random() < 0.5:
            kind_of = KeyedSets
        if kind_of in (Pairs, Patient, Dropper) and Random(f"merging {seed}").random() < 0.5:
            kind_of = Merging
        if kind_of is Flaky and seed % 5 == 0:
            kind_of = FlakyAsync
        _add_middle(make, f"op{index}", kind_of, streams, used, rnd)
    loose = [s for s in streams if s not in used]
    for index, feeds in enumerate([loose] if rnd.random() < 0.5 else [loose[0::2], loose[1::2]]):
        if feeds:
            target = Target(rnd.choice(_GUARANTEES))
            sink = Deliver() if seed % 3 == 0 else Store()
            make.add(f"store{index}", sink, {IN: feeds}, targets={"store": target})
    apart = Random(f"lineage {seed}")  # of its own, so that a seed means the same graph with it and without
    if apart.random() < 0.5:
        make.scopes(apart)
    if seed % 5 == 2:
        make.riders = Random(f"riders {seed}")
    return make.build(f"drawn({seed})")


def _timing(rnd: Random) -> NodeOptions:
    """Whether the sources of a graph have event time, and how they see it."""
    if rnd.random() < 0.5:
        return NodeOptions()
    idle = rnd.choice((None, None, timedelta(microseconds=700), timedelta(seconds=2)))
    return NodeOptions(time="t", lateness=timedelta(microseconds=rnd.choice((0, 3, 50))), idle=idle)


def _add_middle(
    make: _Builder,
    name: str,
    kind: type[SimOperator],
    streams: list[tuple[str, str]],
    used: set[Any],
    rnd: Random,
) -> None:
    first = rnd.choice(streams)
    others = [s for s in streams if s != first]
    targets: dict[str, Target] = {}
    op: SimOperator
    if kind in (Blocks, Rows):
        op = kind(make.service)
    elif kind is Mirror:
        target = targets["mirror"] = Target("positioned")
        op = Mirror(make.service, target.position)
    else:
        op = kind()
    inputs: dict[str, list[tuple[str, str]]]
    if kind is Pairs:
        inputs = {"left": [first], "right": [rnd.choice(others) if others else first]}
    else:
        inputs = {IN: [first, *(rnd.sample(others, 1) if others and rnd.random() < 0.4 else ())]}
    options = NodeOptions(
        concurrency=rnd.choice((1, 1, 3)) if kind is not Mirror else 1,
        ordered=rnd.random() < 0.6,
        on_error="drop" if kind is Dropper else "divert" if issubclass(kind, Flaky) else "stop",
        retry=Retry(attempts=2, wait="1s") if issubclass(kind, (Flaky, Straight)) else None,
    )
    if issubclass(kind, KeyedLists):
        # Its sets wait for one another, and where a channel is idle at every moment, each wait is many moves.
        wait = "100ms" if kind is KeyedSets else "1s"
        options = NodeOptions(on_error="divert", retry=Retry(attempts=2, wait=wait))
    apart = Random(str(rnd.getstate()))  # of its own, so that a seed means the same graph with it and without
    saves = type(op).assign is not Operator.assign and not isinstance(op, Merging)
    if saves and apart.random() < 0.6:
        wanted = Eventual(replay=apart.choice((0, 0, 1, 2, 5)), records=apart.choice((None, 2)), every="0s")
        options = replace(options, policy="eventual", eventual=wanted)
    for feeds in inputs.values():
        used.update(feeds)
    streams.extend(make.add(name, op, inputs, options, targets))
