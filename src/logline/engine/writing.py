"""Write actions: numbered per target, executed in order after their commit, done up to a number (R8).

A write action is logged like an event, on the port `@target` of its own journal, so the log is also the queue.
After a crash the writes above the known position are fetched from there and executed again (Algorithm 8): a
positioned target is first asked what it has, a guarded or named one tells a repetition by itself.

A number is in the log before the write is executed, so no target can be ahead of its log. One that is has seen a log
that is gone. The machine begins nothing before it knows: what it would log could hide that from the next life.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from logline.engine import actions as do
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.results import Failure
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
    logged: int = 0
    """The last number that was in the log when this life began."""
    located: bool = True
    """Whether it is known what the target has, if it can say that."""
    asking: bool = False
    known: bool = True
    """After a crash: whether the queue has been filled from the log."""
    under_way: bool = False
    tries: int = 0
    retry_at: Monotonic | None = None


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
            queue.logged = image.head(write_port(target)).last
            queue.known = queue.logged <= queue.done
            if self.spec.targets[target] == "positioned" or target in self.spec.tells:
                queue.located, queue.asking = False, True
                act(do.AskPosition(target))
            elif not queue.known:
                act(do.FetchWrites(target, queue.done))

    def ahead(self, target: TargetName, number: int) -> Failure | None:
        """Why nothing may be written to a target that has more than the log has given out."""
        logged = self.queues[target].logged
        if number <= logged:
            return None
        text = (
            f"operator {self.spec.name!r}: target {target!r} has the writes up to number {number}, and the log has "
            f"given out numbers up to {logged} only. The log is older than what it wrote: it was restored from an "
            "older copy, or it has durability='process' and lost its end in a power cut. The target would take new "
            "rows for old ones and leave them out. Restore the newest log; or take back what the target has above "
            f"number {logged}, and with it the position that it keeps for {self.scope(target)!r}; or run on a fresh "
            "log, which has positions of its own"
        )
        return Failure("LogError", text, "")

    def position_known(self, target: TargetName, number: int, pending: Step) -> do.Action | None:
        """Algorithm 8, step 2.a: the target itself says what is done. Returns what is to be read from the log."""
        queue = self.queues[target]
        queue.located, queue.asking, queue.tries = True, False, 0
        if number > queue.done and self.spec.targets[target] == "positioned":
            queue.done = pending.writes.written[target] = number
        return None if queue.known else do.FetchWrites(target, queue.done)

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

    def start(self, now: Monotonic, act: Callable[[do.Action], None]) -> Monotonic | None:
        """Executes the next writes of each target, a run at a time; returns when to look again."""
        wake = None
        for target, queue in self.queues.items():
            asks = not queue.located and not queue.asking
            if not asks and (not queue.located or not queue.known or queue.under_way or not queue.ready):
                continue
            if queue.retry_at is not None and now < queue.retry_at:
                wake = queue.retry_at if wake is None else min(wake, queue.retry_at)
                continue
            queue.retry_at = None
            if asks:
                queue.asking = True
                act(do.AskPosition(target))
                continue
            queue.under_way = True
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

    def failed(self, target: TargetName, now: Monotonic) -> bool:
        """Algorithm 5, step 2; False when it has been tried often enough."""
        queue, retry = self.queues[target], self.spec.limits.write_retry
        queue.asking = False
        queue.tries += 1
        if queue.tries >= retry.attempts:
            return False
        queue.retry_at = Monotonic(now + retry.delay(queue.tries))
        return True

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return any(q.under_way for q in self.queues.values())

    @property
    def idle(self) -> bool:
        """Whether everything that was committed is written."""
        return self.located and all(q.known and not q.ready for q in self.queues.values())

    @property
    def located(self) -> bool:
        """Whether every target that can say what it has has said so."""
        return all(q.located for q in self.queues.values())

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
