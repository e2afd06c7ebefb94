"""Steps on their way into the log: gathered, in flight, durable (R1-R3). One commit is in flight at a time.

Several steps share a commit when input is waiting; a lone event is committed at once. Positions alone ride along with
the next step, or go by themselves after a while (R3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.spec import Limits
from logline.engine.step import Step


class Commits:
    """What one life has to commit, and what it is committing."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.pending = Step()
        """Whole steps that are not on their way yet."""
        self.flying: Step | None = None
        self.hurry = False
        """Whether somebody waits for what is pending, beyond what the step itself shows."""
        self._number = 0
        self._waiting_since: Monotonic | None = None

    def restore(self, image: Image) -> None:
        """Takes over what the image says."""
        self._number = image.commits

    @property
    def idle(self) -> bool:
        """Whether nothing is pending and nothing is in flight."""
        return self.flying is None and self.pending.empty

    def when(
        self, now: Monotonic, *, stopping: bool, may_grow: Callable[[], bool], unacknowledged: Callable[[], bool]
    ) -> Monotonic | Literal["now"] | None:
        """When what is pending should be sent: now, at a time, or not before something else happens.

        `may_grow`: more steps are about to come that can share the commit. `unacknowledged`: a sender may soon wait
        for what was taken and not acknowledged (R13).
        """
        step = self.pending
        if self.flying is not None or step.empty:
            return None
        if self._urgent(step) or stopping:
            return "now" if stopping or not may_grow() or self._full(step) else None
        if self._waiting_since is None:
            self._waiting_since = now
        due = Monotonic(self._waiting_since + self._limits.ack_after)
        return "now" if now >= due or unacknowledged() else due

    def _urgent(self, step: Step) -> bool:
        """Whether somebody waits for what is pending."""
        return self.hurry or bool(
            step.outputs or step.reads.staged or step.reads.reveal or step.sets.answers or step.ended or step.left
        )

    def _full(self, step: Step) -> bool:
        limits = self._limits
        return len(step.outputs) >= limits.commit_events or step.nbytes >= limits.commit_bytes

    def send(self) -> Step:
        """Gives what is pending a number, and returns it as the step of the commit that is now in flight."""
        step, self.pending = self.pending, Step()
        self._number += 1
        step.number = self._number
        self.flying = step
        self.hurry = False
        self._waiting_since = None
        return step

    def arrived(self, number: int) -> Step | None:
        """The commit of this number is durable; None if this is the answer to a repeated one."""
        step = self.flying
        if step is None or number != step.number:
            return None
        self.flying = None
        return step
