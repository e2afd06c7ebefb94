"""Pessimistic logging with partial checkpoints of open sets (CEC; R22).

Nothing is shown or needed otherwise than under `pessimistic`. A checkpoint takes the place of the members that it
covers, in the image and in what senders are asked to keep, whichever policy reads them: so an operator may change
between the two policies from run to run. All that differs is that this one makes checkpoints.

    >>> Eventual(Targets(replay=1000)).schedule is not None
    True
"""

from __future__ import annotations

from logline.engine.checkpointing import Schedule
from logline.engine.spec import Targets
from logline.graph.model import Policy as PolicyName
from logline.recovery.checkpointing import OldestFirst
from logline.recovery.pessimistic import Pessimistic


class Eventual(Pessimistic):
    """What is shown is durable, and open sets come back from their checkpoints."""

    name: PolicyName = "eventual"

    def __init__(self, targets: Targets) -> None:
        self.schedule: Schedule | None = OldestFirst(targets)
