"""What an author writes: an operator, and what it sees and yields.

An *event* is a batch of records (one Arrow record batch). The methods of an operator are the phases
of LOG.io section 2.3; the engine calls them, logs what must be logged and repeats what recovery needs:

    assign(event, ctx)         which input sets does this event belong to?   (may change ctx.state)
    update(inset, acc, event)  the new event state of that one input set     (pure: recovery repeats it)
    ready(inset, acc, ctx)     generate this set now?
    generate(inset, acc, ctx)  yields Emit, Write, Reject or a bare batch

An operator that does not define `assign` is stateless: each event is an input set of its own, generated
at once, and `acc` is that event's batch.

    >>> class Largest(Operator[int, None]):
    ...     outputs = {"out": "largest long"}
    ...     def generate(self, inset, batch, ctx):
    ...         yield pa.record_batch({"largest": [max(batch["amount"].to_pylist())]})
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import msgspec
import pyarrow as pa

from logline.names import InsetId, InstanceName, PortName, Ssn, event_name

if TYPE_CHECKING:
    from random import Random

A = TypeVar("A")
S = TypeVar("S")

Batch: TypeAlias = pa.RecordBatch
Duration = str | timedelta
SchemaLike: TypeAlias = pa.Schema | str
Cause = Literal["ready", "fired", "end"]
Clock = Literal["event", "wall"]


@runtime_checkable
class ArrowArray(Protocol):
    """Anything that hands out one Arrow array: a record batch of any library."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


@runtime_checkable
class ArrowStream(Protocol):
    """Anything that hands out a stream of Arrow arrays: a table or frame of any library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Tabular = ArrowArray | ArrowStream


def is_tabular(made: object) -> bool:
    """The same as `isinstance(made, Tabular)`, at a fraction of its cost: this is asked for every event."""
    return hasattr(made, "__arrow_c_array__") or hasattr(made, "__arrow_c_stream__")


"""Anything with `__arrow_c_array__` or `__arrow_c_stream__`: pyarrow, pandas, polars."""


class Event(msgspec.Struct, frozen=True, eq=False):
    """A logged batch of records, as an operator's input port sees it.

    A Struct, since it is frozen and made at a fraction of what a class of Python's own takes.
    """

    _sender: InstanceName
    _out: PortName
    ssn: Ssn
    port: PortName
    """The input port it arrived on."""
    batch: Batch
    note: Any = None
    """In `update`: what `assign` attached for this set, or None."""

    @property
    def name(self) -> str:
        """The event's name everywhere: `orders:17`."""
        return event_name(self._sender, self._out, self.ssn)

    def with_note(self, note: Any) -> Event:
        """The same event with the note that belongs to one of its input sets."""
        return Event(self._sender, self._out, self.ssn, self.port, self.batch, note)

    def __repr__(self) -> str:
        return f"Event({self.name!r}, port={self.port!r}, rows={getattr(self.batch, 'num_rows', '?')})"


@dataclass(frozen=True, slots=True)
class Emit:
    """An output event; a bare batch is `Emit(batch)`."""

    data: Tabular
    port: str = "out"


@dataclass(frozen=True, slots=True)
class Write:
    """A write action on one of the operator's `targets`, executed exactly once after the commit (R8)."""

    data: Tabular
    to: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Rows that leave on port `errors`; the rest of the set goes on."""

    data: Tabular
    reason: str
    traceback: str = ""
    """Where the reason is an exception: its traceback."""


Made = Emit | Write | Reject | Tabular


class Dependency(NamedTuple):
    """Output records with a value of `out` come of no other input records than those with such a value of `into`."""

    out: str
    into: str
    how: Literal["same", "from", "until", "of"] = "same"
    """The input's value is the same; from this one on; below this one. `of`: computed from such values of the records
    that the other columns leave, on the first output port; which ones these are, it does not say."""


class Context(ABC, Generic[S]):
    """What an operator may ask of the engine; valid during the call it was given to."""

    state: S
    """The global state. Only `assign` may change it; elsewhere a copy is given."""
    random: Random
    """A causal random generator."""
    id: str
    """The same on every try of this input set (row): an idempotency key for the outside."""
    log: logging.Logger | logging.LoggerAdapter[logging.Logger]
    """Reaches the driver, tagged with operator and input set."""
    cause: Cause
    """Why `generate` runs."""
    watermark: datetime | None
    """The event clock of an operator with a time column."""

    @abstractmethod
    def now(self) -> datetime:
        """The wall clock, in UTC."""

    @abstractmethod
    def call(self, fn: Callable[..., Any], *args: Any, key: object = None) -> Any:
        """Calls `fn(*args)`, sync or async, and commits the answer before returning it (R9).

        In an `async def` await the result; elsewhere it is the answer itself. After a crash the kept
        answer is used; a call whose answer was not committed may be made again. Valid in `generate`.
        The function and the arguments must be the same again; `key` stands for arguments that the
        log can't hold (a client, say) when it is compared.
        """

    @abstractmethod
    def row(self, index: int) -> Context[S]:
        """The context of one row of the set: an `id` and a numbering of calls of its own."""

    @abstractmethod
    def again(self) -> Context[S]:
        """A context for another try of the same code: its calls are numbered as from here on, so that an answer
        which an earlier try got is used and not asked for again."""

    @abstractmethod
    def fire(self, inset: InsetId, *, at: datetime | None = None, clock: Clock = "event") -> None:
        """Generates the open set of this id: now, or at a time of the event or wall clock.

        For one id the latest call wins. Logged with the step; a `fire` in `assign` takes effect after
        that event's updates. Where no set of that id is open, nothing happens. Valid in `assign` and `ready`.
        """

    @abstractmethod
    def ended(self, port: str = "in") -> bool:
        """Whether every channel into the port has ended."""

    @abstractmethod
    def count(self, metric: str, n: int = 1) -> None:
        """Adds to a metric that `status` shows."""


class Operator(Generic[A, S]):
    """The base of custom operators. `A` is the event state of one input set, `S` the global state."""

    inputs: ClassVar[tuple[str, ...]] = ("in",)
    outputs: ClassVar[Mapping[str, SchemaLike]] = {}
    State: ClassVar[type | None] = None
    """Built once without arguments, restored ever after; small, logged whole; only `assign` may change it."""
    time: Mapping[str, str] = MappingProxyType({})
    """Input port -> its event-time column; gives the operator an event clock."""
    depends: Mapping[str, str] = MappingProxyType({})
    """Output column -> the input column that it depends on, and on nothing else."""
    lateness: Duration = timedelta(0)
    idle: Duration | None = None
    on_driver: ClassVar[bool] = False
    """Whether it must live in the driver's process, since it needs what only the driver has: a Spark session."""

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        """The output ports and their schemas, given the schema of each input port.

        Asked once, when the pipeline is defined. By default `outputs`; an operator whose output depends
        on what it is connected to (a filter, say) overrides it. The port `errors` is added to these.
        """
        return self.outputs

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        """Which input records an output record can have come from, for lineage of records (LOG.io Example 11).

        By default what `depends` says; the option `depends=` of the operator takes its place.
        """
        return [Dependency(out, into) for out, into in self.depends.items()]

    def open(self, ctx: Context[S]) -> None:
        """Once per life; clients go here, since the instance is shipped."""

    def assign(self, event: Event, ctx: Context[S]) -> Iterable[InsetId] | Mapping[InsetId, Any]:
        """The ids of the input sets of this event; a mapping attaches a note that is logged."""
        raise AssertionError("a stateless operator is not asked")  # the engine looks for an override

    def update(self, inset: InsetId, acc: A | None, event: Event) -> A:
        """The new event state of that one input set. Pure: recovery repeats it."""
        raise TypeError(f"{type(self).__name__} defines assign() and needs update() too")

    def ready(self, inset: InsetId, acc: A, ctx: Context[S]) -> bool:
        """After each update of that set: generate it now?"""
        return False

    def generate(self, inset: InsetId, acc: A, ctx: Context[S]) -> Iterable[Made] | AsyncIterable[Made]:
        """The output set of one input set."""
        raise TypeError(f"{type(self).__name__} needs generate()")

    def close(self) -> None:
        """At the end of a life that ends in order, and of one that is restarted within its process. What must not be
        lost has no place here: nothing is called when a process dies."""


class BatchOperator(Operator[Batch, None]):
    """A stateless operator whose output follows from the batch alone: it has no use for a context. Runs of events go
    through it at once, without the bookkeeping that an input set needs while it is open.

    >>> class Same(BatchOperator):
    ...     outputs = {"out": "amount long"}
    ...     def each(self, batch):
    ...         yield batch
    """

    @abstractmethod
    def each(self, batch: Batch) -> Iterable[Made]:
        """The output set of one event."""

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterable[Made]:
        return self.each(acc)


def is_batch_operator(op: Operator[Any, Any]) -> bool:
    """Whether `each` says all: a subclass may define `generate` or `assign` after all."""
    return isinstance(op, BatchOperator) and type(op).generate is BatchOperator.generate and is_stateless(op)


def is_stateless(op: Operator[Any, Any]) -> bool:
    """Whether each event is an input set of its own (the operator does not define `assign`)."""
    return type(op).assign is Operator.assign
