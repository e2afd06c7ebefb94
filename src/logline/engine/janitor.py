"""Collects the journal of an instance that has left (R12).

An instance collects its own journal while it lives. When it has left, the holder of the run's lease does it, under
a claim: the claim fences off a last life that does not know yet that it is over.
"""

from __future__ import annotations

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.machine import Machine
from logline.engine.spec import write_port


class Janitor(Machine):
    """One look at one journal."""

    def _on_claimed(self, stimulus: on.Claimed) -> None:
        self.incarnation, image = stimulus.claim
        self._commits = image.commits
        self.outbox.restore(image)
        if not image.left:
            self._leave("stopped")  # it lives: it collects by itself
            return
        self.phase = "recovering"
        self._do(do.Observe(tuple(c.name for port in self.spec.ports.values() for c in port)))

    def _on_observed(self, stimulus: on.Observed) -> None:
        written = {t: self.outbox.durable[write_port(t)] for t in self.spec.targets}
        self.pending.collected.update(self.outbox.collect(stimulus.needs, written))
        if self.pending.empty:
            self._leave("stopped")
        else:
            self._send()

    def _advance(self) -> None:
        """Nothing but what the handlers do."""

    def _on_committed(self, stimulus: on.Committed) -> None:
        self._leave("stopped")
