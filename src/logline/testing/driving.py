"""`drive`: one operator in a test, without a pipeline and without a JVM, with a crash after every call.

>>> import pyarrow as pa
>>> import logline as ll
>>> class Total(ll.Operator):
...     outputs = {"out": "total long"}
...     def assign(self, event, ctx):
...         return ["all"]
...     def update(self, inset, acc, event):
...         return (acc or 0) + sum(event.batch["n"].to_pylist())
...     def generate(self, inset, acc, ctx):
...         yield pa.record_batch({"total": [acc]})
>>> with drive(Total()) as op:
...     op.send(pa.record_batch({"n": [1, 2]})).send(pa.record_batch({"n": [4]})).end().out().to_pylist()
[{'total': 7}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa

from logline.connectors.sinks import collect
from logline.engine import stimuli as on
from logline.engine.codec import micros
from logline.engine.events import Output
from logline.engine.spec import Limits
from logline.engine.step import Step
from logline.errors import BadName, DefinitionError
from logline.graph.connector import Sink
from logline.graph.durations import duration
from logline.graph.instances import Channel
from logline.graph.model import ERRORS_SCHEMA, Graph, Node, NodeOptions
from logline.graph.operator import Operator, Tabular
from logline.graph.options import resolve
from logline.graph.schemas import schema, to_batches, to_table
from logline.graph.shipping import check_shippable
from logline.graph.validate import check_declared
from logline.names import (
    ERRORS,
    OUT,
    InstanceName,
    OperatorName,
    PortName,
    Serial,
    Ssn,
    TargetName,
    instance_name,
    operator_id,
)
from logline.runtime.lives.context import call_name
from logline.runtime.lives.instances import Instance, instances_of
from logline.store.memory import MemoryStore
from logline.testing.stage import Stage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""What `ctx.now()` says when a drive begins."""
_OP = OperatorName("op")


class CrashDiffers(AssertionError):
    """With crashes the operator gave something else than without."""


class _Twin:
    """One of the two copies that are driven: the calm one, and the one that crashes after every call."""

    def __init__(
        self,
        op: Operator[Any, Any],
        targets: Mapping[str, Sink],
        options: NodeOptions,
        stubs: Mapping[str, Any],
    ) -> None:
        self.op = op
        self.stubs = stubs
        self.sinks: dict[TargetName, Sink] = {TargetName(t): s for t, s in targets.items()}
        self.options = options
        self.store = MemoryStore("drive")
        self.schemas: dict[str, pa.Schema] = {}
        self.stage: Stage | None = None
        self._journals: dict[str, Any] = {}
        self._sent: dict[str, int] = dict.fromkeys(op.inputs, 0)
        self._commits: dict[str, int] = dict.fromkeys(op.inputs, 0)

    def set_up(self) -> Stage:
        """The operator between feeders, one for each input port, named after it."""
        if self.stage is not None:
            return self.stage
        inputs = {port: self.schemas.get(port, pa.schema([])) for port in self.op.inputs}
        outputs = {PortName(p): schema(s) for p, s in self.op.schemas(inputs).items()} | {ERRORS: ERRORS_SCHEMA}
        node = Node(_OP, None, self.op, tuple(PortName(p) for p in inputs), outputs, self.sinks, self.options)
        graph = Graph("drive", {_OP: node}, ())
        (alone,) = instances_of(graph, self.store.log_id, limits=Limits(ack_after=0), collect=False).values()
        channels = tuple(Channel.between(_feeder(port), OUT, alone.spec.name, PortName(port)) for port in inputs)
        fed = replace(alone, spec=replace(alone.spec, inputs=channels))
        self.stage = Stage({fed.spec.name: fed}, self.store, now=micros(NOON), stubs=self.stubs)
        return self.stage

    @property
    def instance(self) -> Instance:
        """The operator's one instance."""
        (found,) = self.set_up().instances.values()
        return found

    def is_alive(self) -> bool:
        """Whether the operator's life goes on."""
        return self.set_up().lives[self.instance.spec.name].over is None

    def crash(self) -> None:
        """Kills its life; the next one begins with what was committed."""
        stage = self.set_up()
        stage.crash(self.instance.spec.name)
        stage.run_until_idle()

    def send(self, port: str, batch: pa.RecordBatch | None) -> None:
        """An event on the feeder's journal; None is the end."""
        self._sent[port] += 1
        self._commits[port] += 1
        if port not in self._journals:
            self._journals[port] = self.store.claim(_feeder(port))
        rows, nbytes = (0, 0) if batch is None else (batch.num_rows, batch.nbytes)
        event = Output(
            OUT, Ssn(self._sent[port]), batch, rows, nbytes, 0, Serial(0), "event" if batch is not None else "end"
        )
        self._journals[port].commit(Step(number=self._commits[port], outputs=[event]))
        stage = self.set_up()
        stage.lives[self.instance.spec.name].arrive(on.Bell())
        stage.run_until_idle()

    def out(self, port: str) -> pa.Table:
        """Everything on an output port so far."""
        declared = self.instance.payloads.schema_of(PortName(port))
        reader = self.store.read(self.instance.spec.name)
        events = reader.events(PortName(port), Ssn(0), limit=1 << 30, max_bytes=1 << 62)
        return pa.Table.from_batches([e.payload for e in events if not e.mark], schema=declared)


def _feeder(port: str) -> InstanceName:
    """Who sends what the operator takes on that port."""
    return instance_name(operator_id(port, 1))


class Drive:
    """Calls an operator as the engine would. Every method returns the drive itself, so that calls can be chained."""

    def __init__(self, calm: _Twin, crashing: _Twin | None) -> None:
        self._twins = [calm] if crashing is None else [calm, crashing]
        self._calls: list[str] = []

    def send(self, data: Tabular, port: str = "in") -> Self:
        """One event: all that follows from it happens before this returns."""
        if port not in self._twins[0].op.inputs:
            raise BadName(f"the operator has no input port {port!r}: it has {', '.join(self._twins[0].op.inputs)}")
        table = to_table(data, f"drive.send({port!r})")
        batch = to_batches(table, table.schema, f"drive.send({port!r})")[0]
        for twin in self._twins:
            twin.schemas.setdefault(port, batch.schema)
            twin.send(port, batch)
        return self._after(f"send #{len(self._calls) + 1} on {port!r}")

    def advance(self, span: str | timedelta) -> Self:
        """Lets time pass, by all clocks."""
        for twin in self._twins:
            twin.set_up().advance(duration(span) // timedelta(microseconds=1))
        return self._after(f"advance({span!r})")

    def end(self, port: str | None = None) -> Self:
        """The end of one input port, or of all of them: open sets are generated."""
        for twin in self._twins:
            for name in twin.op.inputs if port is None else (port,):
                twin.send(name, None)
        return self._after("end()")

    def crash(self) -> Self:
        """Kills the operator's life; the next one begins with what was committed."""
        for twin in self._twins:
            twin.crash()
        return self._after("crash()")

    def _after(self, call: str) -> Self:
        self._calls.append(call)
        for twin in self._twins[1:]:
            if twin.is_alive():
                twin.crash()
        self._compare()
        return self

    def _compare(self) -> None:
        if len(self._twins) == 1:
            return
        calm, crashing = self._twins
        for port in (*calm.instance.spec.ports, *calm.sinks):
            a, b = (self._table(twin, port) for twin in (calm, crashing))
            if not a.equals(b):
                raise CrashDiffers(
                    f"after {self._calls[-1]}, port {port!r} is not the same when the operator crashes after every "
                    f"call.\nwithout crashes: {a.to_pylist()}\nwith crashes:    {b.to_pylist()}\n"
                    "update() must be pure, state belongs into ctx.state, and what is not deterministic goes through "
                    "ctx.call (give its answers with answers=), or pass crashes=False"
                )

    @staticmethod
    def _table(twin: _Twin, port: str) -> pa.Table:
        if TargetName(port) in twin.sinks:
            return twin.sinks[TargetName(port)].table()  # type: ignore[attr-defined]
        return twin.out(port)

    def out(self, port: str = "out") -> pa.Table:
        """Everything that was emitted on a port so far."""
        known = self._twins[0].instance.spec.ports
        if port not in known:
            raise BadName(f"the operator has no output port {port!r}: it has {', '.join(known)}")
        return self._twins[0].out(port)

    def written(self, target: str) -> pa.Table:
        """Everything that was written to a target so far."""
        return self._table(self._twins[0], target)

    @property
    def counters(self) -> Mapping[str, int]:
        """What the operator counted with `ctx.count`."""
        return dict(self._twins[0].set_up().counters)

    def close(self) -> None:
        """Ends the operator's life in order."""
        for twin in self._twins:
            if twin.stage is not None:
                twin.stage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def drive(
    op: Operator[Any, Any],
    answers: Mapping[Callable[..., Any], Any] | None = None,
    crashes: bool = True,
    *,
    targets: Iterable[str] = (),
    **options: Any,
) -> Drive:
    """Drives one operator. With `crashes` a twin of it crashes after every call, and must give the same.

    `answers` are what `ctx.call(fn, ...)` gives, by function: a value, or a function of the same arguments.
    `targets` names the write targets; `written(target)` shows what was written. `options` as for a pipeline.
    """
    given: object = op
    if not isinstance(given, Operator):
        meant = f": drive({given.__name__}(...))" if isinstance(given, type) else ""
        raise DefinitionError(f"drive() takes an instance of a subclass of Operator, not {given!r}{meant}")
    check_declared("op", op)
    check_shippable("op", op)
    resolved = resolve("op", "operator", options)
    stubs = {call_name(fn): answer for fn, answer in (answers or {}).items()}
    names = tuple(targets)
    calm, crashing = (_Twin(op, {t: collect() for t in names}, resolved, stubs) for _ in range(2))
    return Drive(calm, crashing if crashes else None)
