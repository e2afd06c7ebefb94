"""What the machine is told: outcomes of its actions, bells, the clock, commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from logline.engine.events import Output
from logline.engine.image import Claim, Needs, Taken
from logline.engine.moments import Monotonic, Wall
from logline.engine.results import Failure, Produced, Result
from logline.engine.sets import Answer, Checkpoint, Kept, Member, Timer
from logline.engine.spec import InstanceSpec
from logline.graph.operator import Cause
from logline.names import ChannelName, InsetId, PartitionName, Serial, Ssn, TargetName


class Stimulus(msgspec.Struct, frozen=True):
    """The base of all stimuli."""


class Started(Stimulus, frozen=True):
    """A life begins: its machine has to claim the journal first (R10)."""


class Claimed(Stimulus, frozen=True):
    """The journal is claimed. The claim has the image that this life starts from."""

    claim: Claim


class Fetched(Stimulus, frozen=True):
    """Events of a channel, in order and without gaps after `after`; none if there is nothing new."""

    channel: ChannelName
    after: Ssn
    events: Sequence[Output]


class MembersFetched(Stimulus, frozen=True):
    """The members that `FetchMembers` asked for."""

    channel: ChannelName
    events: Sequence[Output]


class PayloadGone(Stimulus, frozen=True):
    """Events that this life asked for are not there any more. The policy says what follows."""

    channel: ChannelName
    ssns: tuple[Ssn, ...]


class Intake(msgspec.Struct):
    """What the state update and triggering phases decided for a run of events."""

    alone: dict[Serial, Member] = {}
    """Stateless operators: events that are sets of their own."""
    opened: list[tuple[Serial, InsetId]] = []
    kept: dict[Serial, tuple[Kept, tuple[Member, ...]]] = {}
    """Of those that were opened: the ones that go on with what was generated, how often that was, and the members
    that they begin with."""
    members: list[tuple[Serial, Member]] = []
    merged: list[tuple[Serial, Serial]] = []
    """Sets that are part of another one now, each with that one. Their members are in `members` again, as members of
    the other (R32)."""
    due: list[tuple[Serial, Cause]] = []
    failed: list[tuple[Serial, Failure]] = []
    state: bytes | None = None
    clock: dict[ChannelName, int] = {}
    timers: dict[InsetId, Timer | None] = {}
    wait_until: Monotonic | None = None
    """When a channel will have been silent for long enough, or the first timer that was set for a span has come."""
    timer_at: Wall | None = None
    """The time of the first timer that was set for a time of the wall clock."""
    rest: bool = False
    """After a recovery: whether sets are open though every input has ended."""
    holds: list[tuple[Serial, int | None]] = []
    """Where time is passed on (R30): the earliest time that may come of these sets; None if nobody knows."""
    inherits: list[tuple[Serial, Serial]] = []
    """And which set goes on with the members of which other one: what comes of it may be as early."""
    passed: int | None = None
    """And what the operator passes on of its watermark."""
    idle: bool = False
    """And whether all its inputs are idle, and nothing waits for the wall clock."""


class TakenIn(Stimulus, frozen=True):
    """The run was taken in."""

    intake: Intake


class Applied(Stimulus, frozen=True):
    """The run was taken in and generated, as far as it went."""

    first: Serial
    """The set of the first event; the others follow."""
    made: Sequence[Sequence[Produced]]
    """What came of each event."""
    rest: Mapping[Serial, Member] = {}
    """Where one failed, or a stop came: the sets from there on, which are due like others."""
    failure: Failure | None = None
    """How the first of the rest failed; None if a stop came."""
    intake: Intake | None = None
    """What the event clock has seen meanwhile, of an operator that has one; nothing else of it is used."""


class Checkpointed(Stimulus, frozen=True):
    """The event state of these sets is encoded. Those that had failed by then are not among them."""

    checkpoints: Mapping[Serial, Checkpoint]


class Rebuilt(Stimulus, frozen=True):
    """All open sets are whole again."""

    intake: Intake
    """Only `failed`, what is waited for and what is known of event time are used."""


class Generated(Stimulus, frozen=True):
    """Some of the sets under way are generated."""

    results: Sequence[Result]


class Interrupted(Stimulus, frozen=True):
    """After `StopCalls`: these sets were not begun, or their code got as far as it may. They stay due."""

    serials: tuple[Serial, ...]


class Diverted(Stimulus, frozen=True):
    """The event for port `errors` is made, of this set with these members."""

    serial: Serial
    output: Produced
    inset: InsetId
    members: tuple[Member, ...]


class CallWanted(Stimulus, frozen=True):
    """User code of a writer wants to make a call."""

    serial: Serial
    row: int
    n: int


class Answered(Stimulus, frozen=True):
    """A call has its answer; it is not handed on before it is committed."""

    answer: Answer


class Committed(Stimulus, frozen=True):
    """The commit of this number is durable."""

    number: int


class FencedOff(Stimulus, frozen=True):
    """A newer incarnation has the journal."""


class PositionKnown(Stimulus, frozen=True):
    """A positioned target has applied the writes up to this number; another one has none above it. With a failure
    nothing is known."""

    target: TargetName
    number: int
    failure: Failure | None = None


class WritesFetched(Stimulus, frozen=True):
    """Write actions that are not known to be done."""

    target: TargetName
    writes: Sequence[Output]


class Written(Stimulus, frozen=True):
    """Write actions were executed up to a number; the failure, if there is one, is of the next."""

    target: TargetName
    number: int
    failure: Failure | None = None


class ReadItem(NamedTuple):
    """What was read up to one offset (or, of a destructive source, one message with its id)."""

    outputs: tuple[Produced, ...]
    offset: bytes
    time: int | None = None
    """The greatest event time in it, where the source declares one (R30)."""


class ReadGot(Stimulus, frozen=True):
    """Some items of a partition; `pause`: nothing more now, `end`: the partition has ended."""

    partition: PartitionName
    items: Sequence[ReadItem]
    then: Literal["more", "pause", "end"]
    failure: Failure | None = None


class Confirmed(Stimulus, frozen=True):
    """The destructive source has let these messages go."""

    partition: PartitionName
    ids: tuple[bytes, ...]
    failure: Failure | None = None


class Observed(Stimulus, frozen=True):
    """What the receivers have taken and still need."""

    needs: Mapping[ChannelName, Needs]


class TakenObserved(Stimulus, frozen=True):
    """How far the receivers are."""

    taken: Mapping[ChannelName, Taken]


class BasesObserved(Stimulus, frozen=True):
    """Below these SSNs the senders have collected."""

    bases: Mapping[ChannelName, Ssn]


class Bell(Stimulus, frozen=True):
    """Some journal may have grown, some position may have moved."""


class Tick(Stimulus, frozen=True):
    """The time that a `Wake` asked for has come; the moment that `handle` gets says what time it is."""


class Broke(Stimulus, frozen=True):
    """User code failed where nothing but stopping is left (`assign`, `update`, `open`, `read` with on_error stop)."""

    failure: Failure
    event: str = ""


class Rewired(Stimulus, frozen=True):
    """Channels of this instance have come or gone; its ports are the same (R28)."""

    spec: InstanceSpec


class Command(Stimulus, frozen=True):
    """`stop`: end this life in order. `drain`: sources stop reading. `flush`: what is gathered for a span of time
    goes out now."""

    kind: Literal["stop", "drain", "flush"]
