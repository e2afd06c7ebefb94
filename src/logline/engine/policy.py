"""How an instance survives a failure: the questions that its machine asks (DESIGN section 9).

A policy says what of a step is logged where, when receivers may see its outputs, what is fetched to come back, what
is needed of the inputs, and what follows when an input's payload is gone. The machine does the rest, the same for
all: it takes in, generates, numbers, gathers steps. `logline.recovery` has one file for each policy, and
`machine_for`, which makes the machine of an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from logline.engine import actions as do
from logline.engine.checkpointing import Schedule
from logline.engine.image import Image, Needs
from logline.engine.results import Failure
from logline.engine.step import Step
from logline.graph.instances import Channel
from logline.graph.model import Policy as PolicyName
from logline.names import ChannelName, Ssn

Moment = Literal["published", "durable"]
"""When a step's outputs may be seen: in the front, before anything is logged; or once its commit is durable."""


class Needed(NamedTuple):
    """What a receiver needs of a channel (R12)."""

    after: Ssn
    """Every event after this one."""
    members: Sequence[Ssn] = ()
    """These, wherever they are."""
    floor: Ssn | None = None
    """Every event from this one on, whoever has taken it; None if there is no such bound."""


Asked = Callable[[Channel, Needs], Needed]
"""What the receiver of a channel needs, asked of the receiver's policy."""


class Policy(Protocol):
    """How one life survives a failure. It may hold state: each life has a policy of its own."""

    name: PolicyName
    shows: Moment
    """When outputs are shown to receivers (R2)."""
    schedule: Schedule | None
    """When open sets have checkpoints (R22); None for never. One that is in the log is used all the same."""

    def log(self, step: Step) -> Sequence[do.Action]:
        """What is done with whole steps that are to be logged: in one commit, or in parts, in this order."""

    def members(self, image: Image) -> Mapping[ChannelName, Sequence[Ssn]]:
        """Which events a life fetches, beside its image, before it goes on (R5)."""

    def gone(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Failure:
        """Says why the life can't go on, when events that it needs are gone."""

    @staticmethod
    def needed(needs: Needs) -> Needed:
        """What an instance of this policy needs of a channel, as its journal says. Its senders ask (R12)."""
