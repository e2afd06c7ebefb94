"""How far a failure takes whom back: the consistent frontiers of Falkirk Wheel (3.4 to 3.6, Figure 6; R23).

Each instance has some frontiers that it can go back to, its `Checkpoint`s. `consistent` chooses one for each, the
greatest that fit together. Three things bind neighbours:

- a receiver can't have an event that its sender would not have put out yet (`processed` within `projected`);
- a receiver can't go back to before an event that its sender no longer has (`discarded` within its frontier);
- what an instance was told to be complete must stay complete (`notified`, by a second frontier for each instance).

An operator that logs its outputs stops a rollback: `b` has failed and kept nothing, `a` has its outputs in its log.

    >>> edges = [Edge("ab", "a", "b"), Edge("bc", "b", "c")]
    >>> one = EPOCHS.upto((1,))
    >>> logs, forgets = Checkpoint(one), Checkpoint(one, discarded={"bc": one})
    >>> chosen = consistent(edges, {"a": [logs], "b": [], "c": [forgets]})
    >>> [chosen[name].frontier for name in "abc"]
    [upto((1,)), upto(), upto()]

`Monitor` does the same step by step as checkpoints become durable: what it finds is a low-watermark, since no failure
takes anybody back further (4.2). Pipelines have no loops; the algorithm does not mind them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from logline.errors import EngineError
from logline.recovery.times import EPOCHS, Frontier, Order, Time

Projection = Callable[[Frontier], Frontier]


class Edge(NamedTuple):
    """A channel between two instances, as far as times go."""

    name: str
    sender: str
    receiver: str
    projects: Projection | None = None
    """From a frontier of the sender to the times on the edge that it fixes: no event outside it can add one (3.2).
    None: what the checkpoints say in `projected`, and where they say nothing, the same times."""
    order: Order = EPOCHS
    """How the times of the receiver compare."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A frontier that an instance can go back to, and what it has to know of it (Table 1)."""

    frontier: Frontier
    notified: Frontier | None = None
    """Times that it was told are complete, and acted on; None for none."""
    processed: Mapping[str, Frontier] = field(default_factory=dict)
    """By input edge: the times of the events that it has taken. An edge that is left out: the whole frontier."""
    projected: Mapping[str, Frontier] = field(default_factory=dict)
    """By output edge: what the edge's projection makes of the frontier, where only the instance can know that."""
    discarded: Mapping[str, Frontier] = field(default_factory=dict)
    """By output edge: the times, as the receiver sees them, of outputs that are not logged. Left out: all are."""


class Chosen(NamedTuple):
    """Where an instance goes back to."""

    checkpoint: Checkpoint
    notified: Frontier
    """The notification frontier: up to here everything upstream is complete, and stays so."""

    @property
    def frontier(self) -> Frontier:
        """The times whose effects it keeps."""
        return self.checkpoint.frontier


def consistent(edges: Sequence[Edge], available: Mapping[str, Sequence[Checkpoint]]) -> dict[str, Chosen]:
    """The greatest frontiers that fit together. Every instance can also go back to its beginning."""
    solver = _Solver(edges, available)
    solver.lower_until_all_fit(solver.chains)
    return solver.chosen


def resent(logged: Iterable[tuple[Time, object]], kept: Frontier) -> list[object]:
    """Of the outputs that a sender has logged, with their times: those that its receiver has to get again (3.6).

    >>> resent([((1, 3), "a"), ((1, 4), "b")], EPOCHS.upto((1, 3)))
    ['b']
    """
    return [event for time, event in logged if time not in kept]


class Monitor:
    """Follows which checkpoints are durable, and says how far back anybody can ever have to go (4.2).

    >>> monitor = Monitor([Edge("ab", "a", "b")], {"a": EPOCHS, "b": EPOCHS})
    >>> one = Checkpoint(EPOCHS.upto((1,)), discarded={"ab": EPOCHS.upto((1,))})
    >>> monitor.persisted("a", one)         # not before b has it too
    {}
    >>> monitor.persisted("b", Checkpoint(EPOCHS.upto((1,))))
    {'b': upto((1,)), 'a': upto((1,))}
    """

    def __init__(self, edges: Sequence[Edge], orders: Mapping[str, Order]) -> None:
        begun = {name: [Checkpoint(order.nothing)] for name, order in orders.items()}
        self._solver = _Solver(edges, begun)
        self._solver.lower_until_all_fit(self._solver.chains)

    @property
    def low_watermarks(self) -> Mapping[str, Frontier]:
        """By instance: what lies in it is never undone, so what is kept for that can go."""
        return {name: chosen.frontier for name, chosen in self._solver.chosen.items()}

    def persisted(self, name: str, checkpoint: Checkpoint) -> dict[str, Frontier]:
        """A checkpoint is durable. Returns the low-watermarks that rise: with more to choose from, none falls."""
        solver = self._solver
        before = dict(solver.chosen)
        solver.add(name, checkpoint)
        solver.lower_until_all_fit(solver.may_rise(name))
        return {
            other: solver.chosen[other].frontier
            for other in solver.touched
            if before[other].frontier != solver.chosen[other].frontier
        }

    def rollback(self, live: Mapping[str, Checkpoint]) -> dict[str, Chosen]:
        """After a failure: where everybody goes back to. Those that did not fail say what they are now (4.4)."""
        chains = self._solver.chains
        available = {name: [*chain, live[name]] if name in live else chain for name, chain in chains.items()}
        return consistent(self._solver.edges, available)


class _Solver:
    """The fixed point of Figure 6: begins with the greatest frontiers, and lowers what does not fit."""

    def __init__(self, edges: Sequence[Edge], available: Mapping[str, Sequence[Checkpoint]]) -> None:
        self.edges = tuple(edges)
        self._into: dict[str, list[Edge]] = defaultdict(list)
        self._from: dict[str, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            for end in (edge.sender, edge.receiver):
                if end not in available:
                    raise EngineError(f"edge {edge.name}: nothing is known of {end}")
            self._from[edge.sender].append(edge)
            self._into[edge.receiver].append(edge)
        self.chains: dict[str, list[Checkpoint]] = {}
        for name, checkpoints in available.items():
            nothing = self._order_of(name, checkpoints).nothing
            self.chains[name] = [Checkpoint(nothing)]
            for checkpoint in checkpoints:
                if checkpoint.frontier != nothing:
                    self.add(name, checkpoint)
        self.chosen = {name: self._greatest(name) for name in self.chains}
        self.touched: list[str] = []
        """Those that the last `lower_until_all_fit` looked at, in order."""

    def _order_of(self, name: str, checkpoints: Sequence[Checkpoint]) -> Order:
        if checkpoints:
            return checkpoints[0].frontier.order
        return self._into[name][0].order if self._into[name] else EPOCHS

    def add(self, name: str, checkpoint: Checkpoint) -> None:
        """A frontier more, above the others of the instance."""
        chain = self.chains[name]
        last, frontier = chain[-1], checkpoint.frontier
        if not last.frontier <= frontier or frontier == last.frontier:
            raise EngineError(f"{name}: the frontier {frontier} does not come after {last.frontier}")
        if checkpoint.notified is not None and not checkpoint.notified <= frontier:
            raise EngineError(f"{name}: notified of {checkpoint.notified}, which is not within {frontier}")
        chain.append(checkpoint)
        for edge in self._from[name]:
            if not self._fixed(edge, last) <= self._fixed(edge, checkpoint):
                raise EngineError(f"{name}: its projection on {edge.name} shrinks at {frontier}")

    def may_rise(self, name: str) -> list[str]:
        """Who may go less far back, now that an instance has a checkpoint more: those that are not at their greatest
        and that a change can reach through others like them."""
        found, todo = {name: None}, deque([name])
        while todo:
            for other in self._neighbours(todo.popleft()):
                below = self.chosen[other].checkpoint is not self.chains[other][-1]
                noticed = not self.chosen[other].frontier <= self.chosen[other].notified
                if other not in found and (below or noticed):
                    found[other] = None
                    todo.append(other)
        return list(found)

    def _neighbours(self, name: str) -> Iterable[str]:
        yield from (edge.receiver for edge in self._from[name])
        yield from (edge.sender for edge in self._into[name])

    def lower_until_all_fit(self, names: Iterable[str]) -> None:
        """Lowers these from their greatest, and with them whoever does not fit any more, until all do."""
        self.touched = list(names)
        for name in self.touched:
            self.chosen[name] = self._greatest(name)
        todo, waiting = deque(self.touched), set(self.touched)
        while todo:
            name = todo.popleft()
            waiting.discard(name)
            lowered = self._lowered(name)
            if lowered == self.chosen[name]:
                continue
            self.chosen[name] = lowered
            for other in self._neighbours(name):
                if other not in waiting:
                    waiting.add(other)
                    todo.append(other)

    def _greatest(self, name: str) -> Chosen:
        last = self.chains[name][-1]
        return Chosen(last, last.frontier)

    def _lowered(self, name: str) -> Chosen:
        """The greatest checkpoint that fits to what the neighbours have chosen so far. The beginning always does."""
        now = self.chosen[name]
        complete = now.notified
        for edge in self._into[name]:
            complete &= self._project(edge, self.chosen[edge.sender].notified)
        found = next(
            checkpoint
            for checkpoint in reversed(self.chains[name])
            if checkpoint.frontier <= now.frontier and self._fits(name, checkpoint, complete)
        )
        return Chosen(found, found.frontier & complete)

    def _fits(self, name: str, checkpoint: Checkpoint, complete: Frontier) -> bool:
        if checkpoint.frontier == self.chains[name][0].frontier:
            return True
        for edge in self._from[name]:
            discarded = checkpoint.discarded.get(edge.name)
            if discarded is not None and not discarded <= self.chosen[edge.receiver].frontier:
                return False
        for edge in self._into[name]:
            processed = checkpoint.processed.get(edge.name, checkpoint.frontier)
            if not processed <= self._fixed(edge, self.chosen[edge.sender].checkpoint):
                return False
        return checkpoint.notified is None or checkpoint.notified <= complete

    def _fixed(self, edge: Edge, checkpoint: Checkpoint) -> Frontier:
        """What the edge fixes when its sender is at a checkpoint."""
        known = checkpoint.projected.get(edge.name)
        return self._project(edge, checkpoint.frontier) if known is None else known

    def _project(self, edge: Edge, frontier: Frontier) -> Frontier:
        """What the edge fixes at any frontier of its sender. Where only checkpoints know, the last one within it."""
        if edge.projects is not None:
            return edge.projects(frontier)
        told = [one for one in self.chains[edge.sender] if edge.name in one.projected]
        if not told:
            return frontier
        within = [one.projected[edge.name] for one in told if one.frontier <= frontier]
        return within[-1] if within else edge.order.nothing
