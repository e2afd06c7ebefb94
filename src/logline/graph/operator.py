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
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
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

from logline.graph.keys import Keys
from logline.names import Called, InsetId, InstanceName, PortName, Ssn, event_name
from logline.planned import PLANNED, missing

if TYPE_CHECKING:
    from random import Random

A = TypeVar("A")
S = TypeVar("S")

Batch: TypeAlias = pa.RecordBatch
Duration = str | timedelta
SchemaLike: TypeAlias = pa.Schema | str
Cause = Literal["ready", "fired", "kept", "end"]
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
"""Anything with `__arrow_c_array__` or `__arrow_c_stream__`: pyarrow, pandas, polars."""


def is_tabular(made: object) -> bool:
    """The same as `isinstance(made, Tabular)`, at a fraction of its cost: this is asked for every event."""
    return hasattr(made, "__arrow_c_array__") or hasattr(made, "__arrow_c_stream__")


class Event(msgspec.Struct, frozen=True, eq=False):
    """A logged batch of records, as an operator's input port sees it.

    `assign` and `update` get it: `event.batch` are the records, `event.port` the input port, `event.name` its name in
    the log. It is a Struct since that is frozen, and costs a fraction of a plain class to make.
    """

    _sender: Called | InstanceName
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
    """An output event on a port of the operator. A bare batch that `generate` yields means `Emit(batch)`.

    >>> import logline as ll
    >>> class Checked(ll.Operator):
    ...     outputs = {"out": "n long", "large": "n long"}
    ...     def generate(self, inset, batch, ctx):
    ...         n = batch["n"][0].as_py()
    ...         if n < 0:
    ...             yield ll.Reject(batch, "negative")
    ...         else:
    ...             yield ll.Emit(batch, "large" if n > 100 else "out")
    ...             yield ll.Write(batch, "audit")
    >>> op = ll.testing.drive(Checked(), targets=["audit"])
    >>> for n in (5, -1, 500):
    ...     _ = op.send(pa.record_batch({"n": [n]}))
    >>> op.out().to_pylist(), op.out("large").to_pylist(), op.out("errors")["reason"].to_pylist()
    ([{'n': 5}], [{'n': 500}], ['negative'])
    >>> op.written("audit").to_pylist()
    [{'n': 5}, {'n': 500}]
    """

    data: Tabular
    port: str = "out"


@dataclass(frozen=True, slots=True)
class Write:
    """A write action on one of the operator's `targets`. The engine executes it after the commit, and exactly once if
    the target can tell a repeated write apart (R8). `Emit` has an example."""

    data: Tabular
    to: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Rows that the operator refuses: they leave on port `errors`, and the rest of the set goes on. Without rows
    nothing leaves. `Emit` has an example."""

    data: Tabular
    reason: str
    traceback: str = ""
    """The traceback, if the reason is an exception."""
    rows: Sequence[int] = ()
    """Which rows of the input set these are, counted as in `ctx.row`: what `ctx.call` answered for them is kept with
    them, so that a retry does not ask again."""


Made = Emit | Write | Reject | Tabular


class Dependency(NamedTuple):
    """Says that output records with a value of `out` come only from input records with such a value of `into`."""

    out: str
    into: str
    how: Literal["same", "from", "until", "of"] = "same"
    """The input's value is the same; from this one on; below this one. `of`: computed from such values of the records
    that the other columns leave, on the first output port; which ones these are, it does not say."""
    port: str | None = None
    """The input port whose records it is about; None for all of them."""


class Context(ABC, Generic[S]):
    """What an operator may ask of the engine. It is valid only during the call that it was given to.

    >>> import logline as ll
    >>> def rate_of(currency):
    ...     return 0.5                              # a real one would ask a service
    >>> class InEuro(ll.Operator):
    ...     outputs = {"out": "euro double"}
    ...     def generate(self, inset, batch, ctx):
    ...         rate = ctx.call(rate_of, "USD")     # the answer is in the log before it is used
    ...         ctx.count("converted", batch.num_rows)
    ...         yield pa.record_batch({"euro": [n * rate for n in batch["usd"].to_pylist()]})
    >>> op = ll.testing.drive(InEuro()).send(pa.record_batch({"usd": [10, 30]}))
    >>> op.out().to_pylist(), op.counters
    ([{'euro': 5.0}, {'euro': 15.0}], {'converted': 2})
    """

    state: S
    """The global state. Only `assign` may change it; the other methods get a copy."""
    keys: Keys[Any]
    """The states of keys, of an operator that declares `Keyed`. Valid in `generate`."""
    random: Random
    """A random generator of this operator."""
    id: str
    """A text that is the same on every try of this input set or row: an idempotency key for services outside."""
    log: logging.Logger | logging.LoggerAdapter[logging.Logger]
    """A logger whose lines reach the driver, with the names of the operator and the input set."""
    cause: Cause
    """Why `generate` runs: the set is `ready`, was `fired`, was fired and is `kept` open, or its input has come to
    its `end`."""
    version: int = 1
    """In `generate`: 1 for the first output of the set; one more each time after it was fired with `keep`."""
    changed: bool = True
    """In `generate`: whether events have joined the set since its last version."""
    port: str | None = None
    """In `generate` of an operator without `assign`: the input port that the event came on. None when a timer
    comes, and for rejected or corrected rows that are retried: they come from port `errors`."""
    watermark: datetime | None
    """How far event time has come. None for an operator whose inputs have none and that declares no time column, and
    before the first time."""

    @abstractmethod
    def now(self) -> datetime:
        """The wall clock, in UTC."""

    @abstractmethod
    def call(self, fn: Callable[..., Any], *args: Any, key: object = None) -> Any:
        """Calls `fn(*args)`, sync or async, and commits the answer before returning it (R9).

        In an `async def` await the result; elsewhere it is the answer itself. After a crash the engine returns the
        answer that the log has. It may make a call again whose answer was not committed. Valid in `generate`.

        After a crash `generate` must make the same calls with the same arguments. If the log can't hold an
        argument (a client, say), give a `key`: the engine compares it in the place of the arguments.
        """

    @abstractmethod
    def row(self, index: int) -> Context[S]:
        """The context of one row of the set, with an `id` of its own. Calls of different rows may be made in any
        order: each row counts its own."""

    @abstractmethod
    def again(self, waits: Callable[[bool], None] | None = None) -> Context[S]:
        """A context for another try of the code that follows. Its calls are numbered as from here on, so that the
        try gets the answers that an earlier one got, and does not ask again.

        `waits(True)` is called when a call of the try begins to wait for the log, and `waits(False)` when it goes on,
        on the thread that makes the call: time limits leave such waits out."""

    @abstractmethod
    def give_up(self) -> None:
        """Ends the try that this context is of, and all that was made of it with `row` and `again`. Its code may
        still run on some thread: a `call` through the context raises `TryOver` from now on, before it asks. If an
        answer is on its way, the next try gets it. Valid in `generate`."""

    @abstractmethod
    def pause(self, wait: Duration | Awaitable[Any] = "0s") -> Any:
        """Waits in `generate`, for a rate limit, say. In an `async def` await it; there `wait` may be something to
        await, too.

        A stop does not wait for the end of a pause, and `generate` does not come back from it then: the set is
        generated in the next run, with the answers that its calls have got. `ctx.pause()` in a long loop is a place
        where a stop may cut it off; each `ctx.call` is one by itself. Valid in `generate`.
        """

    @abstractmethod
    def fire(
        self,
        inset: InsetId,
        *,
        at: datetime | None = None,
        after: Duration | None = None,
        clock: Clock = "event",
        keep: bool = False,
    ) -> None:
        """Generates the open set of this id: now, at a time of the event or wall clock, or `after` so much time.

        With `keep` the set stays open: its next version is made of the same events and those that join it later.
        `generate` must leave the event state as it is then. Such a fire goes beside the one that closes the set.
        There may be one on each clock, and of several calls the earliest time counts. It does nothing if no event has
        joined the set since its last version. Each version logs its members anew: do not fire it at every event.

        Wait with `after`, not with `at=ctx.now() + ...`: if somebody sets the wall clock back, a timer for a time
        comes that much later. With both, and `clock="wall"`, it comes at the time, but no later than `after` so much.

        For one id the latest call wins. The engine logs the call with the step. A `fire` in `assign` takes effect
        after that event's updates. If no set of that id is open, nothing happens. Valid in `assign` and `ready`.
        """

    @abstractmethod
    def open_sets(self, prefix: tuple[Any, ...] | None = None) -> Mapping[InsetId, Any]:
        """The input sets that are open, with their event states, in the order in which they were opened: as they are
        before this event. With `prefix`, those whose id is a tuple that begins so; this looks at no others.

        Read the states, do not change them. A set that is due is not among them. Valid in `assign`.
        """

    @abstractmethod
    def merge(self, into: InsetId, *others: InsetId) -> None:
        """Says that open sets are one: the members of `others` move to `into`, after its own and in their order, and
        `Operator.merge` joins the event states. From then on there is only `into`.

        It takes effect before the updates of this event, which may join `into` by then. The timer of `into` stays,
        those of the others are gone. A set that is due or done is closed: to merge it is an error. Valid in `assign`.
        """

    @abstractmethod
    def ended(self, port: str = "in") -> bool:
        """Whether every channel into the port has ended."""

    @abstractmethod
    def count(self, metric: str, n: int = 1) -> None:
        """Adds `n` to a counter of the operator; `Run.status` shows it."""

    if not TYPE_CHECKING:  # a type checker and an editor see what there is

        def __getattr__(self, name):
            if name in PLANNED["ctx"]:
                raise missing("ctx", name, "")
            return object.__getattribute__(self, name)  # raises: a property's own error comes here too


class Operator(Generic[A, S]):
    """The base of custom operators. `A` is the event state of one input set, `S` the global state.

    >>> import logline as ll
    >>> class Totals(ll.Operator):
    ...     outputs = {"out": "total long"}
    ...     def assign(self, event, ctx):
    ...         return ["all"]                                            # one input set for everything
    ...     def update(self, inset, acc, event):
    ...         return (acc or 0) + sum(event.batch["n"].to_pylist())     # pure: recovery repeats it
    ...     def generate(self, inset, acc, ctx):
    ...         yield pa.record_batch({"total": [acc]})
    >>> op = ll.testing.drive(Totals())
    >>> op.send(pa.record_batch({"n": [1, 2]})).send(pa.record_batch({"n": [3]})).end().out().to_pylist()
    [{'total': 6}]
    """

    inputs: ClassVar[tuple[str, ...]] = ("in",)
    outputs: ClassVar[Mapping[str, SchemaLike]] = {}
    State: ClassVar[type | None] = None
    """The type of the global state. The first life makes one without arguments, later ones get it from the log. Keep
    it small: each change is logged whole. Only `assign` may change it."""
    Keyed: type | None = None
    """The type of the state that each key has, for `ctx.keys` in `generate`. Input sets are generated in order then,
    one at a time: each event as a set of its own, or, with `assign`, sets in the order in which they are due. At the
    end of the input that is the order of their timers."""
    migrate: Callable[[Any], Any] | None = None
    """Makes a state of a key of one that was logged by an earlier `Keyed`, as a dict of plain values."""
    ttl: Duration | None = None
    """How long the state of a key is kept after it was last set; None for good. It is counted by the event clock if
    there is one, else by the wall clock."""
    time: Mapping[str, str] = MappingProxyType({})
    """Input port -> its event-time column; gives the operator an event clock."""
    depends: Mapping[str, str] = MappingProxyType({})
    """Output column -> the input column that it depends on, and on nothing else."""
    lateness: Duration = timedelta(0)
    idle: Duration | None = None
    untimed: ClassVar[tuple[str, ...]] = ()
    """Output ports whose rows may be before the watermark, beside `errors`: those of late rows, say. They pass no
    event time on."""
    ignores_time_of: ClassVar[tuple[str, ...]] = ()
    """Input ports whose event time does not count: no row of theirs is put out. The others alone say how far the
    event time of the outputs is."""
    moves_members: bool = False
    """Whether it gives the members of an input set to another one, by `ctx.merge` or `ctx.fire(keep=True)`. All of
    them must be there then, so `policy="eventual"` is refused."""
    on_driver: ClassVar[bool] = False
    """Whether it must live in the driver's process, since it needs what only the driver has: a Spark session."""
    reuses_memory: ClassVar[bool] = True
    """Whether it may change what it yielded later, as one does that fills the same NumPy array again. Tables over
    memory that can be written to are copied then. False saves the copy."""
    asks_by_row: ClassVar[bool] = False
    """Whether the first `ctx.call` of each row is the author's own function, as in `map_rows`. A rerun then runs that
    function around the answers that it got from the log."""

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

    def parameters(self) -> Mapping[str, object]:
        """What gives open input sets their meaning: the size of a window, say. The log keeps it as text, and while
        sets are open a run with another one is refused (R14): `update` would rebuild them as something else."""
        return {}

    def key_rows(self) -> pa.Schema | None:
        """Of an operator with `Keyed = bytes` whose states are Arrow record batches, without their schema: the
        columns of these rows. `log.state` shows them then."""
        return None

    def passes(self, watermark: datetime) -> datetime | None:
        """How far the event time of the outputs is when that of the inputs is at `watermark`: nothing that follows
        from rows at or after the watermark is before it. The same time by default; None, always, if the outputs have
        no event time. Must be pure, and never go back.

        Rows that wait in an input set need no care: the engine holds the outputs' time back until they are out.
        """
        return watermark

    def earliest(self, inset: InsetId, acc: A) -> datetime | None:
        """The earliest event time that can come of this input set with the rows that it has: the start of a window or
        of a session. Asked after each `update`. By default None: the engine takes what was passed on when the set was
        opened. Must be pure."""
        return None

    def open(self, ctx: Context[S]) -> None:
        """Called once per life, before any event. Make clients here: what `__init__` makes is sent to a worker."""

    def assign(self, event: Event, ctx: Context[S]) -> Iterable[InsetId] | Mapping[InsetId, Any]:
        """Returns the ids of the input sets that this event joins. A mapping attaches a note to each, which is logged
        and comes back to `update` as `event.note`."""
        raise AssertionError("a stateless operator is not asked")  # the engine looks for an override

    def update(self, inset: InsetId, acc: A | None, event: Event) -> A:
        """Returns the new event state of that one input set; `acc` is the old one, None at first. It must be pure,
        since recovery repeats it."""
        raise TypeError(f"{type(self).__name__} defines assign() and needs update() too")

    def merge(self, acc: A, other: A) -> A:
        """Returns the event state of two sets that `ctx.merge` makes one; it must be pure.

        Recovery does not call it: it rebuilds the merged set by `update`, with the members of `acc` and then those of
        `other`. So the two must come to the same, and a state must not depend on the id that its set had.
        """
        raise TypeError(f"{type(self).__name__} needs merge(): its assign() calls ctx.merge()")

    def ready(self, inset: InsetId, acc: A, ctx: Context[S]) -> bool:
        """Whether to generate the set now. Called after each update of the set."""
        return False

    def generate(self, inset: InsetId, acc: A, ctx: Context[S]) -> Iterable[Made] | AsyncIterable[Made]:
        """Yields the output set of one input set: batches, `Emit`, `Write` or `Reject`. May be an `async def`."""
        raise TypeError(f"{type(self).__name__} needs generate()")

    def encode(self, acc: A) -> bytes:
        """The event state of a set as bytes, for `policy="eventual"` (R22). Without it, a type that `update` declares
        goes through msgspec, and plain values and Arrow tables go as they are. Must leave `acc` as it is."""
        raise TypeError(f"{type(self).__name__} has no encode()")  # the engine looks for an override

    def decode(self, data: bytes) -> A:
        """The event state that `encode` wrote: of the same members, `update` and `generate` must make the same of it
        as of the one that was encoded."""
        raise TypeError(f"{type(self).__name__} has no decode()")

    def layout(self) -> str:
        """What `encode` writes, as a text that changes whenever code that has another one could not read it. By
        default what `parameters` says."""
        return ", ".join(f"{name}={value}" for name, value in self.parameters().items())

    def close(self) -> None:
        """Called when a life ends in order, and when it is restarted within its process. A process that dies calls
        nothing, so do not save anything here."""


class BatchOperator(Operator[Batch, None]):
    """A stateless operator whose output follows from the batch alone, without a context. The engine gives it runs of
    events at once, and saves the bookkeeping of an input set for each.

    >>> class Same(BatchOperator):
    ...     outputs = {"out": "amount long"}
    ...     def each(self, batch):
    ...         yield batch
    >>> import logline as ll
    >>> ll.testing.drive(Same()).send(pa.record_batch({"amount": [3]})).out().to_pylist()
    [{'amount': 3}]
    """

    @abstractmethod
    def each(self, batch: Batch) -> Iterable[Made]:
        """Yields what is made of one event: batches, `Emit`, `Write` or `Reject`."""

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterable[Made]:
        return self.each(acc)


def is_batch_operator(op: Operator[Any, Any]) -> bool:
    """Whether `each` says all: a subclass may define `generate` or `assign` after all."""
    return isinstance(op, BatchOperator) and type(op).generate is BatchOperator.generate and is_stateless(op)


def is_stateless(op: Operator[Any, Any]) -> bool:
    """Whether each event is an input set of its own (the operator does not define `assign`)."""
    return type(op).assign is Operator.assign
