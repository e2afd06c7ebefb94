"""A simulated pipeline that changes while it is at work (R14): the driver dies, and the next one has another graph.

An operator is put into a connection, one that was put in is taken out again, or any operator, source or sink gets
another name (`was=`), or is made anew with all that follows it (`fresh=`), at any moment: events are under way, sets
are open, zombies go on. What a start does to the log is the product's own code (`runtime/control/evolution`). A
driver may die between its steps, and the next one then has the old graph or the new one. A change that is refused is
left alone. The checks know by which channels an instance has taken which events (`spans`).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from logline.engine.events import Position
from logline.errors import PipelineChanged
from logline.graph.identity import downstream
from logline.graph.model import Connection, Graph, Node
from logline.graph.operator import Context
from logline.graph.record import record_of
from logline.names import ERRORS, IN, OUT, InsetId, InstanceName, OperatorName, instance_name
from logline.runtime.control.evolution import admit, begin, close, fence, with_history, with_inheritance
from logline.runtime.lives.instances import Instance, instances_of
from logline.runtime.lives.sweeping import sweep
from logline.runtime.log.log_status import specs_of
from logline.store.seam import Meta
from logline.testing.sim.operators import Mirror, SimOperator
from logline.testing.sim.outside import Target
from logline.testing.sim.plain import PlainPayloads

if TYPE_CHECKING:
    from logline.testing.sim.world import World


class Forward(SimOperator):
    """Stateless: what comes in goes out, event by event."""

    def generate(self, inset: InsetId, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        yield acc


def _copied(node: Node) -> Node:
    """The operator with objects of its own."""
    targets: Any = {target: Target(sink.guarantee) for target, sink in node.targets.items()}
    op = copy(node.op)
    if isinstance(op, Mirror):
        op.written = targets["mirror"].position
    return replace(node, op=op, targets=targets)


class _Died(Exception):
    """The driver, between two steps of a start."""


class Evolving:
    """Whoever changes the pipeline of one simulated run."""

    def __init__(self, world: World, graph: Graph, seed: int) -> None:
        self._world = world
        self._rnd = Random(f"evolving {seed}")
        self._others = Random(f"names and generations {seed}") if seed % 4 == 1 else None
        self.graph = graph
        self._before = graph.nodes.keys()
        changes = self._rnd.choice((0, 0, 1, 2, 3))
        self._times = {self._rnd.randint(1, 500) for _ in range(changes)}
        """The moves at which it changes."""
        self._moves = 0
        self._count = 0
        if changes:
            self._world.store.set_meta(self._meta(graph))

    def is_time(self) -> bool:
        """Asked at every move: whether the pipeline changes now."""
        self._moves += 1
        return self._moves in self._times

    def change(self) -> None:
        """The driver dies with all its lives; the next one has another graph, if the log can live with it."""
        world = self._world
        self._before = self.graph.nodes.keys()
        for actor in [actor for actor in world.actors if world.newest[actor.name] is actor]:
            world.kill(actor, restart=False)
        wanted: Graph | None
        wanted, fresh = self._changed()
        while wanted is not None:
            try:
                self._start(wanted, fresh)
                world.counts["made anew"] += bool(fresh)
                world.counts["evolved"] += wanted.nodes.keys() != self._before
                world.counts["renamed"] += any(node.options.was in self._before for node in wanted.nodes.values())
                wanted = None
            except PipelineChanged:
                world.counts["change refused"] += 1
                wanted, fresh = self.graph, ()
            except _Died:
                world.counts["died while it changed"] += 1
                if self._rnd.random() < 0.5:
                    wanted, fresh = self.graph, ()
                elif fresh:  # whoever says it again has it made anew again
                    wanted = self._anew(*fresh)
        self._begin_lives()

    # ---- what changes ------------------------------------------------------------------------------------

    def _changed(self) -> tuple[Graph, tuple[OperatorName, ...]]:
        """Another graph, and the operators that are made anew. Names and generations change in schedules of their
        own, with chance of their own, so that other seeds mean what they meant."""
        rnd = self._others
        chance = 1.0 if rnd is None else rnd.random()
        if rnd is not None and chance < 0.35:
            fresh = rnd.choice([name for name, node in self.graph.nodes.items() if node.op is not None])
            return self._anew(fresh), (fresh,)
        if rnd is not None and chance < 0.7:
            return self._renamed(rnd.choice(list(self.graph.nodes))), ()
        return self._rewired(), ()

    def _anew(self, fresh: OperatorName) -> Graph:
        """The same pipeline with other objects where it is made anew. Its targets are others too: what they had
        stays under the generation before (R14)."""
        anew = downstream(self.graph, [fresh])
        nodes = {name: _copied(node) if name in anew else node for name, node in self.graph.nodes.items()}
        return replace(self.graph, nodes=nodes, ids={}, closed=())

    def _rewired(self) -> Graph:
        put = [name for name, node in self.graph.nodes.items() if isinstance(node.op, Forward)]
        if put and self._rnd.random() < 0.5:
            return self._without(self._rnd.choice(put))
        return self._with_one_more()

    def _with_one_more(self) -> Graph:
        graph, self._count = self.graph, self._count + 1
        at = self._rnd.choice([c for c in graph.connections if c.out != ERRORS and c not in graph.through] or [None])
        if at is None:
            return self._renamed(self._rnd.choice(list(graph.nodes)))
        name = OperatorName(f"forward{self._rnd.choice((self._count, 1))}")
        while name in graph.nodes:
            name = OperatorName(f"{name}x")
        op = Forward()
        op.name = name
        empty = graph.nodes[at.sender].outputs[at.out]
        node = Node(name, None, op, (IN,), {OUT: empty, ERRORS: empty})
        into, out = Connection(at.sender, at.out, name, IN), Connection(name, OUT, at.receiver, at.port)
        nodes: dict[OperatorName, Node] = {}
        for known, one in graph.nodes.items():  # senders before receivers
            if known == at.receiver:
                nodes[name] = node
            nodes[known] = one
        connections = [c for c in graph.connections if c != at]
        return replace(graph, nodes=nodes, connections=(*connections, into, out), ids={}, closed=())

    def _without(self, name: OperatorName) -> Graph:
        graph = self.graph
        (into,) = graph.into(name)
        (out,) = graph.out_of(name, OUT)
        joined = Connection(into.sender, into.out, out.receiver, out.port)
        rest = tuple(c for c in graph.connections if name not in (c.sender, c.receiver))
        nodes = {known: node for known, node in graph.nodes.items() if known != name}
        connections = rest if joined in rest else (*rest, joined)
        return replace(graph, nodes=nodes, connections=connections, ids={}, closed=())

    def _renamed(self, name: OperatorName) -> Graph:
        """The same pipeline with another name for one of its operators: the log knows it by its id (R14)."""
        graph, self._count = self.graph, self._count + 1
        new = OperatorName(f"renamed{self._count}")

        def today(known: OperatorName) -> OperatorName:
            return new if known == name else known

        nodes = {today(known): node for known, node in graph.nodes.items()}
        nodes[new] = replace(nodes[new], name=new, options=replace(nodes[new].options, was=name))
        connections = [Connection(today(c.sender), c.out, today(c.receiver), c.port) for c in graph.connections]
        through = {
            Connection(today(c.sender), c.out, today(c.receiver), c.port): way for c, way in graph.through.items()
        }
        scopes = [
            replace(
                scope,
                start=None if scope.start is None else (today(scope.start[0]), scope.start[1]),
                target=None if scope.target is None else (today(scope.target[0]), scope.target[1]),
            )
            for scope in graph.scopes
        ]
        return replace(
            graph,
            nodes=nodes,
            connections=tuple(connections),
            scopes=tuple(scopes),
            through=through,
            ids={},
            closed=(),
        )

    # ---- a start -----------------------------------------------------------------------------------------

    def _meta(self, graph: Graph) -> Meta:
        return Meta(graph.name, with_history(self._world.store, record_of(graph)))

    def _start(self, wanted: Graph, fresh: tuple[OperatorName, ...]) -> None:
        """What `runtime/control/launch.py` does before the first life begins."""
        store = self._world.store
        graph, found = admit(store, wanted, "auto", fresh)
        if fence(store, found):
            graph, found = admit(store, wanted, "auto", fresh)
        spans = self._world.checks.spans
        self._maybe_die()
        begin(store, found, graph)
        self._maybe_die()
        receivers = {wire.channel: store.read(instance_name(wire.receiver)) for wire in found.closed}
        taken = {channel: reader.taken(channel).position for channel, reader in receivers.items()}
        store.set_meta(self._meta(graph))
        for beginning in found.beginnings:
            channel = beginning.wire.channel
            at = store.read(instance_name(beginning.wire.receiver)).taken(channel).position
            spans.setdefault(channel, []).append((at, None))
        for channel, at in taken.items():
            known = spans.setdefault(channel, [(Position(), None)])
            known[-1] = (known[-1][0], at)
        self._take_over(graph)
        self._maybe_die()
        close(store, graph)

    def _maybe_die(self) -> None:
        if self._rnd.random() < 0.1:
            raise _Died

    def _take_over(self, graph: Graph) -> None:
        world, old = self._world, self._world.instances
        some = next(iter(old.values())).spec
        found: dict[InstanceName, Instance] = {}
        made_of = instances_of(graph, world.store.log_id, limits=some.limits, payloads=lambda node: PlainPayloads())
        for name, made in made_of.items():
            items = old[name].items if name in old else 1
            spec = replace(made.spec, until_now=some.until_now, closes=some.closes)
            found[name] = replace(made, spec=spec, items=items, within=0)
        self.graph = graph
        world.finished &= found.keys()
        found = with_inheritance(world.store, found)
        world.checks.evolved(found)
        world.define(found)

    def _begin_lives(self) -> None:
        world = self._world
        world.reopening.finish()
        for name in world.instances:
            if name not in world.finished and (name not in world.newest or not world.newest[name].alive):
                world.spawn(name)

    def every(self) -> list[InstanceName]:
        """All instances, those of operators that are gone among them; senders before receivers."""
        meta = self._world.store.meta()
        return list(self._world.instances) if meta is None else list(specs_of(meta.graph))

    def sweep_former(self, name: InstanceName) -> None:
        """Collects a journal, if it is that of an operator that is gone (R12)."""
        meta, store = self._world.store.meta(), self._world.store
        if meta is not None and name not in self._world.instances and name in store.instances():
            sweep(specs_of(meta.graph)[name], store, self._world.moment, all_rest=True)
