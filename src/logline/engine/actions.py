"""What the machine asks the driver to do. The runtime executes each action for real, the simulator in its own world.

The machine has at most one of a kind under way per subject (a channel, a target, a partition), and hears of the
outcome as a stimulus (engine.stimuli).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.results import Failure
from logline.engine.sets import Answer
from logline.engine.step import Step
from logline.graph.operator import Cause
from logline.names import ChannelName, InstanceName, PartitionName, Serial, Ssn, TargetName


class Action(msgspec.Struct, frozen=True):
    """The base of all actions."""


class ClaimJournal(Action, frozen=True):
    """Fence off older lives and load the image (R10)."""


class Fetch(Action, frozen=True):
    """Read events of a channel from the sender's journal, from the one after `after` (R4)."""

    channel: ChannelName
    after: Ssn


class FetchMembers(Action, frozen=True):
    """Read exactly these events: the members of open sets (R5)."""

    channel: ChannelName
    ssns: tuple[Ssn, ...]


class Rebuild(Action, frozen=True):
    """Restore the phases from the image, and apply `update` to each open set with its members (R5)."""

    image: Image
    events: dict[ChannelName, dict[Ssn, Output]]


class TakeIn(Action, frozen=True):
    """State update and triggering for a run of events (Algorithm 2)."""

    events: Sequence[tuple[ChannelName, Output]]


class Apply(Action, frozen=True):
    """Take in a run of events and generate each there and then (Algorithms 2 and 3 in one): sets of one event, none
    of which is open for longer."""

    events: Sequence[tuple[ChannelName, Output]]


class CheckClock(Action, frozen=True):
    """See whether a timer of the wall clock has come, or a channel has gone idle."""

    flush: bool = False
    """Whether spans count as over that are not: the run ends, and what was gathered for a moment goes out."""


class Checkpoint(Action, frozen=True):
    """Encode the event state of these open sets, as it is after the events taken in so far (R22). No run of events is
    at the phases meanwhile."""

    serials: tuple[Serial, ...]


class LetGo(Action, frozen=True):
    """Checkpoints that cover so many members of these sets are durable: nobody reads those members again (R22)."""

    covered: Mapping[Serial, int]


class Job(NamedTuple):
    """One set to generate, with the answers that are kept for it."""

    serial: Serial
    cause: Cause
    answers: tuple[Answer, ...] = ()


class Generate(Action, frozen=True):
    """Run `generate` on a run of sets, in this order (Algorithm 3)."""

    jobs: Sequence[Job]


class Divert(Action, frozen=True):
    """Make the event for port `errors` out of a set that failed for good."""

    serial: Serial
    failure: Failure


class Discard(Action, frozen=True):
    """Drop the event state of a set that failed and is not generated any more."""

    serial: Serial


class Permit(Action, frozen=True):
    """A `ctx.call` of a writer may be made: what the operator wrote before is written (R9)."""

    serial: Serial
    row: int
    n: int


class StopCalls(Action, frozen=True):
    """The life is told to stop: begin no set, call, read or write any more. What is under way comes to its end. Of
    sets that are left in the middle, `Interrupted` tells."""


class Release(Action, frozen=True):
    """These answers are committed: hand them to the code that waits for them (R9)."""

    answers: tuple[Answer, ...]


class Commit(Action, frozen=True):
    """Make the step durable, all of it or nothing (R1)."""

    step: Step


class Ring(Action, frozen=True):
    """Hint to these instances that this journal has grown or a position has moved."""

    instances: tuple[InstanceName, ...]


class AskPosition(Action, frozen=True):
    """Ask a target for the last number it has applied (Algorithm 8, step 2.a): one that is positioned, or that can
    say so all the same (`Sink.highest`)."""

    target: TargetName


class FetchWrites(Action, frozen=True):
    """After a crash: read the write actions that are not known to be done (Algorithm 8, step 1)."""

    target: TargetName
    after: int


class WriteOut(Action, frozen=True):
    """Execute write actions of a target, one after the other (Algorithm 5). It may stop after some of them."""

    target: TargetName
    writes: tuple[Output, ...]
    """Numbered by their SSNs, without gaps."""
    scope: str
    """With the number it names a write for good."""

    def first(self, count: int) -> WriteOut:
        """The same with so many of its writes."""
        return WriteOut(self.target, self.writes[:count], self.scope)

    def write_id(self, number: int) -> str:
        """Unique and stable: the same write has it in every life."""
        return f"{self.scope}/{number}"


class Read(Action, frozen=True):
    """Read on in a partition; the iterator is opened at `offset` if this life has none yet."""

    partition: PartitionName
    offset: bytes | None
    fresh: bool
    """Open the iterator anew, at `offset`."""


class Confirm(Action, frozen=True):
    """Tell a destructive source that these messages are in the log (R9)."""

    partition: PartitionName
    ids: tuple[bytes, ...]


class Observe(Action, frozen=True):
    """Read what the receivers of a port have taken and still need (R12, R13)."""

    channels: tuple[ChannelName, ...]


class ObserveTaken(Action, frozen=True):
    """Read how far the receivers of a port are, and no more: what they need is as long as their sets (R13)."""

    channels: tuple[ChannelName, ...]


class ObserveBases(Action, frozen=True):
    """Read which events the senders have collected, so that memberships of done sets can go too."""

    channels: tuple[ChannelName, ...]


class Wake(Action, frozen=True):
    """Send a Tick at this time, or later."""

    at: Monotonic


class Halt(Action, frozen=True):
    """The operator failed for good: stop the pipeline with this error."""

    failure: Failure
    serial: Serial = Serial(0)
    event: str = ""


class Leave(Action, frozen=True):
    """This life is over: `left` (R11), `stopped`, `handed` (what is left to read is for another life), or `fenced`
    (R10)."""

    why: str
