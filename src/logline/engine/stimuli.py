"""What the machine is told: outcomes of its actions, bells, the clock, commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from logline.engine.events import Output
from logline.engine.image import Claim, Needs, Taken
from logline.engine.moments import Monotonic, Wall
from logline.engine.results import Failure, Produced, Result
from logline.engine.sets import Answer, Checkpoint, Kept, Member, Timer
from logline.engine.spec import InstanceSpec
from logline.graph.operator import Cause
from logline.names import ChannelName, InsetId, PartitionName, Serial, Ssn, TargetName


@dataclass(frozen=True, slots=True)
class Stimulus:
    """The base of all stimuli."""


@dataclass(frozen=True, slots=True)
class Started(Stimulus):
    """A life begins: its machine has to claim the journal first (R10)."""


@dataclass(frozen=True, slots=True)
class Claimed(Stimulus):
    """The journal is claimed. The claim has the image that this life starts from."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Fetched(Stimulus):
    """Events of a channel, in order and without gaps after `after`; none if there is nothing new."""

    channel: ChannelName
    after: Ssn
    events: Sequence[Output]


@dataclass(frozen=True, slots=True)
class MembersFetched(Stimulus):
    """The members that `FetchMembers` asked for."""

    channel: ChannelName
    events: Sequence[Output]


@dataclass(frozen=True, slots=True)
class PayloadGone(Stimulus):
    """Events that this life asked for are not there any more. The policy says what follows."""

    channel: ChannelName
    ssns: tuple[Ssn, ...]


@dataclass(slots=True)
class Intake:
    """What the state update and triggering phases decided for a run of events."""

    alone: dict[Serial, Member] = field(default_factory=dict)
    """Stateless operators: events that are sets of their own."""
    opened: list[tuple[Serial, InsetId]] = field(default_factory=list)
    kept: dict[Serial, tuple[Kept, tuple[Member, ...]]] = field(default_factory=dict)
    """Of those that were opened: the ones that go on with what was generated, how often that was, and the members
    that they begin with."""
    members: list[tuple[Serial, Member]] = field(default_factory=list)
    merged: list[tuple[Serial, Serial]] = field(default_factory=list)
    """Sets that are part of another one now, each with that one. Their members are in `members` again, as members of
    the other (R32)."""
    due: list[tuple[Serial, Cause]] = field(default_factory=list)
    failed: list[tuple[Serial, Failure]] = field(default_factory=list)
    state: bytes | None = None
    clock: dict[ChannelName, int] = field(default_factory=dict)
    timers: dict[InsetId, Timer | None] = field(default_factory=dict)
    wait_until: Monotonic | None = None
    """When a channel will have been silent for long enough, or the first timer that was set for a span has come."""
    timer_at: Wall | None = None
    """The time of the first timer that was set for a time of the wall clock."""
    rest: bool = False
    """After a recovery: whether sets are open though every input has ended."""
    holds: list[tuple[Serial, int | None]] = field(default_factory=list)
    """Where time is passed on (R30): the earliest time that may come of these sets; None if nobody knows."""
    inherits: list[tuple[Serial, Serial]] = field(default_factory=list)
    """And which set goes on with the members of which other one: what comes of it may be as early."""
    passed: int | None = None
    """And what the operator passes on of its watermark."""
    idle: bool = False
    """And whether all its inputs are idle, and nothing waits for the wall clock."""


@dataclass(frozen=True, slots=True)
class TakenIn(Stimulus):
    """The run was taken in."""

    intake: Intake


@dataclass(frozen=True, slots=True)
class Applied(Stimulus):
    """The run was taken in and generated, as far as it went."""

    first: Serial
    """The set of the first event; the others follow."""
    made: Sequence[Sequence[Produced]]
    """What came of each event."""
    rest: Mapping[Serial, Member] = field(default_factory=dict)
    """Where one failed, or a stop came: the sets from there on, which are due like others."""
    failure: Failure | None = None
    """How the first of the rest failed; None if a stop came."""
    intake: Intake | None = None
    """What the event clock has seen meanwhile, of an operator that has one; nothing else of it is used."""


@dataclass(frozen=True, slots=True)
class Checkpointed(Stimulus):
    """The event state of these sets is encoded. Those that had failed by then are not among them."""

    checkpoints: Mapping[Serial, Checkpoint]


@dataclass(frozen=True, slots=True)
class Rebuilt(Stimulus):
    """All open sets are whole again."""

    intake: Intake
    """Only `failed`, what is waited for and what is known of event time are used."""


@dataclass(frozen=True, slots=True)
class Generated(Stimulus):
    """Some of the sets under way are generated."""

    results: Sequence[Result]


@dataclass(frozen=True, slots=True)
class Interrupted(Stimulus):
    """After `StopCalls`: these sets were not begun, or their code got as far as it may. They stay due."""

    serials: tuple[Serial, ...]


@dataclass(frozen=True, slots=True)
class Diverted(Stimulus):
    """The event for port `errors` is made, of this set with these members."""

    serial: Serial
    output: Produced
    inset: InsetId
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class CallWanted(Stimulus):
    """User code of a writer wants to make a call."""

    serial: Serial
    row: int
    n: int


@dataclass(frozen=True, slots=True)
class Answered(Stimulus):
    """A call has its answer; it is not handed on before it is committed."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Committed(Stimulus):
    """The commit of this number is durable."""

    number: int


@dataclass(frozen=True, slots=True)
class FencedOff(Stimulus):
    """A newer incarnation has the journal."""


@dataclass(frozen=True, slots=True)
class PositionKnown(Stimulus):
    """A positioned target has applied the writes up to this number; another one has none above it. With a failure
    nothing is known."""

    target: TargetName
    number: int
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class WritesFetched(Stimulus):
    """Write actions that are not known to be done."""

    target: TargetName
    writes: Sequence[Output]


@dataclass(frozen=True, slots=True)
class Written(Stimulus):
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


@dataclass(frozen=True, slots=True)
class ReadGot(Stimulus):
    """Some items of a partition; `pause`: nothing more now, `end`: the partition has ended."""

    partition: PartitionName
    items: Sequence[ReadItem]
    then: Literal["more", "pause", "end"]
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Confirmed(Stimulus):
    """The destructive source has let these messages go."""

    partition: PartitionName
    ids: tuple[bytes, ...]
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Observed(Stimulus):
    """What the receivers have taken and still need."""

    needs: Mapping[ChannelName, Needs]


@dataclass(frozen=True, slots=True)
class TakenObserved(Stimulus):
    """How far the receivers are."""

    taken: Mapping[ChannelName, Taken]


@dataclass(frozen=True, slots=True)
class BasesObserved(Stimulus):
    """Below these SSNs the senders have collected."""

    bases: Mapping[ChannelName, Ssn]


@dataclass(frozen=True, slots=True)
class Bell(Stimulus):
    """Some journal may have grown, some position may have moved."""


@dataclass(frozen=True, slots=True)
class Tick(Stimulus):
    """The time that a `Wake` asked for has come; the moment that `handle` gets says what time it is."""


@dataclass(frozen=True, slots=True)
class Broke(Stimulus):
    """User code failed where nothing but stopping is left (`assign`, `update`, `open`, `read` with on_error stop)."""

    failure: Failure
    event: str = ""


@dataclass(frozen=True, slots=True)
class Rewired(Stimulus):
    """Channels of this instance have come or gone; its ports are the same (R28)."""

    spec: InstanceSpec


@dataclass(frozen=True, slots=True)
class Command(Stimulus):
    """`stop`: end this life in order. `drain`: sources stop reading. `flush`: what is gathered for a span of time
    goes out now."""

    kind: Literal["stop", "drain", "flush"]
