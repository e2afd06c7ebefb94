"""One life of an instance: the machine, and the phases, runner and journal that execute its actions.

`execute` does one action and returns what came of it as stimuli; a set in generation may report later. Who
calls it, in which order and on which thread, is the driver's business (`runtime/lives/driver.py`).
"""

from __future__ import annotations

import asyncio
import logging
import operator
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, Protocol

from logline.engine import actions as do
from logline.engine import codec
from logline.engine import stimuli as on
from logline.engine.event_state import NO_EVENT_STATES, event_states_of
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.operating import OperatorMachine
from logline.engine.phase_context import Services
from logline.engine.phases import Phases
from logline.engine.results import Failure
from logline.engine.set_state import AllMembers, SetState
from logline.engine.sets import own_id
from logline.engine.spec import InstanceSpec
from logline.engine.user_errors import USER_ERRORS, UserError, failure_of
from logline.errors import DefinitionError, PermanentError, SchemaError
from logline.graph.connector import Sink
from logline.graph.key_states import KeyCodec
from logline.graph.states import check_logged, encode_state, read_state
from logline.names import ChannelName, PartitionName, Serial, TargetName
from logline.recovery.machines import machine_for
from logline.runtime.lives.gates import Key
from logline.runtime.lives.generation import (
    AsyncRunner,
    Generation,
    GenerationRunner,
    InlineRunner,
    ThreadRunner,
    is_async,
)
from logline.runtime.lives.inherited import InheritedAnswers
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.log_life import EventChannel, LogLife
from logline.runtime.lives.reading import END, Gathering, Reading
from logline.runtime.lives.riding import Riding
from logline.runtime.lives.suspects import Suspects
from logline.store.faults import point
from logline.store.seam import Journals

logger = logging.getLogger("logline")
WRITING = 20_000
"""Microseconds after which no further write of a run is begun."""
_HOPELESS = (PermanentError, DefinitionError, SchemaError)
"""What a sink raises that another try can't mend."""


def wall_clock() -> Wall:
    """What the clock on the wall of this machine says."""
    return Wall(time.time_ns() // 1000)


def waiting_clock() -> Monotonic:
    """What this process waits by, whatever becomes of the wall clock."""
    return Monotonic(time.monotonic_ns() // 1000)


def both_clocks() -> Moment:
    """The time by both clocks: the one to wait by, and the one on the wall."""
    return Moment(waiting_clock(), wall_clock())


class Driver(Protocol):
    """Who drives a life, as the life sees it."""

    def report(self, stimulus: on.Stimulus) -> None:
        """User code on some thread has something to say."""

    def await_durable(self, stimulus: on.Stimulus, key: Key) -> None:
        """User code on the driver's own thread waits; returns when it may go on."""

    def read_waits(self) -> None:
        """A read has got something and goes on, on its own thread: who can should call `hand_over`."""


@dataclass(frozen=True)
class Surroundings:
    """What a life gets from where it is, beside its log."""

    clock: Callable[[], Moment] = both_clocks
    count: Callable[[str, int], None] = lambda metric, n: None
    """`ctx.count`."""
    random: Random | None = None
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None
    """The event loop of async user code; without one it runs like plain code."""
    threads: bool = True
    """Whether plain code with `concurrency` has threads."""
    stubs: Mapping[str, Any] = field(default_factory=dict)
    """Answers of `ctx.call`, by function."""
    suspects: Suspects | None = None
    announce_calls: bool = False
    """Whether every `ctx.call` is announced before it is made, not only those of writers."""
    raised: Callable[[BaseException], None] = lambda error: None
    """Hears of what `generate` raises."""


class Life(LogLife):
    """Executes the actions of one machine, user code included."""

    def __init__(self, instance: Instance, store: Journals, driver: Driver, around: Surroundings) -> None:
        super().__init__(instance.spec, store, machine_for(instance.spec))
        self.instance = instance
        self.suspects = around.suspects
        self.clock = around.clock
        self.phases: Phases | None = None
        self.runner: GenerationRunner | None = None
        self._readings: dict[PartitionName, Reading] = {}
        self._gathering: Gathering | None = None
        self._stopping = False
        self._watch = driver.read_waits
        self._opened: set[TargetName] = set()
        self.applied: dict[TargetName, int] = {}
        """The last write that each target has taken. The machine hears of it when a run of writes is through."""
        if instance.op is not None:
            op, name, state, keyed = instance.op, instance.operator, instance.op.State, instance.op.Keyed
            services = Services(
                around.random or Random(),
                logging.getLogger(f"logline.op.{self.spec.name}"),
                around.count,
                instance.payloads.greatest_time,
                encode_state,
                lambda raw: read_state(name, raw, state) if state is not None else None,
                lambda value, raw: check_logged(name, value, raw, state) if state is not None else None,
                stubs=around.stubs,
                rejected=instance.payloads.rejected,
                keyed=None if keyed is None else KeyCodec(name, keyed, op.migrate),
                all_members=self.all_members,
                event_states=NO_EVENT_STATES if self.spec.stateless else event_states_of(name, op),
            )
            if instance.inherits is not None:
                inherited = InheritedAnswers(instance.inherits, self.spec.name, store.read)
                services = replace(services, inherited=inherited.take)
            self.phases = Phases(
                instance.spec, op, services, lateness=instance.lateness, idle=instance.idle, ttl=instance.ttl
            )
            generation = self._generation = Generation(
                op,
                self.phases,
                services,
                instance.payloads,
                driver.report,
                instance.retry_on,
                around.suspects,
                around.raised,
                instance.riders.keys(),
            )
            announced = bool(instance.spec.targets) or around.announce_calls
            if is_async(op) and around.loop is not None:
                self.runner = AsyncRunner(generation, around.loop(), announced=announced)
            elif instance.spec.concurrency > 1 and around.threads:
                self.runner = ThreadRunner(generation, concurrency=instance.spec.concurrency, announced=announced)
            else:
                self.runner = InlineRunner(generation, driver.await_durable, announced=announced)
        self._do |= {
            do.Rebuild: self._rebuild,
            do.TakeIn: self._take_in,
            do.Apply: self._apply,
            do.CheckClock: self._check_clock,
            do.Checkpoint: self._checkpoint,
            do.LetGo: self._let_go,
            do.Generate: self._generate,
            do.Divert: self._divert,
            do.Discard: self._discard,
            do.Permit: self._permit,
            do.StopCalls: self._stop_calls,
            do.Release: self._release,
            do.AskPosition: self._ask_position,
            do.WriteOut: self._write,
            do.Read: self._read,
            do.Confirm: self._confirm,
        }

    def _input(self, name: ChannelName) -> EventChannel:
        found = self._inputs.get(name)
        if found is None:
            found, rides = super()._input(name), self.instance.riders.get(name)
            if rides:
                found = self._inputs[name] = Riding(found, self._connections[name], rides)
        return found

    def rewire(self, spec: InstanceSpec) -> None:
        super().rewire(spec)
        if self.phases is not None:
            self.phases.rewire(spec)

    def stop_calls(self) -> None:
        """Begins no code of the user's any more, but to take in what is on its way and to clean up. Safe on any
        thread."""
        self._stopping = True
        if self.phases is not None:
            self._generation.calls.stop()

    @property
    def calls_in_flight(self) -> int:
        """Calls of `generate` that are under way."""
        return 0 if self.phases is None else self._generation.calls.count

    def set_name(self, serial: Serial) -> str:
        """The id of a set as the operator chose it, for messages."""
        known = None if self.phases is None else self.phases.sets.get(serial)
        return "" if known is None else str(known.name())

    def close(self, *, in_order: bool) -> None:
        """The life is over. One that ends in order lets user code clean up."""
        if self.runner is not None:
            self.runner.close()
        if self.suspects is not None:
            self.suspects.close(in_order=in_order)
        super().close(in_order=in_order)
        if in_order:
            self._close([self.instance.op])

    def close_outside(self) -> None:
        sinks = self.instance.sinks or {}
        self._close([*(sinks[target] for target in self._opened), *self._readings.values(), self.instance.source])

    def _close(self, parts: Iterable[Any]) -> None:
        for part in parts:
            try:
                if part is not None:
                    part.close()
            except USER_ERRORS as error:  # all that it was for is in the log
                # As text that was made with care: logging itself fails on an error that can't be turned into one.
                trace = failure_of(error).traceback
                logger.warning("close() of %s failed (%s)\n%s", self.spec.name, type(part).__name__, trace)

    # ---- intake ---------------------------------------------------------------------------------------

    def _rebuild(self, action: do.Rebuild) -> Iterable[on.Stimulus]:
        assert self.phases is not None
        point(self.spec.name, "rebuild.before")
        try:
            yield on.Rebuilt(self.phases.restore(action.image, action.events, self.clock()))
        except UserError:
            raise
        except USER_ERRORS as error:  # open() of the user's operator
            raise UserError(failure_of(error)) from error

    def _take_in(self, action: do.TakeIn) -> Iterable[on.Stimulus]:
        assert self.phases is not None
        yield on.TakenIn(self.phases.take_in(action.events, self.clock()))

    def _apply(self, action: do.Apply) -> Iterable[on.Stimulus]:
        assert self.phases is not None
        point(self.spec.name, "generate.inside")
        self.phases.moment = self.clock()
        self._generation.report(self._generation.apply(action.events))  # as runners do: others have their turn first
        return ()

    def _check_clock(self, action: do.CheckClock) -> Iterable[on.Stimulus]:
        assert self.phases is not None
        yield on.TakenIn(self.phases.look_at_clocks(self.clock(), flush=action.flush))

    def _checkpoint(self, action: do.Checkpoint) -> Iterable[on.Stimulus]:
        assert self.phases is not None
        point(self.spec.name, "checkpoint.before")
        yield on.Checkpointed(self.phases.checkpoint(action.serials))

    def _let_go(self, action: do.LetGo) -> Iterable[on.Stimulus]:
        assert self.phases is not None
        self.phases.let_go(action.covered)
        return ()

    # ---- generation -----------------------------------------------------------------------------------

    def _generate(self, action: do.Generate) -> Iterable[on.Stimulus]:
        assert self.runner is not None and self.phases is not None
        point(self.spec.name, "generate.inside")
        self.phases.moment = self.clock()
        for job in action.jobs:
            known = self.phases.sets[job.serial]
            if known.spent and not self.spec.stateless:  # another try: the one before may have consumed `acc`
                self.phases.rebuild(job.serial, [self.pick(m.channel, [m.ssn])[0] for m in known.later()])
        self.runner.start(action.jobs)
        return ()

    def _divert(self, action: do.Divert) -> Iterable[on.Stimulus]:
        """The members' rows go with the error, for whoever looks at it. Those that a checkpoint covers are collected,
        maybe; their names go with it."""
        assert self.phases is not None
        known = self.phases.sets[action.serial]
        payloads, members = self.instance.payloads, list(self.all_members(action.serial, known))
        last = members[-1] if members else None  # there is none if it came of a timer
        if last is not None and self._connections[last.channel].sender == self.spec.name:  # retried rows: these count
            batches = [payloads.rejected(self.pick(last.channel, [last.ssn])[0].payload)]
        else:
            batches = [self.pick(member.channel, [member.ssn])[0].payload for member in known.later()]
        names = [str(own_id(member)) for member in members]
        output = self.instance.payloads.diverted(known.name(), batches, names, action.failure)
        self.phases.drop(action.serial)
        yield on.Diverted(action.serial, output, known.name(), tuple(members))

    def all_members(self, serial: Serial, known: SetState) -> AllMembers:
        """The members of a set; the log has the names of those that were let go (R22)."""
        return AllMembers(known, lambda: self.store.read(self.spec.name).covered(serial))

    def _discard(self, action: do.Discard) -> Iterable[on.Stimulus]:
        assert self.phases is not None
        self.phases.drop(action.serial)
        return ()

    def _stop_calls(self, _: do.StopCalls) -> Iterable[on.Stimulus]:
        self.stop_calls()
        return ()

    def _permit(self, action: do.Permit) -> Iterable[on.Stimulus]:
        assert self.runner is not None
        self.runner.permit((action.serial, action.row, action.n))
        return ()

    def _release(self, action: do.Release) -> Iterable[on.Stimulus]:
        assert self.runner is not None
        self.runner.release(action.answers)
        return ()

    # ---- writes ---------------------------------------------------------------------------------------

    def _sink(self, target: TargetName) -> Any:
        assert self.instance.sinks is not None
        sink = self.instance.sinks[target]
        if target not in self._opened:
            assert isinstance(self.machine, OperatorMachine)
            sink.open(self.machine.writes.scope(target))
            self._opened.add(target)
        return sink

    def _ask_position(self, action: do.AskPosition) -> Iterable[on.Stimulus]:
        number, failure = 0, None
        try:
            sink = self._sink(action.target)
            number = _number_of(sink)
        except USER_ERRORS as error:
            failure = self._failure_of_target(error)
            said = f"{failure.kind}: {failure.message}"
            logger.warning("%s: %r does not say what it has: %s", self.spec.name, str(action.target), said)
        # A newer life may have written meanwhile: what the target has is no news for one that is over.
        yield on.FencedOff() if self.fenced() else on.PositionKnown(action.target, number, failure)

    def _write(self, action: do.WriteOut) -> Iterable[on.Stimulus]:
        """Writes in order, as many as fit into a short while, so that the machine soon knows how far it is."""
        done, until = action.writes[0].ssn - 1, self.clock().after(WRITING)
        failure = None
        try:
            write = self._sink(action.target).write
            for output in action.writes:
                point(self.spec.name, "write.before")
                write(output.payload, output.ssn, action.write_id(output.ssn))
                done = output.ssn
                point(self.spec.name, "write.after")
                self.applied[action.target] = done
                if self._stopping or self.clock().monotonic >= until:
                    break
        except USER_ERRORS as error:
            failure = self._failure_of_target(error)
            said = f"{failure.kind}: {failure.message}"
            logger.warning("%s: write %d to %r failed: %s", self.spec.name, done + 1, str(action.target), said)
        yield on.Written(action.target, done, failure)

    def _failure_of_target(self, error: BaseException) -> Failure:
        """Anything may be over with the next try, but for what says that it is not."""
        tried_again = () if isinstance(error, _HOPELESS) else self.instance.retry_on or (Exception,)
        return failure_of(error, tried_again)

    # ---- reads ----------------------------------------------------------------------------------------

    def _read(self, action: do.Read) -> Iterable[on.Stimulus]:
        """On a thread of its own; the life may be closed meanwhile."""
        return list(self._gather(action))

    def _gather(self, action: do.Read) -> Iterable[on.Stimulus]:
        """Reads up to `items` events, or until `within` has passed, or a pause."""
        name, source = action.partition, self.instance.source
        assert source is not None
        gathering = self._gathering = Gathering(name, self.instance, self.clock())
        then: Literal["more", "pause", "end"] = "more"
        reading = got = None
        try:
            if action.fresh:
                offset = None if action.offset is None else codec.decode(action.offset)
                self._readings[name] = Reading(iter(source.read(name, offset)))
            reading = self._readings[name]
            watched = False
            while then == "more" and not self._stopping and not gathering.is_enough(self.clock().monotonic):
                if not watched and gathering.waits():
                    watched = True
                    self._watch()
                got = reading.next()
                if got is END or got is None:
                    then = "end" if got is END else "pause"
                else:
                    batch, offset = got
                    if not gathering.add(batch, offset):
                        reading.keep(got)
                        return
            items = gathering.take()
            if items is not None:
                yield on.ReadGot(name, items, then)
            elif then != "more":
                reading.keep(got)
        except USER_ERRORS as error:
            if gathering.give_up():
                yield self._failed_read(name, error)
            elif reading is not None:  # what came before was handed over
                reading.keep(error)

    def hand_over(self) -> tuple[list[on.Stimulus], Monotonic | None]:
        """What a read has got while its source blocks for longer than `within`; or when to look again. Called while
        the reader's thread is at it, from another one."""
        gathering = self._gathering
        if gathering is None or not gathering.waits():
            return [], None
        if self.clock().monotonic < gathering.due:
            return [], gathering.due
        try:
            items = gathering.take()
        except USER_ERRORS as error:
            found = [self._failed_read(gathering.partition, error)] if gathering.give_up() else []
            return found, None
        return ([] if items is None else [on.ReadGot(gathering.partition, items, "more")]), None

    def _failed_read(self, name: PartitionName, error: BaseException) -> on.Stimulus:
        self._readings.pop(name, None)
        return on.ReadGot(name, (), "more", failure_of(error, self.instance.retry_on))

    def _confirm(self, action: do.Confirm) -> Iterable[on.Stimulus]:
        assert self.instance.source is not None
        try:
            self.instance.source.confirm(action.partition, [codec.decode(i) for i in action.ids])
        except USER_ERRORS as error:
            yield on.Confirmed(action.partition, action.ids, failure_of(error))
        else:
            yield on.Confirmed(action.partition, action.ids)


def _number_of(sink: Sink) -> int:
    """The last number that the target has, as far as it can say."""
    positioned = sink.guarantee == "positioned"
    found: Any = sink.position() if positioned else sink.highest()
    if found is None and not positioned:
        return 0
    try:
        return operator.index(found)
    except TypeError:
        asked = "position" if positioned else "highest"
        text = f"{asked}() of {type(sink).__name__} must return the last number that was applied, 0 if there is none"
        raise TypeError(f"{text}, and it returned {found!r}") from None
