"""Sealing: what was taken in and what came of it becomes a step, and whole steps become pending (R1, R6).

A step is whole when the sets that its events made due are generated: these never reach the image then. Where several
sets run at once, or one of a run lags behind, nothing is held back for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logline.engine import stimuli as on
from logline.engine.commits import Commits
from logline.engine.due_sets import DueSet
from logline.engine.events import Position
from logline.engine.history import Finished
from logline.engine.intake import Run
from logline.engine.moments import Monotonic
from logline.engine.outbox import Outbox
from logline.engine.results import Failure, Produced
from logline.engine.retention import Retention
from logline.engine.sets import NEVER, Member
from logline.engine.spec import InstanceSpec, again_channel
from logline.engine.step import Step
from logline.names import ERRORS, ChannelName, Serial


class Sealing:
    """The step in the making of one instance."""

    def __init__(self, spec: InstanceSpec, commits: Commits, outbox: Outbox, retention: Retention) -> None:
        self._spec = spec
        self._commits = commits
        self._outbox = outbox
        self._retention = retention
        self._traces = spec.lineage
        self._again = again_channel(spec.name)
        self.step = Step()
        self.held_since = Monotonic(0)
        """When the first run was begun whose outputs are pending."""
        self._open_since: Monotonic | None = None

    def rewire(self, spec: InstanceSpec) -> None:
        """Channels have come or gone."""
        self._spec = spec

    # ---- what was taken in ----------------------------------------------------------------------------

    def take_in(self, intake: on.Intake, positions: Mapping[ChannelName, Position]) -> None:
        """What the phases decided for a run of events."""
        step = self.step
        step.positions.update(positions)
        self.take_alone(intake.alone)
        for serial, inset in intake.opened:
            kept, members = intake.kept.get(serial, (NEVER, ()))
            step.open(serial, inset, members, kept)
        for serial, member in intake.members:
            step.join(serial, member)
        if self._traces:
            self._retention.joined((s, member) for s, (_, members) in intake.kept.items() for member in members)
            self._retention.joined(intake.members)
        for gone, into in intake.merged:
            step.merge(gone, into)
            self._retention.merged(gone)
        step.sets.due.update(intake.due)
        for serial, failure in intake.failed:
            self.close_failed(serial, failure)
        if intake.state is not None:
            step.state = intake.state
        step.clock.update(intake.clock)
        step.timers.update(intake.timers)

    def take_alone(self, alone: Mapping[Serial, Member]) -> None:
        """Sets of one event; runs of them are long, so nothing is done here for each."""
        if alone:
            sets = self.step.sets
            sets.alone.update(alone)
            sets.serial = max(sets.serial, *alone)

    def close_failed(self, serial: Serial, failure: Failure) -> None:
        """The set failed before `generate`: it is closed, and not to be generated."""
        self.step.sets.due[serial] = "fired"
        self.step.sets.failures[serial] = failure

    def apply(
        self,
        run: Run,
        positions: Mapping[ChannelName, Position],
        first: Serial,
        made: Sequence[Sequence[Produced]],
    ) -> None:
        """A run was taken in and generated at once. Nothing else is due meanwhile: its outputs are next (R6)."""
        step, spec = self.step, self._spec
        step.positions.update(positions)
        step.sets.serial = max(step.sets.serial, Serial(first + len(made) - 1))
        step.outputs += self._outbox.put_run(made, first)
        if self._traces:
            for serial, ((channel, event), outputs) in enumerate(zip(run, made, strict=False), first):
                if channel in spec.traced_in and any(output.port in spec.traced_out for output in outputs):
                    step.trace(Serial(serial), Member(channel, event.ssn))

    # ---- what came of it ------------------------------------------------------------------------------

    def log(self, due: DueSet) -> None:
        """Numbers the outputs of a set; they and the end of the set are one change (Algorithm 3, step 4; R1)."""
        serial, outputs, step, put = due.serial, due.outputs, self.step, self._outbox.put
        for produced in outputs:
            step.outputs.append(put(produced, serial))
        made = self._traces and (
            # What was asked for it tells what became of it, also if nothing was made.
            bool(due.answers) or any(produced.port in self._spec.traced_out for produced in outputs)
        )
        if due.keyed is not None:
            step.keyed.update(due.keyed.states)
            step.timers.update(due.keyed.timers)
        if due.dropped is not None:
            step.sets.dropped[serial] = due.dropped
        if due.retried:  # whatever came of it: what failed again is a new error
            failed = any(produced.port == ERRORS for produced in outputs)
            step.errors.resolved.update(dict.fromkeys(due.retried, "failed again" if failed else "retried"))
        if due.diverted is not None and not self._has_its_rows(due.diverted):
            self._park(due, made=made)
            return
        traced = self._traces and self._retention.close(serial, step, made=made)
        step.close(serial, traced=traced, ordered=self._spec.ordered)

    def _has_its_rows(self, diverted: Finished) -> bool:
        """Whether the rows are in an event of the instance's own: then the new error has them too, and no member has
        to be kept for it."""
        return any(member.channel == self._again for member in diverted.members)

    def _park(self, due: DueSet, *, made: bool) -> None:
        """The set stays, with its members; where lineage is captured, its event has its history at once."""
        step, serial, diverted = self.step, due.serial, due.diverted
        assert diverted is not None
        if self._traces and self._retention.close(serial, step, made=made):
            if serial in step.sets.alone:
                step.reach_down({m.channel: m.ssn for m in diverted.members})
            step.sets.finished.append(diverted)
            step.lineage.kept.append(serial)
        step.park(serial)

    # ---- sealing --------------------------------------------------------------------------------------

    def waits_until(self, now: Monotonic) -> Monotonic | None:
        """Until when the step in the making may wait to be whole; None if there is none."""
        if self.step.empty:
            self._open_since = None
            return None
        if self._open_since is None:
            self._open_since = now
        return Monotonic(self._open_since + self._spec.limits.ack_after)

    def seal(self, began: Monotonic) -> None:
        """The step goes with the next commit. `began`: when the last run was begun."""
        pending = self._commits.pending
        if self._traces:
            self._retention.joined(self.step.sets.alone.items())  # those that are not done yet
        if not pending.outputs:
            self.held_since = began
        if pending.empty:
            self._commits.pending = self.step
        else:
            pending.absorb(self.step, ordered=self._spec.ordered)
        self.step = Step()
        self._open_since = None
