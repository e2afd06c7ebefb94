"""What the protocol itself costs per event, in microseconds of processor time.

Three shapes, each with and without what surrounds the machine:

- `stateless`: each event is a set of its own and makes one output (map)
- `windows`: 100 events make a set, which makes one output
- `source`: a replayable source

"machine" is `handle()` alone, with outcomes prepared beforehand; "life" adds the phases, the runner and a memory
store, with a user function that does nothing. Runs of events cross the machine's border, not single ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.measure import repeat, timed, write
from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Output, Position
from logline.engine.image import Claim, Image, Needs
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.results import Produced, Result
from logline.engine.sets import Member
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.graph.instances import Channel
from logline.graph.operator import Context, Event, Operator
from logline.names import (
    IN,
    OUT,
    Called,
    Incarnation,
    InstanceName,
    OperatorName,
    PartitionName,
    PortName,
    Serial,
    Ssn,
)
from logline.recovery.machines import machine_for
from logline.runtime.lives.driver import Hooks, LifeDriver, live
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Surroundings
from logline.store.memory import MemoryStore
from logline.store.seam import Journal
from logline.testing.sim.plain import PlainPayloads

EVENTS = 50_000
RUN = 256
SIZE = 10_000
UP, OP, DOWN = InstanceName("up"), InstanceName("op"), InstanceName("down")
CHANNEL = Channel.between(UP, OUT, OP, IN)
NEXT = Channel.between(OP, OUT, DOWN, IN)
PAYLOAD = (("record", 0),)
MOMENT = Moment(Monotonic(1), Wall(1))


def _spec(*, stateless: bool) -> InstanceSpec:
    return InstanceSpec(OP, inputs=(CHANNEL,), ports={OUT: (NEXT,)}, stateless=stateless)


def _events(first: int, count: int) -> list[Output]:
    return [Output(OUT, Ssn(n), PAYLOAD, 1, SIZE, n * SIZE, Serial(0)) for n in range(first, first + count)]


def machine(block: int) -> float:
    """Seconds for EVENTS events through `handle()` alone; `block` events make a set (1: stateless)."""
    spent = 0.0
    m = machine_for(_spec(stateless=block == 1))
    serial, ssn, members = 0, 1, 0
    runs = [_events(n, RUN) for n in range(1, EVENTS + 1, RUN)]
    pending: list[on.Stimulus] = [on.Started()]
    while pending:
        stimulus = pending.pop(0)
        actions: list[do.Action] = []
        spent += timed(lambda stimulus=stimulus, actions=actions: actions.extend(m.handle(stimulus, MOMENT)))  # type: ignore[misc]
        for action in actions:
            if isinstance(action, do.ClaimJournal):
                pending.append(on.Claimed(Claim(Incarnation(1), Image())))
            elif isinstance(action, do.Rebuild):
                pending.append(on.Rebuilt(on.Intake()))
            elif isinstance(action, do.Fetch):
                if runs:
                    pending.append(on.Fetched(action.channel, action.after, runs.pop(0)))
            elif isinstance(action, do.TakeIn):
                intake = on.Intake()
                for channel, event in action.events:
                    if block == 1:
                        serial += 1
                        intake.alone[Serial(serial)] = Member(channel, event.ssn)
                        continue
                    if members == 0:
                        serial += 1
                        intake.opened.append((Serial(serial), serial))
                    intake.members.append((Serial(serial), Member(channel, event.ssn)))
                    members += 1
                    if members == block:
                        members = 0
                        intake.due.append((Serial(serial), "fired"))
                pending.append(on.TakenIn(intake))
            elif isinstance(action, do.Generate):
                made = (Produced(OUT, PAYLOAD, 1, SIZE),)
                pending.append(on.Generated([Result(job.serial, made) for job in action.jobs]))
            elif isinstance(action, do.Commit):
                pending.append(on.Committed(action.step.number))
            elif isinstance(action, do.Observe):
                taken = Needs(Position(Ssn(ssn), m.outbox.heads[OUT].total), (), False)
                pending.append(on.Observed({NEXT.name: taken}))
            elif isinstance(action, do.Ring):
                pending.append(on.Bell())
    return spent


class Pass(Operator[Any, None]):
    """Stateless: puts out what it gets."""

    def generate(self, inset: Any, acc: Any, ctx: Context[None]) -> Iterator[Any]:
        yield acc


class Hundred(Operator[Any, Any]):
    """A hundred events make a set."""

    State = dict

    def assign(self, event: Event, ctx: Context[Any]) -> Any:
        n = ctx.state.get("n", 0)
        ctx.state["n"] = n + 1
        if n % 100 == 99:
            ctx.fire(n // 100)
        return (n // 100,)

    def update(self, inset: Any, acc: Any, event: Event) -> Any:
        return event.batch

    def generate(self, inset: Any, acc: Any, ctx: Context[Any]) -> Iterator[Any]:
        yield acc


def life(op: Operator[Any, Any], *, stateless: bool) -> float:
    """Seconds for EVENTS events through a whole life on a memory store."""
    store = MemoryStore()
    feeder = store.claim(UP)
    for n in range(1, EVENTS + 1, RUN):
        feeder.commit(Step(number=n // RUN + 1, outputs=_events(n, RUN)))
    receiver = store.claim(DOWN)
    hooks = _Taking(receiver)
    instance = Instance(
        OperatorName("op"), _spec(stateless=stateless), PlainPayloads(), Called("op"), op=op, sinks={}
    )
    driver = live(instance, store, hooks, Surroundings(clock=lambda: MOMENT, threads=False))
    return timed(driver.run)


class _Taking(Hooks):
    """A receiver takes all there is whenever somebody looks at how far it is."""

    def __init__(self, receiver: Journal) -> None:
        self._receiver = receiver
        self._commits = 0

    def execute(self, driver: LifeDriver[Any], action: do.Action) -> Sequence[on.Stimulus]:
        if isinstance(action, do.Observe):
            outbox = driver.machine.outbox
            self._commits += 1
            position = Position(outbox.durable[OUT], outbox.heads[OUT].total)
            self._receiver.commit(Step(number=self._commits, positions={NEXT.name: position}))
            driver.arrive(on.Bell())
        return super().execute(driver, action)


def source() -> float:
    """Seconds for EVENTS events out of a replayable source's machine."""
    spec = InstanceSpec(OP, ports={OUT: (NEXT,)}, partitions=(PartitionName("0"),))
    m = machine_for(spec)
    item = on.ReadItem((Produced(PortName("out"), PAYLOAD, 1, SIZE),), b"offset")
    left = EVENTS
    pending: list[on.Stimulus] = [on.Started()]
    spent = 0.0
    while pending:
        stimulus = pending.pop(0)
        actions: list[do.Action] = []
        spent += timed(lambda stimulus=stimulus, actions=actions: actions.extend(m.handle(stimulus, MOMENT)))  # type: ignore[misc]
        for action in actions:
            if isinstance(action, do.ClaimJournal):
                pending.append(on.Claimed(Claim(Incarnation(1), Image())))
            elif isinstance(action, do.Read):
                left -= RUN
                pending.append(on.ReadGot(action.partition, [item] * RUN, "more" if left > 0 else "end"))
            elif isinstance(action, do.Commit):
                pending.append(on.Committed(action.step.number))
            elif isinstance(action, do.Observe):
                taken = Needs(Position(m.outbox.durable[OUT], m.outbox.heads[OUT].total), (), False)
                pending.append(on.Observed({NEXT.name: taken}))
            elif isinstance(action, do.Ring):
                pending.append(on.Bell())
    return spent


def main() -> None:
    """Measures, prints and writes the JSON."""
    shapes = {
        "stateless, machine": lambda: machine(1),
        "stateless, life": lambda: life(Pass(), stateless=True),
        "windows of 100, machine": lambda: machine(100),
        "windows of 100, life": lambda: life(Hundred(), stateless=False),
        "source, machine": source,
    }
    result: dict[str, Any] = {}
    for name, shape in shapes.items():
        found = repeat(lambda shape=shape: shape() * 1e6 / EVENTS)  # type: ignore[misc]
        result[name] = found
        print(f"{name:<26} {found['median']:6.2f} us per event  ({found['min']:.2f} - {found['max']:.2f})")
    write("machine", {"unit": "microseconds of processor time per event", "events": EVENTS, "results": result})


if __name__ == "__main__":
    main()
