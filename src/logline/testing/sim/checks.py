"""The invariants of DESIGN section 4, checked after every action, and what must hold at the end.

The checks keep a ghost: every row that ever was committed, by name. It is what a failure-free run would have had
at its ports, so at the end each operator is asked whether its outputs are what its inputs demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from logline.engine import actions as do
from logline.engine import codec
from logline.engine.clock import of_inputs
from logline.engine.events import CLOSED, MARK_BYTES, Output, Position
from logline.engine.image import Image, Needs, SetCounts
from logline.engine.moments import Moment, Wall
from logline.engine.operating import OperatorMachine
from logline.engine.set_state import SetState
from logline.engine.sets import Member
from logline.engine.spec import InstanceSpec, again_channel, write_port
from logline.engine.step import Step
from logline.graph.instances import Channel
from logline.graph.states import decode_state
from logline.names import (
    ERRORS,
    OUT,
    ChannelName,
    InstanceName,
    OperatorId,
    PortName,
    Serial,
    Ssn,
    TargetName,
    generation_of,
    sender_of,
)
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Life
from logline.store.memory import MemoryStore
from logline.testing.sim.checkpoint_checks import CheckpointChecks
from logline.testing.sim.keyed import KeyedLists
from logline.testing.sim.lineage_checks import LineageChecks
from logline.testing.sim.looks import Looks
from logline.testing.sim.merging import Merging, check_merging
from logline.testing.sim.names_seen import NamesSeen
from logline.testing.sim.operators import Mirror, Windows
from logline.testing.sim.outside import PaidService, Violation
from logline.testing.sim.time_checks import TimeChecks

_MIRROR = write_port(TargetName("mirror"))
_NEW_WORK = (do.TakeIn, do.Apply, do.CheckClock, do.Generate, do.Read)
"""What back-pressure holds back."""
OF_USER_CODE = (do.Release, do.Divert, do.Generate, do.Apply)
"""Before these there is something to check."""


class Checks:
    """Watches one simulated run."""

    def __init__(
        self,
        instances: Mapping[InstanceName, Instance],
        store: MemoryStore,
        service: PaidService,
        clock: Callable[[], Moment],
    ) -> None:
        self._looks = Looks(store)
        self.lineage = LineageChecks(instances, store, clock, self._looks)
        self._names = NamesSeen()
        self._names.note(instances)
        self.checkpoints = CheckpointChecks(store, self._names)
        self.instances = instances
        self.store = store
        self.service = service
        self.ghost: dict[tuple[InstanceName, PortName], dict[Ssn, Output]] = {}
        self.time = TimeChecks(self.ghost)
        self._before: dict[InstanceName, Image] = {}
        self._generated: Counter[tuple[InstanceName, int]] = Counter()
        self.errors: set[tuple[InstanceName, Ssn]] = set()
        """Events on ports `errors` that nobody has retried or dropped."""
        self._retried: set[tuple[InstanceName, Ssn]] = set()
        self._dropped: set[tuple[InstanceName, Ssn]] = set()
        self._memberships: dict[InstanceName, set[tuple[ChannelName, Ssn, Serial]]] = {}
        self.spans: dict[ChannelName, list[tuple[Position, Position | None]]] = {}
        """By a channel that has come or gone (R14): after which event it was taken, and up to which; None: as far as
        the receiver is."""
        self._former: dict[InstanceName, Instance] = {}
        """Of operators that are gone."""

    def evolved(self, instances: Mapping[InstanceName, Instance]) -> None:
        """The pipeline has changed."""
        self._former |= {name: one for name, one in self.instances.items() if name not in instances}
        self.instances = instances
        self.errors = {(name, ssn) for name, ssn in self.errors if name in instances}
        self._names.note(instances)
        self.lineage.evolved(instances)
        self.time.promised = False

    def _spans(self, channel: ChannelName, image: Image) -> list[tuple[Position, Position]]:
        """Which events the receiver has taken by the channel."""
        known = self.spans.get(channel, [(Position(), None)])
        now = image.positions.get(channel, Position())
        return [(after, now if upto is None else upto) for after, upto in known]

    # ---- around an action -----------------------------------------------------------------------------

    def asked(self, life: Life, action: do.Action) -> None:
        """A life that stops begins nothing. R13: no new work is begun while a receiver is a whole bound behind. A
        machine that knows less than the receivers' journals say can only be more careful."""
        if not isinstance(action, _NEW_WORK):
            return
        if life.machine.stopping:
            raise Violation(f"BEGUN-AFTER-STOP {life.spec.name} asks for {type(action).__name__}")
        for port, receivers in life.spec.ports.items():
            for channel in receivers:
                taken = self.store.read(channel.receiver).taken(channel.name)
                lag = life.machine.outbox.heads[port].total - taken.position.total
                mark = MARK_BYTES if port in life.spec.timed_out else 0  # of the commit that follows
                if lag >= life.spec.limits.port_bytes + mark:
                    kind = type(action).__name__
                    raise Violation(
                        f"BOUND {life.spec.name} asks for {kind}, {channel.receiver} is {lag} bytes behind"
                    )

    def before(self, life: Life, action: do.Action, *, current: bool) -> None:
        """R5: nothing is generated from half-rebuilt state. R9: an answer that is handed on is committed."""
        if current and isinstance(action, do.Release):
            reader = self.store.read(life.spec.name)
            for answer in action.answers:
                if answer not in reader.answers(answer.serial):
                    raise Violation(f"UNLOGGED-ANSWER {life.spec.name} hands on {answer}")
        if current and isinstance(action, do.Divert) and life.phases is not None:
            self.lineage.generates(life.spec.name, action.serial, self._members(life, action.serial))
        if isinstance(action, do.Generate) and isinstance(life.instance.op, Mirror):
            heads = life.machine.outbox.heads
            life.instance.op.logged = (lambda: heads[_MIRROR].last) if current else None
        if current and isinstance(action, do.Apply) and life.phases is not None:
            for serial, (channel, event) in enumerate(action.events, life.phases.serial + 1):
                self.lineage.generates(life.spec.name, Serial(serial), [Member(channel, event.ssn)])
        if not current or not isinstance(action, do.Generate) or life.phases is None:
            return
        for job in action.jobs:
            known = life.phases.sets.get(job.serial)
            if known is None:
                raise Violation(f"NO-STATE {life.spec.name} set {job.serial}")
            members = self._members(life, job.serial)
            self.lineage.generates(life.spec.name, job.serial, members)
            if life.spec.stateless:
                continue
            got = [name for name, _ in known.acc or ()]
            if not self._names.are(got, members, life.phases.channels):
                raise Violation(f"HALF-BUILT {life.spec.name} set {known.name()!r}: {got}, members {members}")

    def _members(self, life: Life, serial: Serial) -> list[Member]:
        assert life.phases is not None
        known = life.phases.sets[serial]
        return self.checkpoints.all_members(life.spec.name, serial, known.members, known.covered)

    def rebuilt(self, life: Life, image: Image) -> None:
        """R5, R6: rebuilding gives back what was logged, and changes nothing of it."""
        phases = life.phases
        assert phases is not None
        if phases.encoded_state != image.state or phases.timers.by_id != image.timers:
            raise Violation(f"REBUILT {life.spec.name} has another state or other timers than its image")
        if (
            phases.state is not None
            and image.state is not None
            and phases.services.encode_state(phases.state) != image.state
        ):
            raise Violation(f"REBUILT {life.spec.name} has changed its state")
        if phases.clock is not None:
            gone = {channel.name for channel in life.spec.closed}
            logged = {key: value for key, value in image.clock.items() if key.lstrip("~#") not in gone}
            if phases.clock.image() != of_inputs(logged):
                raise Violation(
                    f"REBUILT {life.spec.name} has another clock: {phases.clock.image()}, logged {logged}"
                )

    def at_rest(self, life: Life, now: Wall, *, wakes: bool) -> None:
        """Nothing moves, nobody has anything to do: what this life must not be waiting with."""
        machine, spec = life.machine, life.spec
        if (
            machine.phase != "running"
            or machine.commits.flying is not None
            or not isinstance(machine, OperatorMachine)
        ):
            return
        image = self._looks.image(spec.name)
        bound = spec.limits.port_bytes
        for name, channel in machine.inbox.channels.items():
            logged = image.positions.get(name, Position())
            if (channel.position.total - logged.total) * 2 >= bound and not machine.in_flight:
                raise Violation(f"UNACKNOWLEDGED {name}: {channel.position}, logged {logged}, the bound is {bound}")
            if channel.position != logged and not wakes:
                raise Violation(f"UNACKNOWLEDGED {name}: {channel.position}, logged {logged}, for ever")
        overdue = [i for i, timer in image.timers.items() if timer.clock == "wall" and timer.at < now]
        if overdue and not wakes and not machine.outbox.blocked():
            raise Violation(f"OVERDUE {spec.name} {overdue}")

    def resolved(self, name: InstanceName, ssn: Ssn, step: Step, *, retried: bool) -> int:
        """An error was retried, or dropped, by this step. Returns how many events it put in the place of its rows:
        they are on their way too."""
        if (name, ssn) in self._dropped | self._retried:
            raise Violation(f"SETTLED {name}.errors:{ssn} twice")
        (self._retried if retried else self._dropped).add((name, ssn))
        if ssn in step.errors.resolved:
            self.errors.discard((name, ssn))
        given = [(name, output.ssn) for output in step.outputs if not output.mark]
        self._retried.update(given)
        return len(given)

    # ---- after a commit -------------------------------------------------------------------------------

    def after_commit(self, name: InstanceName, life: Life | None = None) -> None:
        """Everything that a commit may not do. `life`: the one that has made it, if it is known to be the newest."""
        if name not in self.instances:
            return  # a zombie of an operator that is gone: it was fenced off
        spec = self.instances[name].spec
        image = self._looks.image(name)
        self._check_rows(name, spec, image)
        self._check_progress(name, spec, image)
        self._check_sets(name, image)
        if life is not None and life.phases is not None:
            self._check_members(name, image, life.phases.sets)
        self._check_order(name, spec, image)
        self._check_memberships(name, spec)
        self._check_state(name, spec, image)
        self._check_keyed(name, image)
        self._check_needed(name, spec)
        self._check_bound(name, spec, image)
        self.time.after_commit(spec, image)
        self.lineage.after_commit(name, image)
        self.checkpoints.after_commit(name, self.instances[name], image)
        self.checkpoints.diverted(name, image, self.ghost.get((name, ERRORS), {}))
        for answers in image.answers.values():
            for answer in answers:
                value = codec.decode(answer.value)
                if isinstance(value, list):
                    self.service.keep(value[0], answer.value)
        self._before[name] = image

    def _check_rows(self, name: InstanceName, spec: InstanceSpec, image: Image) -> None:
        """R1, R2: what was visible once never changes, and SSNs have no gaps."""
        for port in (*spec.ports, *map(write_port, spec.targets)):
            head = image.head(port)
            ghost = self.ghost.setdefault((name, port), {})
            rows = self.store.data(name).events.ports.get(port, {})
            for ssn in range(1, head.last + 1):
                row, known = rows.get(Ssn(ssn)), ghost.get(Ssn(ssn))
                if row is None:
                    if known is None:
                        raise Violation(f"GAP {name}.{port}:{ssn} was never logged")
                    if ssn >= head.base or ssn in head.pinned:
                        raise Violation(f"LOST {name}.{port}:{ssn} is not there, base {head.base}")
                elif known is None:
                    ghost[Ssn(ssn)] = row
                elif row != known:
                    raise Violation(f"LOG-REWRITTEN {name}.{port}:{ssn} {known} -> {row}")
                elif ssn < head.base and ssn not in head.pinned:
                    raise Violation(f"KEPT {name}.{port}:{ssn} is collected and still there")
            self._check_marks(name, port, image)
            if len(ghost) > head.last:
                raise Violation(f"LOG-SHRUNK {name}.{port} to {head.last}")
            if port == ERRORS:
                self._check_errors(name, image, rows)

    def _check_marks(self, name: InstanceName, port: PortName, image: Image) -> None:
        """R11, R11': after an end there is nothing but that it is taken back."""
        ghost = self.ghost[name, port]
        marks = [ssn for ssn in sorted(ghost) if ghost[ssn].kind in ("end", "reopened")]
        kinds = [ghost[ssn].kind for ssn in marks]
        if kinds != ["end", "reopened"] * (len(marks) // 2) + ["end"] * (len(marks) % 2):
            raise Violation(f"MARKS {name}.{port}: {kinds}")
        if any(back != end + 1 for end, back in zip(marks[::2], marks[1::2], strict=False)):
            raise Violation(f"AFTER-END {name}.{port}")
        if port[0] != "@" and (len(marks) != image.marks or (image.ended and marks[-1] != image.head(port).last)):
            raise Violation(f"MARKS {name}.{port}: {kinds}, the image counts {image.marks}")

    def _check_errors(self, name: InstanceName, image: Image, rows: Mapping[Ssn, Output]) -> None:
        """R12: an error is there until it is retried or dropped, and until its rows have come out anew."""
        handled = self._retried | self._dropped
        for ssn, row in self.ghost[name, ERRORS].items():
            if not row.mark and (name, ssn) not in handled:
                self.errors.add((name, ssn))
                if ssn not in rows or ssn in image.resolved:
                    raise Violation(f"COLLECTED-NEEDED {name}.errors:{ssn}: nobody has retried or dropped it")
        again = again_channel(name)
        for member in (m for opened in image.sets.values() for m in opened.members if m.channel == again):
            if member.ssn not in rows:
                raise Violation(f"COLLECTED-NEEDED {name}.errors:{member.ssn}: its rows are on their way")

    def _check_progress(self, name: InstanceName, spec: InstanceSpec, image: Image) -> None:
        """R4, R8, R11: positions and write positions never go back, nor beyond what there is."""
        before = self._before.get(name, Image())
        for channel in spec.inputs:
            at, was = image.positions.get(channel.name), before.positions.get(channel.name)
            if at is None:
                if was is not None:
                    raise Violation(f"POSITION of {channel.name} is gone")
                continue
            if was is not None and was != CLOSED and (at.ssn < was.ssn or at.marks < was.marks):
                raise Violation(f"POSITION-BACK {channel.name} {was} -> {at}")
            row = self.ghost.get((channel.sender, channel.out), {}).get(at.ssn)
            if at.ssn and (row is None or row.total != at.total or row.end != at.ended):
                raise Violation(f"POSITION {channel.name} {at} does not fit {row}")
        for target in spec.targets:
            done, given = image.written.get(target, 0), image.head(write_port(target)).last
            if done > given or done < before.written.get(target, 0):
                raise Violation(f"WRITTEN {name} {target}: {done} of {given}")
        parked = all(opened.cause == "parked" for opened in image.sets.values())
        if image.left and (not parked or image.due or not image.ended):
            raise Violation(f"LEFT {name} with open sets or without an end")
        if image.left and any(image.written.get(t, 0) != image.head(write_port(t)).last for t in spec.targets):
            raise Violation(f"LEFT {name} with writes to do")

    def _check_sets(self, name: InstanceName, image: Image) -> None:
        """R6, R7: due sets are open ones; a set that is done never comes back. The journal's row counts them."""
        counted = self.store.read(name).count_sets()
        if counted != SetCounts.of(image):
            raise Violation(f"COUNTED {name} as {counted}, and there are {SetCounts.of(image)}")
        for serial in image.due:
            if serial not in image.sets or image.sets[serial].cause is None:
                raise Violation(f"DUE {name} set {serial} is not a due set")
        if len(set(image.due)) != len(image.due):
            raise Violation(f"DUE {name} twice: {image.due}")
        for serial, opened in image.sets.items():
            if serial > image.serial or not (opened.count or isinstance(self.instances[name].op, KeyedLists)):
                raise Violation(f"SET {name} {serial} of {image.serial}: {opened}")
            if opened.cause not in (None, "parked") and serial not in image.due:
                raise Violation(f"DUE {name} set {serial} is due and not in the list")
            for member in opened.members:
                if member.channel == again_channel(name):
                    continue
                if member.ssn > image.positions.get(member.channel, Position()).ssn:
                    raise Violation(f"MEMBER {name} {member} above the position")
        open_ids = [o.id for o in image.sets.values() if o.cause is None]
        if len(set(open_ids)) != len(open_ids):
            raise Violation(f"SET {name} two open sets of one id")
        gone = set(self._before.get(name, Image()).sets) - set(image.sets)
        for serial in gone:
            self._generated[name, serial] += 1
        back = [s for s in image.sets if self._generated[name, s]]
        if back:
            raise Violation(f"SET {name} {back} came back")
        for serial in image.answers:
            if serial not in image.due:
                raise Violation(f"ANSWER {name} kept for set {serial}, which is not due")

        if isinstance(self.instances[name].op, Merging):
            check_merging(name, image)
        if isinstance(self.instances[name].op, Windows):
            for opened in image.sets.values():
                if opened.cause is None and opened.id not in image.timers:
                    raise Violation(f"TIMER {name} window {opened.id} has none")

    def _check_members(self, name: InstanceName, image: Image, live: Mapping[Serial, SetState]) -> None:
        """R5, R32: members are logged in the order in which the life took them in, or moved them in a merge. The life
        may be further by now."""
        for serial, opened in image.sets.items():
            known = live.get(serial)
            if known is None or opened.cause == "parked":
                continue
            covered = opened.count - len(opened.members) - known.covered  # the life may not have let them go yet
            if known.members[covered : covered + len(opened.members)] != opened.members:
                raise Violation(f"MEMBERS {name} set {serial}: {opened.members}, the life has {known.members}")

    def _check_order(self, name: InstanceName, spec: InstanceSpec, image: Image) -> None:
        """R6: with `ordered`, sets are generated in the order in which they became due."""
        before = self._before.get(name)
        if before is None or not spec.ordered:
            return
        rank = {serial: index for index, serial in enumerate(before.due)}
        left = [serial for serial in before.due if serial in image.due]
        if left != before.due[len(before.due) - len(left) :]:
            raise Violation(f"ORDER {name}: of the due sets {before.due} there are left {left}")
        for port in (*spec.ports, *map(write_port, spec.targets)):
            rows = self.ghost[name, port]
            new = [rows[Ssn(s)].serial for s in range(before.head(port).last + 1, image.head(port).last + 1)]
            ranks = [rank[serial] for serial in new if serial in rank]
            if ranks != sorted(ranks):
                raise Violation(f"ORDER {name}.{port}: outputs of {new}, due were {before.due}")

    def _check_memberships(self, name: InstanceName, spec: InstanceSpec) -> None:
        """R12: which sets an event was in is known as long as the event is there."""
        if spec.stateless:
            return  # the position says it; what lineage keeps has checks of its own
        known = {(m.channel, m.ssn, f.serial) for f in self.store.read(name).history() for m in f.members}
        gone = self._memberships.get(name, set()) - known
        self._memberships[name] = known
        senders = {c.name: c for c in (*spec.inputs, *spec.closed)}
        for channel, ssn, serial in gone:
            sender = senders[channel]
            if ssn >= self.store.read(sender.sender).base(sender.out):
                raise Violation(f"FORGOTTEN {name}: that {channel} {ssn} was in set {serial}")

    def _check_state(self, name: InstanceName, spec: InstanceSpec, image: Image) -> None:
        """R6: the state reflects exactly the events up to the positions."""
        op = self.instances[name].op
        if op is None or op.State is None or not hasattr(op.State, "events"):
            return
        spans = [span for channel in image.positions for span in self._spans(channel, image)]
        timed = [self.time.marks_between(c, *span) for c in image.positions for span in self._spans(c, image)]
        timed += [self._nothing_of(name, c, *span) for c in image.positions for span in self._spans(c, image)]
        taken = sum(upto.ssn - upto.marks - (after.ssn - after.marks) for after, upto in spans) - sum(timed)
        failed = sum(1 for row in self.ghost.get((name, PortName("errors")), {}).values() if not row.mark)
        failed += len(image.failures)
        if spec.on_error == "drop":
            failed = taken  # what was dropped left no trace to count
        state = 0 if image.state is None else self.store_state(name, image).events
        if not taken - failed <= state <= taken:
            raise Violation(f"STATE-COUNT {name} state {state}, events {taken}")

    def store_state(self, name: InstanceName, image: Image) -> Any:
        """The logged global state of an operator."""
        op = self.instances[name].op
        assert op is not None and op.State is not None and image.state is not None
        return decode_state(image.state, op.State)

    def _check_keyed(self, name: InstanceName, image: Image) -> None:
        """R31: the states of keys and the outputs are one commit."""
        op = self.instances[name].op
        if isinstance(op, KeyedLists):
            op.check_states(self._records(name, OUT), self.store.read(name).keyed(), image)

    def _check_needed(self, name: InstanceName, spec: InstanceSpec) -> None:
        """R12: whatever a receiver may still ask for is there. Holds after its commits and the senders'."""
        channels = [*spec.inputs, *(c for port in spec.ports.values() for c in port if not c.gone)]
        for channel in channels:
            needs = self._needs(channel)
            last = self.store.read(channel.sender).head(channel.out).last
            rows = self.store.data(channel.sender).events.ports.get(channel.out, {})
            passed_on = self._looks.once(channel.receiver, "undone", partial(self._undone, channel.receiver))
            for ssn in (*range(needs.position.ssn + 1, last + 1), *needs.members, *passed_on.get(channel.name, ())):
                if ssn not in rows:
                    raise Violation(f"COLLECTED-NEEDED {channel.name} needs {ssn}")

    def _needs(self, channel: Channel) -> Needs:
        reader = self.store.read(channel.receiver)
        return self._looks.once(channel.receiver, channel.name, lambda: reader.needs(channel.name))

    def _undone(self, name: InstanceName) -> dict[ChannelName, list[Ssn]]:
        """The events that writes have yet to pass on, by channel."""
        rows = (row for rows in self.store.look(name).events.ports.values() for row in rows.values())
        passed = [(row, row.same) for row in rows if row.same is not None]
        written = self._looks.image(name).written if passed else {}
        found: dict[ChannelName, list[Ssn]] = {}
        for row, same in passed:
            if row.ssn > written.get(TargetName(row.port[1:]), 0):
                found.setdefault(same.channel, []).append(same.ssn)
        return found

    def _check_bound(self, name: InstanceName, spec: InstanceSpec, image: Image) -> None:
        """R13: what a receiver has not taken is bounded, but for the step that crosses the bound."""
        before = self._before.get(name)
        if before is None:
            return
        for port, receivers in spec.ports.items():
            for channel in receivers:
                taken = self.store.read(channel.receiver).taken(channel.name)
                was = before.head(port).total - taken.position.total
                if was >= spec.limits.port_bytes + 400 and image.head(port).total > before.head(port).total:
                    raise Violation(f"BOUND {name}.{port} grew with {was} bytes not taken by {channel.receiver}")

    # ---- at the end -----------------------------------------------------------------------------------

    def at_end(self) -> None:
        """Every port and every target is what a run without failure could have made of the same inputs."""
        for name, instance in self._former.items():
            if name not in self.instances and not self._is_made_anew(name):
                self._check_made(name, instance)
        for name, instance in self.instances.items():
            spec = instance.spec
            image = self._looks.image(name)
            if not image.left:
                raise Violation(f"NOT-LEFT {name}")
            if instance.source is not None:
                rows = self.ghost[name, PortName("out")]
                instance.source.check([rows[s].payload for s in sorted(rows) if not rows[s].mark])  # type: ignore[attr-defined]
            else:
                self._check_made(name, instance)
            for port in (*spec.ports, *map(write_port, spec.targets)):
                kept = self.store.read(name).stored(port)
                if port == ERRORS:
                    ghost = self.ghost.get((name, ERRORS), {})
                    handled = self._retried | self._dropped
                    last = image.head(ERRORS).last
                    wanted = sorted(
                        s for s, row in ghost.items() if s == last or not (row.mark or (name, s) in handled)
                    )
                    low = image.low(again_channel(name))  # what came of errors is kept, and they for as long
                    if [s for s in kept if s in wanted or low is None or s < low] != wanted:
                        raise Violation(f"KEPT {name}.errors: {kept}, not handled are {wanted}")
                elif port not in spec.keep and (extra := set(kept) - self._set_aside(spec, port, kept)):
                    raise Violation(f"KEPT {name}.{port}: {extra}, and all have left")
            for target, sink in (instance.sinks or {}).items():
                rows = self.ghost[name, write_port(target)]
                sink.check([self._payload(rows[s]) for s in sorted(rows)])  # type: ignore[attr-defined]

    def _is_made_anew(self, name: InstanceName) -> bool:
        """Whether a later generation has taken its place: what it had not finished, it never will."""
        first, generation = generation_of(OperatorId(name))
        every = (generation_of(OperatorId(other)) for other in (*self.instances, *self._former))
        return any(other == first and later > generation for other, later in every)

    def _check_made(self, name: InstanceName, instance: Instance) -> None:
        """What an operator has put out is what it should have made of what it has taken."""
        spec, image = instance.spec, self._looks.image(name)
        outputs = {str(port): self._records(name, port) for port in (*spec.ports, *map(write_port, spec.targets))}
        inputs: dict[str, list[Any]] = {}
        for channel in (*spec.inputs, *spec.closed):
            for after, upto in self._spans(channel.name, image):
                taken = self._records(channel.sender, channel.out, after.ssn, upto.ssn)
                for ride in instance.riders.get(channel.name, ()):
                    taken = list(ride(tuple(taken)) or ())
                inputs.setdefault(channel.port, []).extend(taken)
        instance.op.check(inputs, outputs)  # type: ignore[union-attr]

    def _set_aside(self, spec: InstanceSpec, port: PortName, kept: Sequence[Ssn]) -> set[Ssn]:
        """The events of a port that are members of sets which wait to be retried or dropped. Lineage keeps all that
        came after the first of them, and what those were made of."""
        needs = [self._needs(channel) for channel in spec.ports.get(port, ())]
        members = {ssn for need in needs for ssn in need.members}
        if port in spec.retain:
            first = min((*members, *(need.low for need in needs if need.low is not None)), default=None)
            members.update(ssn for ssn in kept if first is not None and ssn >= first)
        return members

    def _records(self, name: InstanceName, port: PortName, after: int = 0, upto: int = CLOSED.ssn) -> list[Any]:
        """All records that ever were on the port, or those of some events; of errors, those that did not come out
        anew."""
        rows = self.ghost.get((name, port), {})
        gone = {s for n, s in self._retried if n == name} if port == ERRORS else set()
        wanted = [s for s in sorted(rows) if after < s <= upto and not rows[s].mark and s not in gone]
        missing = [m for s in wanted for m in self.checkpoints.without_rows(name, port, s)]
        found = [r for s in wanted for r in self._payload(rows[s])]
        return found + [r for member in missing for r in self._came(name, member)]

    def _nothing_of(self, name: InstanceName, channel: ChannelName, after: Position, upto: Position) -> int:
        """Of how many events between two positions ephemeral operators on the way made nothing (R24)."""
        if not self.instances[name].riders.get(channel):
            return 0
        rows = self.ghost.get(sender_of(channel), {})
        taken = [ssn for ssn, row in rows.items() if after.ssn < ssn <= upto.ssn and not row.mark]
        return sum(not self._came(name, Member(channel, ssn)) for ssn in taken)

    def _came(self, name: InstanceName, member: Member) -> Any:
        """What a member of one of its sets was to an instance: as ephemeral operators on the way made it (R24)."""
        instance = self.instances.get(name) or self._former[name]
        payload = self.ghost[sender_of(member.channel)][member.ssn].payload
        for ride in instance.riders.get(member.channel, ()):
            payload = ride(payload) or ()
        return payload

    def _payload(self, row: Output) -> Any:
        """Of a write that passes an event on, that event's."""
        return row.payload if row.same is None else self.ghost[sender_of(row.same.channel)][row.same.ssn].payload
