"""The machine of a source: read actions that survive a crash (Algorithms 1 and 6; R9).

- Replayable: the offset is stored with each output; after a crash reading goes on from the last one stored.
- Not replayable: the effect is staged above the port's head, where nobody sees it. When the read is complete
  a small commit says so; steps then move the head over the staged rows and the last one marks the read done.
  A crash before "complete" reads anew and overwrites what was staged: two effects are never mixed.
- Destructive: a message is logged with its id, then confirmed; until the confirmation is known, its id is kept,
  so that the message is dropped when it is delivered again.

A life may be able to read only some of the partitions (`InstanceSpec.here`): where each of them comes to a task of
its own, say. When these have ended it stops in order, and the next life, which can read others, goes on as after a
crash (R5), only that nothing is lost or repeated.

A source has one output port, as in the paper.
"""

from __future__ import annotations

from collections import deque

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.machine import Machine
from logline.engine.moments import Monotonic
from logline.engine.policy import Asked, Policy
from logline.engine.progress import Progress
from logline.engine.source_time import SourceTime
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.names import OUT, PartitionName, Serial, Ssn

REMEMBERED = 1 << 16
"""Ids of confirmed messages that a life remembers, for deliveries that were under way when it confirmed."""


class _Partition:
    __slots__ = (
        "caught_up",
        "confirming",
        "idle",
        "opened",
        "progress",
        "reading",
        "remembered",
        "retry_at",
        "tries",
    )

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.opened = False
        """Whether this life has an iterator on it."""
        self.reading = False
        self.idle = False
        """Nothing there at the last look; read again at the next poll."""
        self.caught_up = False
        """Everything that is there is read, and this life reads no more."""
        self.confirming: tuple[bytes, ...] = ()
        self.remembered: dict[bytes, None] = {}
        self.tries = 0
        self.retry_at: Monotonic | None = None


class SourceMachine(Machine):
    """One life of a source."""

    def __init__(self, spec: InstanceSpec, policy: Policy, needed: Asked) -> None:
        super().__init__(spec, policy, needed)
        self.partitions: dict[PartitionName, _Partition] = {}
        self._turn: deque[PartitionName] = deque(spec.partitions)
        self._staging: PartitionName | None = None
        """Staged reads share the rows above the head, so they are made one after the other."""
        self._staged: list[tuple[Ssn, int]] = []
        """SSN and total of the rows staged and not revealed."""
        self._staged_offset: bytes | None = None
        self._time = None if self.port_time is None else SourceTime(spec, self.port_time)
        self._handlers.update({on.ReadGot: self._on_read, on.Confirmed: self._on_confirmed})

    # ---- recovery (Algorithm 6) -----------------------------------------------------------------------

    def _recover(self, image: Image) -> None:
        for name in self.spec.partitions:
            known = _Partition(image.reads.get(name, Progress()))
            self.partitions[name] = known
            if known.progress.status == "complete" and not self.spec.replayable:
                # Step 3.b: the effect is whole and not all of it is shown
                self._staging = name
                self._staged = self._remaining(known.progress)
        if self._time is not None:
            self._time.restore(image, self.now)
        self.phase = "running"

    def _remaining(self, progress: Progress) -> list[tuple[Ssn, int]]:
        """What is left to show. The rows know their exact totals; here an even share of each is enough,
        since it only serves back-pressure until the last one, which is exact."""
        head = self.outbox.heads[OUT]
        count = progress.until - head.last
        share = (progress.until_total - head.total) / max(count, 1)
        return [
            (Ssn(head.last + k), progress.until_total if k == count else head.total + int(share * k))
            for k in range(1, count + 1)
        ]

    # ---- reading --------------------------------------------------------------------------------------

    def _on_bell(self, stimulus: on.Bell) -> None:
        super()._on_bell(stimulus)
        for known in self.partitions.values():
            known.idle = False

    def _work(self) -> None:
        self._confirm()
        self._reveal()
        if not self.draining and not self.outbox.blocked():
            self._read()
        if self._time is not None:
            self._move_time(self._time)
        if self._finished() and not self.end_given and not self.spec.stays_open:
            self._give_end()
        elif self._must_hand_over():
            self.stopping = self.handing = True

    def _move_time(self, time: SourceTime) -> None:
        """R30. A partition has nothing for now if a read is under way, or the last one has found nothing."""
        ended = [name for name, known in self.partitions.items() if known.progress.ended]
        waiting = [name for name, known in self.partitions.items() if known.reading or known.idle]
        look_at = time.advance(ended, waiting, self.commits.pending, self.now)
        if look_at is not None:
            self._wake(look_at)

    def _shows_time(self, step: Step) -> bool:
        return super()._shows_time(step) and not self._staged  # whose numbers are taken

    def _must_hand_over(self) -> bool:
        """Whether there is more to read, and none of it here. One that drains stays: nobody is to read on."""
        here = self.spec.here
        if here is None or self.end_given or self.draining or self._staged:
            return False
        unread = [name for name in self.partitions if not self._is_read(name)]
        return bool(unread) and not here.intersection(unread)

    def _read(self) -> None:
        for name in self._whose_turn():
            if self._may_read(name):
                known = self.partitions[name]
                if not self.spec.replayable:
                    self._staging = name
                known.reading = True
                self._do(do.Read(name, known.progress.offset, fresh=not known.opened))
                known.opened = True

    def _whose_turn(self) -> list[PartitionName]:
        if not self.spec.in_turn:
            return list(self._turn)
        while self._turn and self._is_read(self._turn[0]):
            self._turn.popleft()
        return [self._turn[0]] if self._turn else []

    def _is_read(self, name: PartitionName) -> bool:
        return self.partitions[name].progress.ended or self.partitions[name].caught_up

    def _may_read(self, name: PartitionName) -> bool:
        known = self.partitions[name]
        if known.progress.ended or known.caught_up or known.reading or known.idle:
            return False
        if self.spec.here is not None and name not in self.spec.here:
            return False
        if known.retry_at is not None and self.now < known.retry_at:
            self._wake(known.retry_at)
            return False
        if known.progress.unconfirmed and not known.opened:
            return False  # a delivery made before these are confirmed could be one of them
        pending = self.commits.pending
        if len(pending.outputs) + len(pending.reads.staged) >= self.spec.limits.commit_events:
            return False  # reading does not run away from committing
        return self.spec.replayable or (self._staging in (None, name) and known.progress.status != "complete")

    def _on_read(self, stimulus: on.ReadGot) -> None:
        known = self.partitions[stimulus.partition]
        known.reading = False
        if self.draining or self.stopping:
            known.opened = False  # nobody waited for it: what is not logged was not read (R9)
            return
        if stimulus.failure is not None:
            self._read_failed(stimulus, known)
            return
        known.tries, known.retry_at = 0, None
        ended = stimulus.then == "end" or (stimulus.then == "pause" and self.spec.until_now)
        if ended and self.spec.stays_open and (self.spec.grows or stimulus.then == "pause"):
            known.caught_up, ended = True, False
        known.idle = stimulus.then == "pause" and not ended
        if self.spec.destructive:
            self._log_messages(stimulus, known, ended)
        elif self.spec.replayable:
            self._log_items(stimulus, known, ended)
        else:
            self._stage(stimulus, known, ended)

    def _read_failed(self, stimulus: on.ReadGot, known: _Partition) -> None:
        assert stimulus.failure is not None
        known.opened = False
        known.tries += 1
        if not self.spec.replayable and known.progress.status != "complete":
            self._unstage(stimulus.partition)
        if not stimulus.failure.retryable or known.tries >= self.spec.retry.attempts:
            self._halt(stimulus.failure)
            return
        known.retry_at = Monotonic(self.now + self.spec.retry.delay(known.tries))
        self._wake(known.retry_at)

    def _progress(self, name: PartitionName, progress: Progress) -> None:
        self.partitions[name].progress = self.commits.pending.reads.progress[name] = progress
        if progress.status != "incomplete" or progress.ended:
            self.commits.hurry = True

    # ---- replayable (Algorithm 1, step 3) -------------------------------------------------------------

    def _log_items(self, stimulus: on.ReadGot, known: _Partition, ended: bool) -> None:
        progress, outputs, put = known.progress, self.commits.pending.outputs, self.outbox.put
        for item in stimulus.items:
            for produced in item.outputs:
                outputs.append(put(produced, Serial(0)))
            if self._time is not None:
                self._time.read(stimulus.partition, item.time, self.now)
        if stimulus.items:
            progress = progress._replace(offset=stimulus.items[-1].offset)
        if ended:
            progress = progress._replace(ended=True, status="complete")
        if progress != known.progress or not stimulus.items:
            self._progress(stimulus.partition, progress)

    # ---- not replayable (Algorithm 1, step 2) ---------------------------------------------------------

    def _stage(self, stimulus: on.ReadGot, known: _Partition, ended: bool) -> None:
        """Step 2.a, and with the last rows step 2.b."""
        if not stimulus.items and not self._staged and not ended:
            return  # nothing there: no read action has happened
        progress = known.progress
        if progress.status == "done":
            progress = Progress(progress.action + 1, offset=progress.offset)
        head = self.outbox.heads[OUT]
        last, total = self._staged[-1] if self._staged else (head.last, head.total)
        for item in stimulus.items:
            self._staged_offset = item.offset
            for produced in item.outputs:
                last, total = Ssn(last + 1), total + produced.nbytes
                self._staged.append((last, total))
                row = Output(OUT, last, produced.payload, produced.rows, produced.nbytes, total, Serial(0))
                self.commits.pending.reads.staged.append(row)
            if self._time is not None:
                self._time.stage(stimulus.partition, item.time, self.commits.pending)
        if stimulus.then != "more":  # the read action is over: its effect is whole
            progress = progress._replace(
                status="complete" if self._staged else "done",
                offset=self._staged_offset or progress.offset,
                until=last,
                until_total=total,
                ended=ended,
            )
            self._staged_offset = None
            if progress.status == "done":
                self._staging = None
        if progress != known.progress:
            self._progress(stimulus.partition, progress)

    def _unstage(self, partition: PartitionName) -> None:
        """The read failed half way: what was staged is overwritten by the next try."""
        if self._time is not None:
            self._time.unstage(partition)
        self._staged = []
        self._staged_offset = None
        self.commits.pending.reads.staged = []

    def _reveal(self) -> None:
        """Step 2.c: only once "complete" is durable, and within the bound of R13."""
        name = self._staging
        if name is None or not self._staged:
            return
        progress = self.partitions[name].progress
        if progress.status != "complete" or name in self.commits.pending.reads.progress or self._flying_reads(name):
            return
        if self.outbox.blocked():
            return
        run = self._staged[: self.spec.limits.run_events]
        head = self.outbox.heads[OUT]
        head.last, head.total = self.commits.pending.reads.reveal[OUT] = run[-1]
        self._staged = self._staged[len(run) :]
        if not self._staged:
            self._progress(name, progress._replace(status="done"))
            self._staging = None
            if self._time is not None:
                self._time.shown(name, self.now)

    def _flying_reads(self, name: PartitionName) -> bool:
        flying = self.commits.flying
        return flying is not None and name in flying.reads.progress

    # ---- destructive ----------------------------------------------------------------------------------

    def _log_messages(self, stimulus: on.ReadGot, known: _Partition, ended: bool) -> None:
        progress = known.progress
        for item in stimulus.items:
            if item.offset in known.remembered or item.offset in progress.unconfirmed:
                continue  # delivered again
            for produced in item.outputs:
                self.commits.pending.outputs.append(self.outbox.put(produced, Serial(0)))
            if self._time is not None:
                self._time.read(stimulus.partition, item.time, self.now)
            progress = progress._replace(unconfirmed=(*progress.unconfirmed, item.offset))
        if ended:
            progress = progress._replace(ended=True, status="complete")
        if progress != known.progress:
            self._progress(stimulus.partition, progress)

    def _confirm(self) -> None:
        """Only what is durably logged is confirmed."""
        if not self.spec.destructive or not self._all_logged():
            return
        for name, known in self.partitions.items():
            if known.progress.unconfirmed and not known.confirming:
                if known.retry_at is not None and self.now < known.retry_at:
                    self._wake(known.retry_at)
                    continue
                known.confirming = known.progress.unconfirmed
                self._do(do.Confirm(name, known.confirming))

    def _all_logged(self) -> bool:
        return self.commits.flying is None and not self.commits.pending.reads.progress

    def _on_confirmed(self, stimulus: on.Confirmed) -> None:
        known = self.partitions[stimulus.partition]
        known.confirming = ()
        if stimulus.failure is not None:
            known.tries += 1
            if known.tries >= self.spec.limits.write_retry.attempts:
                self._halt(stimulus.failure)
            else:
                known.retry_at = Monotonic(self.now + self.spec.limits.write_retry.delay(known.tries))
                self._wake(known.retry_at)
            return
        known.tries, known.retry_at = 0, None
        gone = set(stimulus.ids)
        known.remembered.update(dict.fromkeys(stimulus.ids))
        while len(known.remembered) > REMEMBERED:
            del known.remembered[next(iter(known.remembered))]
        rest = tuple(i for i in known.progress.unconfirmed if i not in gone)
        self._progress(stimulus.partition, known.progress._replace(unconfirmed=rest))

    # ---- the end --------------------------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Whether all that was there is read and logged, and the stream stays open for a later run."""
        return (
            self.spec.stays_open
            and self.phase == "running"
            and self.commits.idle
            and not self._staged
            and all(
                (p.caught_up or p.progress.ended) and not p.progress.unconfirmed and not p.reading
                for p in self.partitions.values()
            )
        )

    def _finished(self) -> bool:
        """Whether nothing is left but the end itself (R11)."""
        return not self._staged and all(
            p.progress.ended and not p.progress.unconfirmed and not p.reading for p in self.partitions.values()
        )

    def quiet(self) -> bool:
        return super().quiet() and (self.caught_up or self.draining or not self.spec.stays_open)

    def unconfirmed(self) -> list[PartitionName]:
        """Partitions whose messages are being confirmed. Any thread may ask."""
        return [name for name, known in list(self.partitions.items()) if known.confirming]

    def _busy(self) -> bool:
        reads = any(known.reading for known in self.partitions.values())
        confirms = any(known.confirming for known in self.partitions.values())
        if self.draining or self.stopping:
            # A read lasts for as long as the source's code likes, and confirmations wait for it: the next life's.
            return confirms and not reads
        return reads or confirms
