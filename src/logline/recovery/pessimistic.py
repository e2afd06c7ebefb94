"""Pessimistic logging, the default: what is shown is durable (LOG.io sections 3 and 4; R1, R2, R5, R12).

Everything goes into the journal in one commit, and receivers see it there. A later life is its image and the members
of its open sets. An input is needed until it is taken and in no open set, and not passed on by a write that is still
to be done.

    >>> from logline.engine.image import Needs, Position
    >>> from logline.names import Ssn
    >>> Pessimistic.needed(Needs(Position(Ssn(7)), [Ssn(3)]))
    Needed(after=7, members=[3], floor=None)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from logline.engine import actions as do
from logline.engine.checkpointing import Schedule
from logline.engine.image import Image, Needs
from logline.engine.policy import Moment, Needed
from logline.engine.results import Failure
from logline.engine.step import Step
from logline.graph.model import Policy as PolicyName
from logline.names import ChannelName, Ssn


class Pessimistic:
    """LOG.io's protocol: log everything in one commit, and show outputs once it is durable."""

    name: PolicyName = "pessimistic"
    shows: Moment = "durable"
    schedule: Schedule | None = None

    def log(self, step: Step) -> Sequence[do.Action]:
        """One commit holds all of it (R1)."""
        return (do.Commit(step),)

    def members(self, image: Image) -> Mapping[ChannelName, Sequence[Ssn]]:
        """Exactly the members of open sets that no checkpoint covers (R22); parked sets are not rebuilt."""
        found: dict[ChannelName, set[Ssn]] = {}
        for opened in image.sets.values():
            if opened.cause != "parked":
                for member in opened.members:
                    found.setdefault(member.channel, set()).add(member.ssn)
        return {channel: sorted(ssns) for channel, ssns in found.items()}

    def gone(self, channel: ChannelName, ssns: Sequence[Ssn]) -> Failure:
        """An engine error: what is needed is not collected (R12), and what was shown was durable (R2)."""
        text = f"{len(ssns)} events of {channel} from {ssns[0]} on are needed and are not in the log any more"
        return Failure("EngineError", f"{text}: the log is damaged, or R12 is broken", "")

    @staticmethod
    def needed(needs: Needs) -> Needed:
        """What is not taken, members of open sets, and what a write has yet to pass on. One that has left has taken
        all up to the end, and needs what comes after it if the end is taken back (R11')."""
        return Needed(needs.position.ssn, needs.members, needs.unwritten)
