"""Write actions: numbered per target, executed in order after their commit, done up to a number (R8).

A write action is logged like an event, on the port `@target` of its own journal, so the log is also the queue.
After a crash the writes above the known position are fetched from there and executed again (Algorithm 8): a
positioned target is first asked what it has, a guarded or named one tells a repetition by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from logline.engine import actions as do
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.spec import InstanceSpec, write_port
from logline.engine.step import Step
from logline.names import TargetName


@dataclass(slots=True)
class _Queue:
    ready: deque[Output] = field(default_factory=deque)
    """Committed, in order, not yet executed; the first ones may be under way."""
    nbytes: int = 0
    """The size of what is in it."""
    last: int = 0
    """The highest number that has entered the queue."""
    done: int = 0
    durable_done: int = 0
    known: bool = True
    """After a crash: whether the queue has been filled from the log."""
    under_way: bool = False
    tries: int = 0
    retry_at: int | None = None


class Writes:
    """The targets of one instance."""

    def __init__(self, spec: InstanceSpec) -> None:
        self.spec = spec
        self.queues = {target: _Queue() for target in spec.targets}
        self._ports = {write_port(target): target for target in spec.targets}

    def recover(self, image: Image, act: Callable[[do.Action], None]) -> None:
        """Algorithm 8, step 1: what is logged and not known to be done."""
        for target, queue in self.queues.items():
            queue.done = queue.durable_done = image.written.get(target, 0)
            if image.head(write_port(target)).last > queue.done:
                queue.known = False
                if self.spec.targets[target] == "positioned":
                    act(do.AskPosition(target))
                else:
                    act(do.FetchWrites(target, queue.done))

    def position_known(self, target: TargetName, number: int, pending: Step) -> do.Action:
        """Algorithm 8, step 2.a: the target itself says what is done."""
        queue = self.queues[target]
        if number > queue.done:
            queue.done = pending.writes.written[target] = number
        return do.FetchWrites(target, queue.done)

    def fetched(self, target: TargetName, writes: list[Output]) -> None:
        """Puts the writes that the log has before those that this life has committed meanwhile."""
        queue = self.queues[target]
        queue.known = True
        # What this life has committed meanwhile is in the queue already, and in what was read as well.
        new = queue.ready[0].ssn if queue.ready else None
        old = [w for w in writes if w.ssn > queue.done and (new is None or w.ssn < new)]
        queue.ready.extendleft(reversed(old))
        queue.nbytes += sum(w.nbytes for w in old)
        queue.last = queue.ready[-1].ssn if queue.ready else queue.done

    def committed(self, step: Step) -> None:
        """Write actions of a durable step may be executed; positions in it are durable."""
        for port, target in self._ports.items():
            queue = self.queues[target]
            # Up to there: read back from the log before this life heard that its own commit was through.
            new = [output for output in step.outputs if output.port == port and output.ssn > queue.last]
            if new:
                queue.last = new[-1].ssn
                queue.ready.extend(new)
                queue.nbytes += sum([output.nbytes for output in new])
        for target, number in step.writes.written.items():
            self.queues[target].durable_done = number

    def start(self, now: int, act: Callable[[do.Action], None]) -> int | None:
        """Executes the next writes of each target, a run at a time; returns when to look again."""
        wake = None
        for target, queue in self.queues.items():
            if not queue.known or queue.under_way or not queue.ready:
                continue
            if queue.retry_at is not None and now < queue.retry_at:
                wake = queue.retry_at if wake is None else min(wake, queue.retry_at)
                continue
            queue.under_way, queue.retry_at = True, None
            run = tuple(islice(queue.ready, self.spec.limits.run_events))
            act(do.WriteOut(target, run, self.scope(target)))
        return wake

    def scope(self, target: TargetName) -> str:
        """The key under which a target keeps its position or guards."""
        return f"{self.spec.log_id}/{self.spec.name}/{target}"

    def written(self, target: TargetName, number: int, pending: Step) -> None:
        """Algorithm 5, step 3; the position rides with a later commit."""
        queue = self.queues[target]
        queue.under_way = False
        if number > queue.done:
            while queue.ready and queue.ready[0].ssn <= number:
                queue.nbytes -= queue.ready.popleft().nbytes
            queue.done = pending.writes.written[target] = number
            queue.tries = 0

    def failed(self, target: TargetName, now: int) -> bool:
        """Algorithm 5, step 2; False when it has been tried often enough."""
        queue, retry = self.queues[target], self.spec.limits.write_retry
        queue.tries += 1
        if queue.tries >= retry.attempts:
            return False
        queue.retry_at = now + retry.delay(queue.tries)
        return True

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return any(q.under_way for q in self.queues.values())

    @property
    def idle(self) -> bool:
        """Whether everything that was committed is written."""
        return all(q.known and not q.ready for q in self.queues.values())

    @property
    def all_done(self) -> bool:
        """Whether everything is written and known to be, durably."""
        return self.idle and all(q.done == q.durable_done for q in self.queues.values())

    def backlog(self) -> int:
        """Bytes that are committed and not written."""
        return sum(queue.nbytes for queue in self.queues.values())

    def positions(self) -> dict[TargetName, int]:
        """How far each target is durably known to be written."""
        return {target: queue.durable_done for target, queue in self.queues.items()}
