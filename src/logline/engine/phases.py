"""The phases: state update and triggering, event by event (Algorithm 2; R5, R6, R7).

`Phases` calls `assign`, `update` and `ready`, and holds what is volatile: the event state of each open set and the
live global state. It reports what it decided as an `Intake`, which the machine logs. It does no input or output, and
takes the moment as a value, so that the simulator drives the same code.

Order within one event: `assign`; the merges that it asked for (R32); for each of its sets `update` and `ready`; the
`fire` calls made meanwhile; then the event clock moves on and the timers that it reaches fire (in Example 7, a_2
belongs to hour H and fires H).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logline.engine.clock import Timers, make_timer
from logline.engine.codec import check_inset, check_note
from logline.engine.event_time import EventTime
from logline.engine.events import Output
from logline.engine.fires import kept_id, kept_key
from logline.engine.image import Image
from logline.engine.keyed import KeyChanges, KeyedStates, KeyView, fired_id, is_key_timer
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.open_sets import Merges, OpenSets
from logline.engine.phase_context import PhaseContext, Services
from logline.engine.set_state import SetState
from logline.engine.sets import Checkpoint, Kept, Member, Timer, unassigned_id
from logline.engine.spec import InstanceSpec
from logline.engine.stimuli import Intake
from logline.engine.user_errors import USER_ERRORS, UserError, failure_of
from logline.errors import BadName, StateError
from logline.graph.instances import Channel
from logline.graph.operator import Cause, Event, Operator
from logline.names import ChannelName, InsetId, PortName, Serial, Ssn


class Phases:
    """Runs the first two phases of one instance and holds its volatile state."""

    def __init__(
        self,
        spec: InstanceSpec,
        op: Operator[Any, Any],
        services: Services,
        *,
        lateness: int = 0,
        idle: int | None = None,
        ttl: int | None = None,
    ) -> None:
        self.spec = spec
        self.op = op
        self.services = services
        self.channels: dict[ChannelName, Channel] = {c.name: c for c in (*spec.inputs, *spec.closed)}
        self.time = EventTime.of(spec, op, services.greatest_time, lateness=lateness, idle=idle)
        self.clock = None if self.time is None else self.time.clock
        self.timers = Timers()
        keyed = services.keyed
        self.keys = None if keyed is None else KeyedStates(keyed, ttl=ttl, timer=self.make_timer)
        self.state: Any = None
        self.moment = Moment(Monotonic(0), Wall(0))
        self.sets: dict[Serial, SetState] = {}
        self._open = OpenSets()
        self.ended: set[ChannelName] = set()
        self._serial = Serial(0)
        self._encoded: bytes | None = None
        self._ctx = PhaseContext(self, services, Merges(self._open))
        self._strict = spec.on_error == "stop"

    def rewire(self, spec: InstanceSpec) -> None:
        """Channels have come or gone. One that has come counts for the event clock from now on."""
        self.spec = spec
        self.channels = {c.name: c for c in (*spec.inputs, *spec.closed)}
        if self.time is not None:
            self.time.rewire(spec, self.moment.monotonic)

    # ---- recovery -------------------------------------------------------------------------------------

    def restore(self, image: Image, events: Mapping[ChannelName, Mapping[Ssn, Output]], moment: Moment) -> Intake:
        """R5: the image, and `update` of each open set with exactly its members, in the logged order."""
        self.moment = moment
        intake = Intake()
        self._serial = image.serial
        if self.keys is not None:
            self.keys.restore(image.keyed)
        if self.op.State is not None:
            if image.state is None:
                self.state = self.op.State()
            else:
                self.state = self.services.decode_state(image.state)
                self._encoded = image.state
        self.ended = {c for c, p in image.positions.items() if p.ended}
        if self.time is not None:
            self.time.restore(image, self.ended, moment.monotonic)
        for inset, timer in image.timers.items():
            self.timers.set(inset, timer, moment)
        self.op.open(self._ctx)
        for serial, opened in image.sets.items():
            if opened.cause == "parked":
                continue
            known = self.sets[serial] = SetState.logged(opened)
            if opened.cause is None:
                self._open[opened.id] = serial
            if serial in image.failures:
                continue
            known.acc = self._saved(known)
            for member in opened.members:
                output = events[member.channel][member.ssn]
                if self.spec.stateless:
                    again = member.channel == self.spec.again.name
                    known.acc = self.services.rejected(output.payload) if again else output.payload
                    known.came = None if again else output
                elif not self._update(serial, known, self._event(member.channel, output), member.note, intake):
                    break
        self._note_waits(intake)
        if self.time is not None:
            self.time.hold_again(image, {serial: known.acc for serial, known in self.sets.items()}, intake)
            self.time.report(intake, moment.monotonic, waits=self._waits)
        # Whoever takes in the last end makes the rest due in the same step. But a connection may have been replaced
        # since by one that is at its end (R14): then that is still to be done.
        waits = bool(self._open) or (self.keys is not None and bool(self.timers.by_id))
        intake.rest = waits and self._all_ended and not image.ended
        if self.keys is not None:  # a timer that is reached comes before the next event, in this life too (R31)
            intake.rest = intake.rest or self._reached()
        return intake

    def _reached(self) -> bool:
        """Whether event time has come to the first timer."""
        first, watermark = self.timers.first_event(), None if self.clock is None else self.clock.watermark
        return first is not None and watermark is not None and first <= watermark

    def _event(self, channel: ChannelName, output: Output) -> Event:
        spec = self.channels[channel]
        return Event(spec.called or spec.sender, spec.out, output.ssn, spec.port, output.payload)

    # ---- normal processing ----------------------------------------------------------------------------

    def take_in(self, events: Sequence[tuple[ChannelName, Output]], moment: Moment) -> Intake:
        """The first two phases for a run of events."""
        self.moment = moment
        intake = Intake()
        stateless = self.spec.stateless
        for channel, output in events:
            failed = False
            if output.kind != "event":
                self._take_in_mark(channel, output, intake)
            elif stateless:
                self._take_in_alone(channel, output, intake.alone, intake)
            else:
                failed = not self._take_in_one(channel, self._event(channel, output), intake)
            if self.time is not None and self.time.see(channel, output, moment.monotonic, failed=failed):
                self._move_clock(intake)
        self._report(intake)
        return intake

    def applied(
        self, events: Sequence[tuple[ChannelName, Output]], count: int
    ) -> tuple[Serial, dict[Serial, Member], Intake | None]:
        """So many of a run of events are taken in and generated. Returns the set of the first one, takes the rest in
        as sets that are due, and says what the event clock has seen, if there is one."""
        first = Serial(self._serial + 1)
        self._serial = Serial(self._serial + count)
        rest: dict[Serial, Member] = {}
        intake = None if self.time is None else Intake()
        for channel, output in events[count:]:
            self._take_in_alone(channel, output, rest, intake)
        if self.time is None or intake is None:
            return first, rest, None
        for channel, output in events:
            if self.time.see(channel, output, self.moment.monotonic):
                self._move_clock(intake)
        self._report(intake)
        return first, rest, intake

    def _take_in_alone(
        self, channel: ChannelName, output: Output, alone: dict[Serial, Member], intake: Intake | None
    ) -> None:
        serial = self._new_serial()
        alone[serial] = member = Member(channel, output.ssn)
        self.sets[serial] = SetState(None, output.payload, [member], came=output)
        if self.time is not None and intake is not None:
            self.time.opened(serial, intake)

    def look_at_clocks(self, moment: Moment, *, flush: bool = False) -> Intake:
        """Timers whose time has come or whose span is over, and channels that have fallen silent. To `flush` is to
        take every span as over; what is due by that is logged like any other (R6)."""
        self.moment = moment
        intake = Intake()
        come = self.timers.take(moment)
        if flush:  # the timer of a key says when the key was silent for long enough: it stays
            come += self.timers.take_spans(lambda key: not is_key_timer(key))
        for key, timer in come:
            self._came(key, timer, "fired", intake)
        if self._all_ended:
            self._end_all(intake)
        else:
            self._move_clock(intake)
        self._report(intake)
        return intake

    def _take_in_one(self, channel: ChannelName, event: Event, intake: Intake) -> bool:
        pairs = self._assign(channel, event, intake)
        if pairs is None:
            return False
        for into, other in self._ctx.merges.take():
            self._merge(into, other, intake)
        for inset, note in pairs:
            serial = self._open.get(inset)
            if serial is None:  # also when a set of this id is due or done: that one is closed (R7)
                serial = self._open_set(inset, intake)
            known = self.sets[serial]
            member = Member(channel, event.ssn, note)
            known.members.append(member)
            intake.members.append((serial, member))
            updated = self._update(serial, known, event, note, intake)
            if self.time is not None:
                self.time.updated(serial, inset, known.acc, intake)
            if updated and self._is_ready(serial, known, intake):
                self._make_due(inset, "ready", intake)
        self._fire(intake)
        if not self._strict:
            self._note_state(intake)  # so that a failing assign can be undone alone
        return True

    def _assign(self, channel: ChannelName, event: Event, intake: Intake) -> Iterable[tuple[InsetId, Any]] | None:
        try:
            ids = self.op.assign(event, self._ctx)
            pairs = self._pairs(ids)
            for inset, note in pairs.items():
                check_inset(inset)
                check_note(note)
        except USER_ERRORS as error:
            if self._strict:
                raise UserError(failure_of(error), event.name) from error
            self._ctx.fires.clear()
            self._ctx.merges.take()
            if self.op.State is not None:
                known = self._encoded
                self.state = self.op.State() if known is None else self.services.decode_state(known)
            serial = self._new_serial()
            member = Member(channel, event.ssn)
            self.sets[serial] = SetState(unassigned_id(member), None, [member])
            self._opened(serial, unassigned_id(member), intake)
            intake.members.append((serial, member))
            intake.failed.append((serial, failure_of(error)))
            return None
        return pairs.items()

    def _pairs(self, ids: Any) -> dict[InsetId, Any]:
        """The ids that `assign` gave, each with its note."""
        kind = type(ids)
        if kind is not list and kind is not tuple:
            if kind is dict or isinstance(ids, Mapping):
                return dict(ids)
            if isinstance(ids, str) or not isinstance(ids, Iterable):
                raise TypeError(self._wrong_ids(ids))
            ids = list(ids)  # the code of a generator runs here
        try:
            return dict.fromkeys(ids)
        except TypeError as error:
            raise TypeError(f"{self._wrong_ids(ids)} ({error})") from None

    def _wrong_ids(self, ids: object) -> str:
        return (
            f"{type(self.op).__name__}.assign() returned {ids!r:.80}: return a list of set ids, as in ['a'] or "
            "[('a', 7)], or a mapping of ids to notes; [] for none"
        )

    def _open_set(self, inset: InsetId, intake: Intake) -> Serial:
        serial = self._new_serial()
        self._open[inset] = serial
        self.sets[serial] = SetState(inset)
        intake.opened.append((serial, inset))
        if self.time is not None and not self.time.knows:  # else its first event says more
            self.time.opened(serial, intake)
        return serial

    def _new_serial(self) -> Serial:
        self._serial = Serial(self._serial + 1)
        return self._serial

    def open_sets(self, prefix: tuple[Any, ...] | None) -> dict[InsetId, Any]:
        """The event states of the open sets, or of those whose ids begin so."""
        ids = self._open if prefix is None else self._open.beginning(prefix)
        return {inset: self.sets[self._open[inset]].acc for inset in ids}

    def _merge(self, into: InsetId, other: InsetId, intake: Intake) -> None:
        """Two open sets are one: the members of the other move, in their order (R32)."""
        if into not in self._open:  # it failed in the merge before this one: what failed is closed (R7)
            return
        serial, gone = self._open[into], self._open.pop(other)
        known, moved = self.sets[serial], self.sets.pop(gone)
        known.members += moved.members
        intake.members += [(serial, member) for member in moved.members]
        intake.merged.append((gone, serial))
        intake.inherits.append((serial, gone))
        self._clear_timers(other, intake)
        try:
            known.acc = self.op.merge(known.acc, moved.acc)
        except USER_ERRORS as error:
            self._failed(serial, into, error, None, intake)

    def _opened(self, serial: Serial, inset: InsetId, intake: Intake) -> None:
        intake.opened.append((serial, inset))
        if self.time is not None:
            self.time.opened(serial, intake)

    def _update(self, serial: Serial, known: SetState, event: Event, note: Any, intake: Intake) -> bool:
        inset = known.name()
        try:
            known.acc = self.op.update(inset, known.acc, event if note is None else event.with_note(note))
            return True
        except USER_ERRORS as error:
            self._failed(serial, inset, error, event, intake)
            return False

    def _is_ready(self, serial: Serial, known: SetState, intake: Intake) -> bool:
        inset = known.name()
        try:
            return bool(self.op.ready(inset, known.acc, self._ctx))
        except USER_ERRORS as error:
            self._failed(serial, inset, error, None, intake)
            return False

    def _failed(
        self, serial: Serial, inset: InsetId, error: BaseException, event: Event | None, intake: Intake
    ) -> None:
        if self._strict:
            raise UserError(failure_of(error), event.name if event else "") from error
        if self._open.get(inset) == serial:
            del self._open[inset]
        self._clear_timers(inset, intake)
        intake.failed.append((serial, failure_of(error)))

    def _fire(self, intake: Intake) -> None:
        fires, self._ctx.fires = self._ctx.fires, []
        for one in fires:
            if one.timer is None:
                self._now(one.inset, intake, keep=one.keep)
            elif one.goes_before(self.timers.by_id.get(one.key)):
                self.timers.set(one.key, one.timer, self.moment)
                intake.timers[one.key] = one.timer

    def _make_due(self, inset: InsetId, cause: Cause, intake: Intake) -> None:
        serial = self._open.pop(inset, None)
        if serial is None:
            return
        self._clear_timers(inset, intake)
        intake.due.append((serial, cause))

    def _keep(self, inset: InsetId, intake: Intake) -> None:
        """The set is generated as it is, and another one of its id goes on with its members; unless none is new."""
        serial = self._open.get(inset)
        if serial is None or (known := self.sets[serial]).kept.members == len(known.members):
            return
        if known.saved is not None:  # asked for in an earlier run, before the policy was changed to 'eventual' (R22)
            return
        del self._open[inset]
        after = self.sets[new := self._open_set(inset, intake)]
        after.acc, after.members = known.acc, list(known.members)  # both only read the state: `update` is pure
        after.kept = Kept(known.kept.times + 1, len(known.members))
        intake.kept[new] = after.kept, tuple(known.members)
        intake.inherits.append((new, serial))
        intake.due.append((serial, "kept"))

    def _now(self, inset: InsetId, intake: Intake, *, keep: bool) -> None:
        self._keep(inset, intake) if keep else self._make_due(inset, "fired", intake)

    def _clear_timers(self, inset: InsetId, intake: Intake) -> None:
        for key in (inset, kept_key(inset, "event"), kept_key(inset, "wall")):
            if self.timers.clear(key):
                intake.timers[key] = None

    def _came(self, key: InsetId, timer: Timer, cause: Cause, intake: Intake) -> None:
        """A timer's time has come, or the end."""
        intake.timers[key] = None
        if self.keys is not None and is_key_timer(key):
            serial = self._new_serial()  # a set of no event: the timer is what made it due (R31)
            self.sets[serial] = SetState(fired_id(key, timer.at))
            self._opened(serial, fired_id(key, timer.at), intake)
            intake.due.append((serial, cause))
        elif (inset := kept_id(key)) is None:
            self._make_due(key, cause, intake)
        elif cause == "fired":
            self._keep(inset, intake)

    def _move_clock(self, intake: Intake) -> None:
        if self.clock is None:
            return
        watermark = self.clock.advance(self.moment.monotonic)
        if watermark is None:
            return
        for key, timer in self.timers.take_event(watermark):
            self._came(key, timer, "fired", intake)

    def _take_in_mark(self, channel: ChannelName, mark: Output, intake: Intake) -> None:
        """The end of a channel, or that it is taken back (R11, R11'). A watermark is for the clock alone."""
        if mark.kind == "end":
            self._end(channel, intake)
        elif mark.kind == "reopened":
            self.ended.discard(channel)
            if self.clock is not None:
                self.clock.ended.discard(channel)

    def _end(self, channel: ChannelName, intake: Intake) -> None:
        self.ended.add(channel)
        if self._all_ended:
            self._end_all(intake)
        elif self.clock is not None and channel in self.clock.greatest:
            self.clock.ended.add(channel)
            self._move_clock(intake)

    @property
    def _all_ended(self) -> bool:
        return all(channel in self.ended for channel in self.channels)

    def _end_all(self, intake: Intake) -> None:
        """All that is open is generated (R11)."""
        if self.clock is not None:  # what is generated now is out: what comes later for it is late (R11')
            waited = [timer.at for timer in self.timers.by_id.values() if timer.clock == "event"]
            self.clock.reach(max(waited, default=None))
        for inset in self._in_order():
            self._make_due(inset, "end", intake)
        for key, timer in self.timers.take_all():
            self._came(key, timer, "end", intake)

    def _in_order(self) -> list[InsetId]:
        """The open sets, in the order in which they were opened. Those that read the states of keys are in the order
        in which they would have been due: each one sees what those before it have made (R31)."""
        found = list(self._open)
        if self.keys is not None:
            waits = {inset: self.timers.by_id[inset].at for inset in found if inset in self.timers.by_id}
            found.sort(key=lambda inset: waits.get(inset, 1 << 62))
        return found

    def has_ended(self, port: PortName) -> bool:
        """Whether every channel into the port has ended."""
        channels = [c.name for c in self.spec.inputs if c.port == port]
        if not channels:
            known = ", ".join(dict.fromkeys(repr(str(c.port)) for c in self.spec.inputs))
            raise BadName(f"ended({str(port)!r}): {type(self.op).__name__} has no such input port; it has {known}")
        return all(name in self.ended for name in channels)

    def rebuild(self, serial: Serial, members: Iterable[Output]) -> None:
        """The event state of a set anew, of its checkpoint and exactly the members after it, in the logged order
        (R5, R22)."""
        known = self.sets[serial]
        known.acc, known.spent = self._saved(known), False
        for member, output in zip(known.later(), members, strict=True):
            event = self._event(member.channel, output)
            try:
                known.acc = self.op.update(known.name(), known.acc, event.with_note(member.note))
            except USER_ERRORS as error:
                raise UserError(failure_of(error), event.name) from error

    # ---- the states of keys (R31) ---------------------------------------------------------------------

    def make_timer(self, said: str, at: Any, after: Any, clock: Any) -> Timer | None:
        """The timer that an author asks for; None for now."""
        return make_timer(said, at, after, clock, now=self.moment.wall, has_event_clock=self.clock is not None)

    def view_keys(self, serial: Serial, cause: Cause) -> KeyView | None:
        """For a try of `generate`; None if the operator has no keyed state. A timer that comes at the end sets no
        other one, or there would be no end."""
        if self.keys is None:
            return None
        now = self.moment.wall if self.clock is None else self.clock.watermark
        known = self.sets[serial]
        at_end = cause == "end" and not known.members and known.saved is None
        return self.keys.view(now, at_end=at_end)

    def take_keys(self, view: KeyView) -> KeyChanges:
        """A set is generated: the next one sees what it has changed."""
        assert self.keys is not None
        changes = view.take()
        self.keys.apply(changes)
        if not changes.timers:
            return changes
        self.timers.change(changes.timers, self.moment)
        waits = Intake()
        self._note_waits(waits)
        rest = self._reached() or (bool(self.timers.by_id) and self._all_ended)
        return changes._replace(wait_until=waits.wait_until, timer_at=waits.timer_at, rest=rest)

    # ---- checkpoints (R22) ----------------------------------------------------------------------------

    def checkpoint(self, serials: Iterable[Serial]) -> dict[Serial, Checkpoint]:
        """The event state of these sets as it is after the members taken in so far; not of sets that have failed."""
        found: dict[Serial, Checkpoint] = {}
        for serial in serials:
            known = self.sets[serial]
            if self._open.get(known.name()) == serial:
                try:
                    data, layout = self.services.event_states.encode(known.acc)
                except USER_ERRORS as error:
                    raise UserError(failure_of(error)) from error
                found[serial] = known.saved = Checkpoint(known.count, data, layout, known.digest())
        return found

    def is_saved(self, inset: InsetId) -> bool:
        """Whether the open set of this id has a checkpoint."""
        serial = self._open.get(inset)
        return serial is not None and self.sets[serial].saved is not None

    def let_go(self, covered: Mapping[Serial, int]) -> None:
        """Checkpoints that cover so many members of these sets are durable. One that is due is left alone: its code
        may be reading them on a thread of its own."""
        for serial, count in covered.items():
            known = self.sets.get(serial)
            if known is not None and self._open.get(known.name()) == serial:
                known.let_go(count)

    def _saved(self, known: SetState) -> Any:
        """The event state that a set begins with when it is rebuilt."""
        saved = known.saved
        if saved is None:
            return None
        try:
            return self.services.event_states.decode(saved.state, saved.layout)
        except USER_ERRORS as error:
            raise UserError(failure_of(error)) from error

    # ---- what is reported -----------------------------------------------------------------------------

    def _report(self, intake: Intake) -> None:
        self._note_state(intake)
        if self.time is not None:
            self.time.report(intake, self.moment.monotonic, waits=self._waits)
        self._note_waits(intake)

    def _note_state(self, intake: Intake) -> None:
        if self.op.State is None:
            return
        try:
            encoded = self.services.encode_state(self.state)
        except USER_ERRORS as error:
            raise UserError(failure_of(StateError(f"its state can't be logged: {error}"))) from error
        if encoded != self._encoded:
            try:
                self.services.check_state(self.state, encoded)
            except StateError as error:
                raise UserError(failure_of(error)) from error
            self._encoded = intake.state = encoded

    @property
    def _waits(self) -> bool:
        return self.timers.first_span() is not None or self.timers.first_wall() is not None

    def _note_waits(self, intake: Intake) -> None:
        silence = None if self.clock is None else self.clock.next_silence(self.moment.monotonic)
        waits = (self.timers.first_span(), silence)
        intake.wait_until = min((at for at in waits if at is not None), default=None)
        intake.timer_at = self.timers.first_wall()

    @property
    def serial(self) -> Serial:
        """The last one that was given to a set."""
        return self._serial

    @property
    def encoded_state(self) -> bytes | None:
        """The global state as it was last logged or reported."""
        return self._encoded

    def drop(self, serial: Serial) -> None:
        """Drops the state of a set that is generated, or never will be."""
        self.sets.pop(serial, None)
