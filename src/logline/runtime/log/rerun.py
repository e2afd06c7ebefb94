"""Runs an operator again for debugging: on exactly the input set that made a logged event.

In the foreground, on the caller's thread: a breakpoint in the operator works. Nothing is logged, sent or written. The
members with their notes and the answers of `ctx.call` are the log's; the code is the pipeline's at hand, which may
have changed: that is what it is for. The clock is today's and chance is chance, so code that uses them may give
something else each time.

`map_rows` keeps the answer of its function for each row. Where the function made calls with `ctx.call`, it is run
again, and these get the log's answers. Where it made none, the function itself is what asks the outside: it is not
run unless one says `ask`, and the result says for how many rows.

    found = rerun(log.store, pipeline.graph(), "hourly:12")
    found.same, found.differences()
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from logline.engine.history import Finished
from logline.engine.sets import Answer
from logline.engine.spec import RetrySpec
from logline.errors import BadName, Collected, LogError
from logline.graph.identity import identify
from logline.graph.model import Graph, Node, Wire
from logline.graph.record import ids_in, record_of
from logline.lineage.view import Event, LogView, name_of
from logline.names import Called, ChannelName, OperatorId, OperatorName, PortName, Serial, port_name
from logline.runtime.lives.instances import Instance, instances_of, rides_on
from logline.runtime.lives.riding import Ride
from logline.runtime.log.one_set import generate_again
from logline.store.seam import Store
from logline.store.tables import record_in

logger = logging.getLogger("logline")

Outputs = list[tuple[PortName, pa.Table]]


@dataclass(frozen=True)
class Rerun:
    """What the operator made now, beside what the log says that it made at first."""

    event: str
    operator: str
    inset: str
    members: list[str]
    answers: int
    """Answers of calls that were taken from the log."""
    rows_run: int
    """Of `map_rows`: rows for which the function was run."""
    rows_kept: int
    """Of `map_rows`: rows for which it was not run, since the log's answer stands for the whole function."""
    version: tuple[str, str]
    """Of the operator's code: as the log knows it, and the one at hand."""
    logged: Outputs = field(repr=False)
    made: Outputs = field(repr=False)

    @property
    def same(self) -> bool:
        """Whether the same events came out: ports, order, records."""
        return len(self.logged) == len(self.made) and all(
            a[0] == b[0] and a[1].equals(b[1]) for a, b in zip(self.logged, self.made, strict=True)
        )

    def differences(self) -> list[str]:
        """What is different, one line each: records that are gone (-) or new (+), by port."""
        if self.same:
            return []
        found = []
        for port in dict.fromkeys(port for port, _ in (*self.logged, *self.made)):
            was, now = (_records(outputs, port) for outputs in (self.logged, self.made))
            found += [f"{port} - {text}" for text in (was - now).elements()]
            found += [f"{port} + {text}" for text in (now - was).elements()]
        return found or ["the same records, in other events or in another order"]


def _records(outputs: Outputs, port: PortName) -> Counter[str]:
    tables = [table for name, table in outputs if name == port]
    return Counter(
        ", ".join(f"{name}: {value}" for name, value in row.items()) for table in tables for row in table.to_pylist()
    )


def rerun(store: Store, graph: Graph, event: str, *, ask: bool = False) -> Rerun:
    """Runs the operator of `graph` that made this event again, on the set it was made from.

    `ask=True` calls the outside again where the operator does, instead of taking the answers from the log.
    """
    view = LogView(store)
    asked = view.events(event)
    if len(asked) != 1:
        raise BadName(f"{event!r} names {len(asked)} events: run one again")
    name, inset = _set_of(view, asked[0])
    instance_name = view.expansion.find(name)
    operator = view.expansion.operator_of(instance_name)
    id_, node = ids_in(view.record)[operator], _node(graph, store, ids_in(view.record)[operator])
    if node is None or node.op is None:
        there = ", ".join(graph.nodes)
        raise LogError(f"pipeline {graph.name!r} has no operator {operator!r} to run again; it has {there}")
    kept = _Kept(list(view.reader(name).answers(inset.serial)), by_row=node.op.asks_by_row, ask=ask)
    if kept.rows_kept:
        logger.warning(
            "the function of %r was not run for %d rows: it makes no ctx.call there, so that it is what asks the "
            "outside. The log's answers were taken; say ask=True (--ask) to run it",
            str(name),
            len(kept.rows_kept),
        )
    known = Graph(graph.name, {node.name: node}, (), ids={node.name: id_})
    alone = instances_of(known, store.log_id, collect=False)[instance_name]
    instance = replace(_with_channels(alone, view, inset), riders=_riders(graph, node, id_, ids_in(view.record)))
    state = view.reader(name).image().state if node.op.State is not None else None
    made = generate_again(instance, store, inset, kept.answers, state, ask=ask, may_ask=kept.may_ask)
    versions = (view.operator(name).version, record_of(graph).operators[node.name].version)
    return Rerun(
        event=name_of(asked[0]),
        operator=name,
        inset=view.inset(name, inset),
        members=[name_of((*view.sender(m.channel), m.ssn)) for m in inset.members],
        answers=len(kept.answers),
        rows_run=len(kept.rows_run),
        rows_kept=len(kept.rows_kept),
        version=versions,
        logged=_logged(view, name, inset.serial),
        made=[(o.port, pa.Table.from_batches([o.payload])) for o in made if o.port[0] != "@"],
    )


def _node(graph: Graph, store: Store, operator: OperatorId) -> Node | None:
    """The operator of the pipeline at hand that has this id in the log; it may have been renamed (R14)."""
    record = record_in(store)
    ids = identify(graph, ids_in(record), record.former).ids
    return next((graph.nodes[name] for name, id_ in ids.items() if id_ == operator), None)


class _Kept:
    """Which answers of the log a rerun takes, and which calls it makes by itself."""

    def __init__(self, logged: Sequence[Answer], *, by_row: bool, ask: bool) -> None:
        rows = {answer.row for answer in logged if answer.row >= 0} if by_row else set()
        around = rows if ask else {answer.row for answer in logged if answer.row in rows and answer.n > 0}
        self.rows_run, self.rows_kept = around, rows - around
        self.may_ask = {(row, 0) for row in around}
        self.answers = [] if ask else [a for a in logged if (a.row, a.n) not in self.may_ask]


def _set_of(view: LogView, event: Event) -> tuple[Called, Finished]:
    instance, port, ssn = event
    if view.operator(instance).kind == "source":
        raise LogError(f"{name_of(event)} was read by the source {instance!r}: there is no input set to run again")
    header = view.reader(instance).headers(port, [ssn])[0]
    inset = None if header is None else view.reader(instance).inset(header.serial)
    if inset is None:
        why = (
            "it is beyond the retention of its lineage scope"
            if port in view.ports_enabled(instance).outputs
            else f"no lineage scope captures {port_name(instance, port)}; say p.lineage(start, target)"
        )
        raise LogError(f"the log does not know what {name_of(event)} was made of: {why}")
    return instance, inset


def _riders(
    graph: Graph, node: Node, id_: OperatorId, ids: Mapping[OperatorName, OperatorId]
) -> dict[ChannelName, tuple[Ride, ...]]:
    """The ephemeral operators of the pipeline at hand, by the channels of the log (R24)."""
    return {
        Wire(ids[c.sender], c.out, id_, c.port).channel: rides_on(way)
        for c, way in graph.through.items()
        if c.receiver == node.name and c.sender in ids
    }


def _with_channels(instance: Instance, view: LogView, inset: Finished) -> Instance:
    """The spec knows the channels of the whole pipeline by name."""
    inputs, used = view.expansion.into(instance.spec.name), {m.channel for m in inset.members}
    # Rows that were retried came by none of them: the spec knows their channel by itself.
    channels = tuple(channel for channel in inputs if channel.name in used) or inputs
    spec = replace(instance.spec, inputs=channels, on_error="stop", retry=RetrySpec())
    return replace(instance, spec=spec, retry_on=())


def _logged(view: LogView, instance: Called, serial: Serial) -> Outputs:
    reader = view.reader(instance)
    ports = list(view.operator(instance).outputs)
    found: list[Any] = []
    for port, ssn in reader.made_from(serial, ports):
        try:
            found.append((port, pa.Table.from_batches([reader.pick(port, [ssn])[0].payload])))
        except Collected:
            raise Collected(f"{name_of((instance, port, ssn))} of the same set is collected") from None
    return found
