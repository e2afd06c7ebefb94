"""The driver of a life: it brings stimuli to the machine, executes the actions that come back, and ends the life.

Everything that executes actions is this loop: the inline engine, the janitor, a rerun, the stage and the simulator of
`logline.testing`. What differs between them is in `Hooks`: the order of things, what goes to another thread, what
happens around an action, who is told.

    driver = live(instance, store, Hooks(), Surroundings(clock))
    driver.begin()
    while driver.step():
        ...

`step` takes one action or one stimulus. It never waits, but in inline user code: a `ctx.call` there waits for an
answer that has to be durable, and the driver goes on with the same life until it is (`await_durable`, R9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.machine import Machine
from logline.engine.moments import Moment, Monotonic
from logline.engine.spec import InstanceSpec
from logline.errors import EngineError, Fenced, PipelineFailed
from logline.names import InstanceName
from logline.runtime.lives.gates import Key
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Life, Surroundings
from logline.runtime.lives.log_life import LogLife
from logline.runtime.lives.threads import WorkThread
from logline.store.seam import Call, Journals, StoreTraits

L = TypeVar("L", bound=LogLife)

IN_ORDER = frozenset({"left", "stopped", "handed"})
"""Ends of a life that let user code clean up; the others are like a crash."""

_OUTSIDE = "outside"
OUTSIDE: Mapping[type[do.Action], str] = dict.fromkeys((do.Read, do.Confirm, do.WriteOut, do.AskPosition), _OUTSIDE)
"""Actions that call the user's sources and sinks, which may block for as long as they like."""
_CALLS: Mapping[type[do.Action], Call] = {
    do.ClaimJournal: "claim",
    do.Commit: "commit",
    **dict.fromkeys(
        (do.Fetch, do.FetchMembers, do.FetchWrites, do.Divert, do.Observe, do.ObserveTaken, do.ObserveBases), "read"
    ),
}
"""What each action asks of the store."""


def blocking(traits: StoreTraits) -> dict[type[do.Action], str]:
    """Actions that block, with the thread of the life that executes them. What is on one thread stays in order;
    commits have their own, so that a slow read does not hold back what is to be shown."""
    names: Mapping[Call, str] = {"claim": "log", "read": "log", "commit": "commit"}
    return {**OUTSIDE, **{kind: names[call] for kind, call in _CALLS.items() if call in traits.blocking}}


class Returned(on.Stimulus, frozen=True):
    """An action is back from another thread. For the driver, not for the machine."""

    action: do.Action
    outcome: Sequence[on.Stimulus] = ()
    error: BaseException | None = None
    """What was raised, if Logline itself failed there, or the log did."""


class Hooks:
    """What differs between those who drive lives. As it stands: in order, on the caller's thread, nobody is told."""

    away: Mapping[type[do.Action], str] = {}
    """Actions that are executed on a thread of the life, and the name of that thread."""

    def choose(self, driver: LifeDriver[Any]) -> int:
        """The index of what comes next, counted over `todo` and then `stimuli`. There is at least one."""
        return 0

    def execute(self, driver: LifeDriver[Any], action: do.Action) -> Sequence[on.Stimulus]:
        """Executes an action, on whatever thread it is; what is done before and after it goes here."""
        done: Sequence[on.Stimulus] = driver.life.execute(action)
        return done

    def asked(self, driver: LifeDriver[Any], actions: Sequence[do.Action]) -> Sequence[do.Action]:
        """The machine has asked for these; returns those that are still to be done."""
        return actions

    def post(self, driver: LifeDriver[Any], stimulus: on.Stimulus) -> None:
        """Brings what user code or another thread reports to the driver's own thread, to `driver.arrive`."""
        driver.arrive(stimulus)

    def idle(self, driver: LifeDriver[Any]) -> None:
        """Inline user code waits for an answer, and nothing is at hand: returns when something may be."""
        raise EngineError(f"{driver.name}: a call waits for an answer that does not come")

    def wake(self, driver: LifeDriver[Any], at: Monotonic) -> None:
        """The machine wants a Tick at this time."""

    def read_waits(self, driver: LifeDriver[Any]) -> None:
        """On the thread of a read that has got something and goes on: somebody should look at `life.hand_over`."""

    def halted(self, driver: LifeDriver[Any], halt: do.Halt) -> None:
        """The operator failed for good."""
        raise failed(driver, halt)

    def ended(self, driver: LifeDriver[Any], why: str) -> None:
        """The life is over, and closed."""


class LifeDriver(Generic[L]):
    """One life: its machine, what came for it, what it has to do."""

    def __init__(self, make: Callable[[LifeDriver[L]], L], hooks: Hooks, clock: Callable[[], Moment]) -> None:
        self.hooks = hooks
        self.clock = clock
        self.stimuli: deque[on.Stimulus] = deque()
        self.todo: deque[do.Action] = deque()
        self.over: str | None = None
        """Why the life has ended."""
        self._awaited: dict[Key, on.Stimulus] = {}
        """Calls of inline user code that wait, and what they have told."""
        self._threads: dict[str, WorkThread[do.Action]] = {}
        self._claiming = False
        """Whether a claim is on another thread."""
        self._after_claim: list[Callable[[], None]] = []
        self._writing = 0
        """Writes on another thread."""
        self._after_write: list[Callable[[], None]] = []
        self._away = hooks.away
        self.life = make(self)
        self.machine: Machine = self.life.machine

    @property
    def name(self) -> InstanceName:
        """The instance that lives."""
        return self.life.spec.name

    def begin(self) -> None:
        """Puts the first stimulus, `Started`, before the machine; `step` then takes it."""
        self.stimuli.append(on.Started())

    def run(self) -> None:
        """Begins the life, and takes steps until nothing is at hand."""
        self.begin()
        while self.step():
            pass

    # ---- the loop -------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Takes one action or one stimulus; False if there is none."""
        todo, stimuli = self.todo, self.stimuli
        if self.over is not None or not (todo or stimuli):
            return False
        chosen = self.hooks.choose(self)
        if chosen < len(todo):
            action = todo[chosen]
            del todo[chosen]
            self.execute(action)
        else:
            chosen -= len(todo)
            stimulus = stimuli[chosen]
            del stimuli[chosen]
            self.deliver(stimulus)
        return True

    def peek(self) -> do.Action | None:
        """The next action, after as many stimuli as it takes to have one; None if there is nothing to do."""
        while not self.todo and self.stimuli and self.over is None:
            self.deliver(self.stimuli.popleft())
        return self.todo[0] if self.todo and self.over is None else None

    def deliver(self, stimulus: on.Stimulus) -> None:
        """Brings a stimulus to the machine, and queues the actions that it asks for."""
        actions = self.machine.handle(stimulus, self.clock())
        if actions:
            self.todo.extend(self.hooks.asked(self, actions))

    def execute(self, action: do.Action) -> None:
        """Does it here, has it done elsewhere, or tells whose business it is."""
        kind = type(action)
        if kind in self._away:
            self._send_away(action, self._away[kind])
        elif kind is do.Wake:
            self.hooks.wake(self, action.at)  # type: ignore[attr-defined]
        elif kind is do.Leave:
            self.end(action.why)  # type: ignore[attr-defined]
        elif kind is do.Halt:
            self.hooks.halted(self, action)  # type: ignore[arg-type]
        else:
            if self._awaited:
                self._grant(action)
            outcome = self.hooks.execute(self, action)
            if outcome and self.over is None:
                self.stimuli.extend(outcome)

    def arrive(self, stimulus: on.Stimulus) -> None:
        """Something came from outside, or is back from another thread. A life that is over hears nothing."""
        if isinstance(stimulus, Returned):
            if isinstance(stimulus.action, do.ClaimJournal):
                self._claim_returned()
            elif isinstance(stimulus.action, do.WriteOut):
                self._write_returned()
            if self.over is None:
                if stimulus.error is not None:
                    raise stimulus.error
                self.stimuli.extend(stimulus.outcome)
        elif self.over is None:
            self.stimuli.append(stimulus)

    def rewire(self, spec: InstanceSpec) -> None:
        """Channels of the instance have come or gone: the life reads other ones, and its machine hears of it."""
        self.life.rewire(spec)
        self.arrive(on.Rewired(spec))

    def quiet(self) -> bool:
        """Whether it has nothing to do until something comes from outside."""
        return self.over is not None or (not self.todo and not self.stimuli and self.machine.quiet())

    def end(self, why: str) -> None:
        """The life is over. An action that is away may still take effect, as after a crash."""
        if self.over is not None:
            return
        self.over = why
        in_order = why in IN_ORDER
        for name, thread in self._threads.items():
            # Sources and sinks are closed where they were opened: a connection may belong to its thread.
            thread.stop(self.life.close_outside if in_order and name == _OUTSIDE else None)
        try:
            self.life.close(in_order=in_order)
            if in_order and _OUTSIDE not in self._threads:
                self.life.close_outside()
        finally:
            self.hooks.ended(self, why)

    # ---- user code ------------------------------------------------------------------------------------

    def report(self, stimulus: on.Stimulus) -> None:
        """User code has something to say, on whatever thread it runs."""
        self.hooks.post(self, stimulus)

    def read_waits(self) -> None:
        """A read has got something and goes on."""
        self.hooks.read_waits(self)

    def await_durable(self, stimulus: on.Stimulus, key: Key) -> None:
        """Inline user code waits for an answer: goes on with this life until it is there. Calls may nest: while one
        waits, another set may be generated."""
        self._awaited[key] = stimulus
        self.deliver(stimulus)
        while key in self._awaited:
            if self.over is not None or self.machine.phase == "failed":
                self._awaited.pop(key, None)
                raise Fenced("the life is over")  # as if by a newer one: `execute` ends it quietly
            if not self.step():
                self.hooks.idle(self)

    @property
    def awaiting(self) -> bool:
        """Whether inline user code waits."""
        return bool(self._awaited)

    def _grant(self, action: do.Action) -> None:
        if isinstance(action, do.Permit):
            self._awaited.pop((action.serial, action.row, action.n), None)
        elif isinstance(action, do.Release):
            for answer in action.answers:
                self._awaited.pop((answer.serial, answer.row, answer.n), None)
        elif isinstance(action, do.StopCalls):  # nobody permits them any more: the runner sees to them
            for key in [key for key, told in self._awaited.items() if isinstance(told, on.CallWanted)]:
                del self._awaited[key]

    # ---- other threads --------------------------------------------------------------------------------

    def _send_away(self, action: do.Action, name: str) -> None:
        thread = self._threads.get(name)
        if thread is None:
            thread = self._threads[name] = WorkThread(f"logline-{name}-{self.name}", self._work_away)
        if isinstance(action, do.ClaimJournal):
            self._claiming = True
        elif isinstance(action, do.WriteOut):
            self._writing += 1
        thread.put(action)

    def _work_away(self, action: do.Action) -> None:
        """On another thread; a life that is over begins nothing more."""
        try:
            returned = Returned(action, self.hooks.execute(self, action) if self.over is None else ())
        except BaseException as error:
            returned = Returned(action, error=error)
        self.hooks.post(self, returned)

    def when_claimed(self, call: Callable[[], None]) -> None:
        """Calls it once no claim is under way. A claim that lands late would fence off the life that comes after
        this one (R10)."""
        if self._claiming:
            self._after_claim.append(call)
        else:
            call()

    def _claim_returned(self) -> None:
        self._claiming = False
        calls, self._after_claim = self._after_claim, []
        for call in calls:
            call()

    def when_written(self, call: Callable[[], None]) -> None:
        """Calls it once no write is under way. A kill would have ended one; here it goes on, and a target could see
        it and the same write of the next life at once (R8)."""
        if self._writing:
            self._after_write.append(call)
        else:
            call()

    def _write_returned(self) -> None:
        self._writing -= 1
        if not self._writing:
            calls, self._after_write = self._after_write, []
            for call in calls:
                call()

    def threads(self) -> list[WorkThread[do.Action]]:
        """The threads it has begun."""
        return list(self._threads.values())


def live(instance: Instance, store: Journals, hooks: Hooks, around: Surroundings) -> LifeDriver[Life]:
    """A life of this instance; it begins with `begin`."""
    return LifeDriver(lambda driver: Life(instance, store, driver, around), hooks, around.clock)


def failed(driver: LifeDriver[Any], halt: do.Halt) -> PipelineFailed:
    """The error of an operator that failed for good, with its own traceback."""
    event = halt.event or driver.life.set_name(halt.serial)
    said = f"{halt.failure.kind}: {halt.failure.message}"
    return PipelineFailed(
        f"operator {driver.name!r} failed" + (f" on {event}" if event else "") + f": {said}",
        operator=driver.name,
        event=event,
        traceback=halt.failure.traceback,
    )
