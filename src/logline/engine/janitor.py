"""Collects the journal of an instance that does not live (R12).

An instance collects its own journal while it lives. When it has left, the holder of the run's lease does it, under
a claim: the claim fences off a last life that does not know yet that it is over. On a log that does not run
(`logline gc`) the holder of the lease may do it for every instance.
"""

from __future__ import annotations

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Image
from logline.engine.machine import Machine
from logline.engine.policy import Asked, Policy
from logline.engine.spec import InstanceSpec, write_port
from logline.names import TargetName


class Janitor(Machine):
    """One look at one journal; `all_rest`: nobody lives, so that those that have not left may be collected too."""

    def __init__(self, spec: InstanceSpec, policy: Policy, needed: Asked, *, all_rest: bool = False) -> None:
        super().__init__(spec, policy, needed)
        self._all_rest = all_rest
        self._done: dict[TargetName, int] = {}

    def _on_claimed(self, stimulus: on.Claimed) -> None:
        image = self._restore(stimulus)
        if not image.left and not self._all_rest:
            self._leave("stopped")  # it lives: it collects by itself
            return
        # One that has left has written everything; of another one the image knows.
        everything: dict[TargetName, int] = {t: self.outbox.durable[write_port(t)] for t in self.spec.targets}
        self._done = everything if image.left else dict(image.written)
        self.phase = "recovering"
        self._do(do.Observe(self._receiving()))

    def _on_observed(self, stimulus: on.Observed) -> None:
        self._collect(stimulus.needs, self._done)
        if self.commits.pending.empty:
            self._leave("stopped")
        else:
            self._send()

    def _recover(self, image: Image) -> None:
        """Nothing: it only looks."""

    def _work(self) -> None:
        """Nothing: it only looks."""

    def _advance(self) -> None:
        """Nothing but what the handlers do."""

    def _on_committed(self, stimulus: on.Committed) -> None:
        self._leave("stopped")
