"""What the machine asks the driver to do. The runtime executes each action for real, the simulator in its own world.

The machine has at most one of a kind under way per subject (a channel, a target, a partition), and hears of the
outcome as a stimulus (engine.stimuli).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.results import Failure
from logline.engine.sets import Answer
from logline.engine.step import Step
from logline.graph.operator import Cause
from logline.names import ChannelName, InstanceName, PartitionName, Serial, Ssn, TargetName


@dataclass(frozen=True, slots=True)
class Action:
    """The base of all actions."""


@dataclass(frozen=True, slots=True)
class ClaimJournal(Action):
    """Fence off older lives and load the image (R10)."""


@dataclass(frozen=True, slots=True)
class Fetch(Action):
    """Read events of a channel from the sender's journal, from the one after `after` (R4)."""

    channel: ChannelName
    after: Ssn


@dataclass(frozen=True, slots=True)
class FetchMembers(Action):
    """Read exactly these events: the members of open sets (R5)."""

    channel: ChannelName
    ssns: tuple[Ssn, ...]


@dataclass(frozen=True, slots=True)
class Rebuild(Action):
    """Restore the phases from the image, and apply `update` to each open set with its members (R5)."""

    image: Image
    events: dict[ChannelName, dict[Ssn, Output]]


@dataclass(frozen=True, slots=True)
class TakeIn(Action):
    """State update and triggering for a run of events (Algorithm 2)."""

    events: Sequence[tuple[ChannelName, Output]]


@dataclass(frozen=True, slots=True)
class Apply(Action):
    """Take in a run of events and generate each there and then (Algorithms 2 and 3 in one): sets of one event, none
    of which is open for longer."""

    events: Sequence[tuple[ChannelName, Output]]


@dataclass(frozen=True, slots=True)
class CheckClock(Action):
    """See whether a timer of the wall clock has come, or a channel has gone idle."""

    flush: bool = False
    """Whether spans count as over that are not: the run ends, and what was gathered for a moment goes out."""


@dataclass(frozen=True, slots=True)
class Checkpoint(Action):
    """Encode the event state of these open sets, as it is after the events taken in so far (R22). No run of events is
    at the phases meanwhile."""

    serials: tuple[Serial, ...]


@dataclass(frozen=True, slots=True)
class LetGo(Action):
    """Checkpoints that cover so many members of these sets are durable: nobody reads those members again (R22)."""

    covered: Mapping[Serial, int]


class Job(NamedTuple):
    """One set to generate, with the answers that are kept for it."""

    serial: Serial
    cause: Cause
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Generate(Action):
    """Run `generate` on a run of sets, in this order (Algorithm 3)."""

    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class Divert(Action):
    """Make the event for port `errors` out of a set that failed for good."""

    serial: Serial
    failure: Failure


@dataclass(frozen=True, slots=True)
class Discard(Action):
    """Drop the event state of a set that failed and is not generated any more."""

    serial: Serial


@dataclass(frozen=True, slots=True)
class Permit(Action):
    """A `ctx.call` of a writer may be made: what the operator wrote before is written (R9)."""

    serial: Serial
    row: int
    n: int


@dataclass(frozen=True, slots=True)
class StopCalls(Action):
    """The life is told to stop: begin no set, call, read or write any more. What is under way comes to its end. Of
    sets that are left in the middle, `Interrupted` tells."""


@dataclass(frozen=True, slots=True)
class Release(Action):
    """These answers are committed: hand them to the code that waits for them (R9)."""

    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Commit(Action):
    """Make the step durable, all of it or nothing (R1)."""

    step: Step


@dataclass(frozen=True, slots=True)
class Ring(Action):
    """Hint to these instances that this journal has grown or a position has moved."""

    instances: tuple[InstanceName, ...]


@dataclass(frozen=True, slots=True)
class AskPosition(Action):
    """Ask a target for the last number it has applied (Algorithm 8, step 2.a): one that is positioned, or that can
    say so all the same (`Sink.highest`)."""

    target: TargetName


@dataclass(frozen=True, slots=True)
class FetchWrites(Action):
    """After a crash: read the write actions that are not known to be done (Algorithm 8, step 1)."""

    target: TargetName
    after: int


@dataclass(frozen=True, slots=True)
class WriteOut(Action):
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


@dataclass(frozen=True, slots=True)
class Read(Action):
    """Read on in a partition; the iterator is opened at `offset` if this life has none yet."""

    partition: PartitionName
    offset: bytes | None
    fresh: bool
    """Open the iterator anew, at `offset`."""


@dataclass(frozen=True, slots=True)
class Confirm(Action):
    """Tell a destructive source that these messages are in the log (R9)."""

    partition: PartitionName
    ids: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Observe(Action):
    """Read what the receivers of a port have taken and still need (R12, R13)."""

    channels: tuple[ChannelName, ...]


@dataclass(frozen=True, slots=True)
class ObserveTaken(Action):
    """Read how far the receivers of a port are, and no more: what they need is as long as their sets (R13)."""

    channels: tuple[ChannelName, ...]


@dataclass(frozen=True, slots=True)
class ObserveBases(Action):
    """Read which events the senders have collected, so that memberships of done sets can go too."""

    channels: tuple[ChannelName, ...]


@dataclass(frozen=True, slots=True)
class Wake(Action):
    """Send a Tick at this time, or later."""

    at: Monotonic


@dataclass(frozen=True, slots=True)
class Halt(Action):
    """The operator failed for good: stop the pipeline with this error."""

    failure: Failure
    serial: Serial = Serial(0)
    event: str = ""


@dataclass(frozen=True, slots=True)
class Leave(Action):
    """This life is over: `left` (R11), `stopped`, `handed` (what is left to read is for another life), or `fenced`
    (R10)."""

    why: str
