"""The driver of a life: stimuli in, actions done in their order, on their thread, with the hooks told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.waiting import PATIENCE

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.image import Claim, Image
from logline.engine.janitor import Janitor
from logline.engine.machine import Machine
from logline.engine.moments import Moment, Monotonic, Wall
from logline.engine.results import Failure
from logline.engine.sets import Answer
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.errors import EngineError, Fenced, PipelineFailed
from logline.graph.instances import Channel
from logline.names import IN, OUT, Incarnation, InstanceName, Serial
from logline.recovery.machines import needed
from logline.recovery.pessimistic import Pessimistic
from logline.runtime.lives.driver import OUTSIDE, Hooks, LifeDriver, Returned, blocking
from logline.runtime.lives.gates import Key
from logline.runtime.lives.log_life import LogLife
from logline.store.memory import MemoryStore
from logline.store.seam import StoreTraits

OP = InstanceName("op")
CLAIMED = on.Claimed(Claim(Incarnation(1), Image()))
KEY: Key = (Serial(1), -1, 0)
ANSWER = Answer(Serial(1), -1, 0, "fn", "digest", b"")


class Scripted(Janitor):
    """Asks for what a test says, whatever it hears."""

    def __init__(self, answers: dict[type[on.Stimulus], list[do.Action]]) -> None:
        super().__init__(InstanceSpec(OP), Pessimistic(), needed)
        self.answers = answers
        self.heard: list[on.Stimulus] = []

    def handle(self, stimulus: on.Stimulus, moment: Moment) -> list[do.Action]:
        self.heard.append(stimulus)
        return list(self.answers.get(type(stimulus), ()))


class Scene(LogLife):
    """Executes by table, and notes what and where."""

    def __init__(self, machine: Machine, outcomes: dict[type[do.Action], Callable[[], list[on.Stimulus]]]) -> None:
        super().__init__(InstanceSpec(OP), MemoryStore(), machine)
        self.outcomes = outcomes
        self.done: list[tuple[type[do.Action], str]] = []
        self.ends: list[bool] = []

    def execute(self, action: do.Action) -> list[on.Stimulus]:
        self.done.append((type(action), threading.current_thread().name))
        return self.outcomes.get(type(action), list)()

    def close(self, *, in_order: bool) -> None:
        self.ends.append(in_order)


class Noting(Hooks):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def wake(self, driver: LifeDriver[Any], at: int) -> None:
        self.told.append(("wake", at))

    def ended(self, driver: LifeDriver[Any], why: str) -> None:
        self.told.append(("ended", why))


def scene(
    answers: dict[type[on.Stimulus], list[do.Action]],
    outcomes: dict[type[do.Action], Callable[[], list[on.Stimulus]]] | None = None,
    hooks: Hooks | None = None,
) -> tuple[LifeDriver[Scene], Scripted]:
    machine = Scripted(answers)
    driver = LifeDriver(
        lambda _: Scene(machine, outcomes or {}), hooks or Noting(), lambda: Moment(Monotonic(7), Wall(7))
    )
    driver.begin()
    return driver, machine


def steps(driver: LifeDriver[Any]) -> int:
    count = 0
    while driver.step():
        count += 1
    return count


# ---- order ------------------------------------------------------------------------------------------------


def test_actions_come_before_stimuli_and_both_in_order() -> None:
    ask: dict[type[on.Stimulus], list[do.Action]] = {
        on.Started: [do.ClaimJournal(), do.Ring(())],
        on.Claimed: [do.Observe(())],
    }
    driver, machine = scene(ask, {do.ClaimJournal: lambda: [CLAIMED]})
    driver.arrive(on.Bell())
    assert steps(driver) == 6
    assert [type(s) for s in machine.heard] == [on.Started, on.Bell, on.Claimed]
    assert [kind for kind, _ in driver.life.done] == [do.ClaimJournal, do.Ring, do.Observe]


class Backwards(Noting):
    def choose(self, driver: LifeDriver[Any]) -> int:
        return len(driver.todo) + len(driver.stimuli) - 1


def test_another_order_is_the_hooks() -> None:
    driver, machine = scene({on.Started: [do.ClaimJournal(), do.Ring(())]}, hooks=Backwards())
    driver.arrive(on.Bell())
    steps(driver)
    assert [type(s) for s in machine.heard] == [on.Bell, on.Started]
    assert [kind for kind, _ in driver.life.done] == [do.Ring, do.ClaimJournal]


def test_peeking_handles_stimuli_and_does_nothing() -> None:
    driver, machine = scene({on.Bell: [do.Ring(())]})
    driver.arrive(on.Bell())
    assert driver.peek() == driver.peek() == do.Ring(())
    assert [type(s) for s in machine.heard] == [on.Started, on.Bell]
    assert driver.life.done == []
    driver.step()
    assert driver.peek() is None


class Keeping(Noting):
    def asked(self, driver: LifeDriver[Any], actions: Sequence[do.Action]) -> Sequence[do.Action]:
        self.told.append(list(actions))
        return [action for action in actions if not isinstance(action, do.Ring)]


def test_what_is_asked_can_be_kept_back() -> None:
    hooks = Keeping()
    driver, _ = scene({on.Started: [do.Ring(()), do.ClaimJournal()]}, hooks=hooks)
    steps(driver)
    assert hooks.told == [[do.Ring(()), do.ClaimJournal()]]
    assert [kind for kind, _ in driver.life.done] == [do.ClaimJournal]


# ---- wakes and ends ---------------------------------------------------------------------------------------


def test_who_is_told_of_a_wake_and_of_the_end() -> None:
    hooks = Noting()
    driver, machine = scene({on.Started: [do.Wake(Monotonic(12)), do.Leave("left"), do.Ring(())]}, hooks=hooks)
    steps(driver)
    assert hooks.told == [("wake", 12), ("ended", "left")]
    assert driver.over == "left" and driver.quiet()
    assert driver.life.done == []  # nothing after the end
    driver.arrive(on.Bell())
    assert not driver.step() and len(machine.heard) == 1


@pytest.mark.parametrize(
    ("why", "in_order"), [("left", True), ("stopped", True), ("handed", True), ("fenced", False)]
)
def test_user_code_cleans_up_after_an_end_in_order_only(why: str, in_order: bool) -> None:
    driver, _ = scene({})
    driver.end(why)
    driver.end("stopped")  # a life ends once
    assert driver.over == why
    assert driver.life.ends == [in_order]


def test_a_halt_is_an_error_unless_the_hooks_know_better() -> None:
    driver, _ = scene({on.Started: [do.Halt(Failure("ValueError", "no", "trace"), event="orders:1")]})
    with pytest.raises(PipelineFailed, match="operator 'op' failed on orders:1: ValueError: no"):
        steps(driver)


# ---- inline user code that waits --------------------------------------------------------------------------


def waiting(
    grant: do.Action, stimulus: on.Stimulus, hooks: Hooks | None = None
) -> tuple[LifeDriver[Scene], list[str]]:
    """`Generate` calls user code on the driver's thread, which waits until the commit is through."""
    said: list[str] = []

    def generate() -> list[on.Stimulus]:
        said.append("waits")
        driver.await_durable(stimulus, KEY)
        said.append("goes on")
        return []

    ask: dict[type[on.Stimulus], list[do.Action]] = {
        on.Started: [do.Generate([])],
        type(stimulus): [do.Commit(Step(number=1))],
        on.Committed: [grant],
    }
    driver, _ = scene(ask, {do.Generate: generate, do.Commit: lambda: [on.Committed(1)]}, hooks)
    return driver, said


@pytest.mark.parametrize(
    ("grant", "stimulus"),
    [(do.Permit(*KEY), on.CallWanted(*KEY)), (do.Release((ANSWER,)), on.Answered(ANSWER))],
    ids=["permit", "release"],
)
def test_waiting_code_goes_on_when_it_is_granted(grant: do.Action, stimulus: on.Stimulus) -> None:
    driver, said = waiting(grant, stimulus)
    steps(driver)
    assert said == ["waits", "goes on"]
    assert not driver.awaiting
    assert [kind for kind, _ in driver.life.done] == [do.Generate, do.Commit, type(grant)]


def test_nothing_at_hand_is_the_hooks_business() -> None:
    class Bringing(Noting):
        def idle(self, driver: LifeDriver[Any]) -> None:
            self.told.append("idle")
            driver.arrive(on.Committed(1))

    hooks = Bringing()
    driver, said = waiting(do.Permit(*KEY), on.CallWanted(*KEY), hooks)
    driver.life.outcomes[do.Commit] = list  # its answer comes from outside
    steps(driver)
    assert said == ["waits", "goes on"] and hooks.told == ["idle"]


def test_an_answer_that_can_not_come_is_an_error() -> None:
    driver, _ = waiting(do.Permit(*KEY), on.CallWanted(*KEY))
    driver.life.outcomes[do.Commit] = list
    with pytest.raises(EngineError, match="waits for an answer that does not come"):
        steps(driver)


def test_waiting_code_is_told_when_the_life_ends() -> None:
    driver, said = waiting(do.Leave("fenced"), on.CallWanted(*KEY))
    with pytest.raises(Fenced):
        steps(driver)
    assert said == ["waits"] and driver.over == "fenced" and not driver.awaiting


# ---- other threads ----------------------------------------------------------------------------------------


class Away(Noting):
    """The test is the loop."""

    def __init__(self, *kinds: type[do.Action]) -> None:
        super().__init__()
        self.away = dict.fromkeys(kinds, "log")
        self.posted: list[on.Stimulus] = []
        self.came = threading.Semaphore(0)

    def post(self, driver: LifeDriver[Any], stimulus: on.Stimulus) -> None:
        self.posted.append(stimulus)
        self.came.release()

    def wait(self) -> on.Stimulus:
        assert self.came.acquire(timeout=PATIENCE)
        return self.posted[-1]


def test_an_action_goes_away_and_its_outcome_comes_back() -> None:
    hooks = Away(do.ClaimJournal)
    ask: dict[type[on.Stimulus], list[do.Action]] = {on.Started: [do.ClaimJournal(), do.Ring(())]}
    driver, machine = scene(ask, {do.ClaimJournal: lambda: [CLAIMED]}, hooks)
    steps(driver)
    driver.arrive(hooks.wait())
    steps(driver)
    threads = dict(driver.life.done)
    assert threads[do.ClaimJournal] == "logline-log-op" != threads[do.Ring]
    assert [type(s) for s in machine.heard] == [on.Started, on.Claimed]
    driver.end("stopped")


def test_an_exception_on_another_thread_is_raised_on_the_drivers() -> None:
    def broken() -> list[on.Stimulus]:
        raise KeyError("a bug")

    hooks = Away(do.Observe)
    driver, _ = scene({on.Started: [do.Observe(())]}, {do.Observe: broken}, hooks)
    steps(driver)
    with pytest.raises(KeyError, match="a bug"):  # as it was: what the log says of itself must stay what it is
        driver.arrive(hooks.wait())
    driver.end("fenced")


def test_a_life_may_end_while_an_action_is_away() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> list[on.Stimulus]:
        begun.set()
        assert go_on.wait(PATIENCE)
        return [on.Observed({})]

    hooks = Away(do.Observe)
    driver, machine = scene({on.Started: [do.Observe(()), do.Observe(())]}, {do.Observe: slow}, hooks)
    steps(driver)
    assert begun.wait(PATIENCE)
    driver.end("stopped")
    go_on.set()
    for _ in range(2):
        driver.arrive(hooks.wait())
    assert len(driver.life.done) == 1  # the second one was not begun
    assert [type(s) for s in machine.heard] == [on.Started]
    for thread in driver.threads():
        thread.thread.join(PATIENCE)
        assert not thread.thread.is_alive()


def test_the_next_life_waits_for_a_claim_that_is_under_way() -> None:
    """One that lands late would fence it off."""
    begun, go_on, said = threading.Event(), threading.Event(), []

    def slow() -> list[on.Stimulus]:
        begun.set()
        assert go_on.wait(PATIENCE)
        return [CLAIMED]

    hooks = Away(do.ClaimJournal)
    driver, _ = scene({on.Started: [do.ClaimJournal()]}, {do.ClaimJournal: slow}, hooks)
    driver.when_claimed(lambda: said.append("before"))
    steps(driver)
    assert begun.wait(PATIENCE)
    driver.end("fenced")
    driver.when_claimed(lambda: said.append("after"))
    assert said == ["before"]
    go_on.set()
    driver.arrive(hooks.wait())
    assert said == ["before", "after"]


def test_a_claim_that_was_not_begun_is_back_too() -> None:
    hooks, said = Away(do.ClaimJournal), []
    driver, _ = scene({}, hooks=hooks)
    driver.over = "fenced"  # between the asking and the thread
    driver.execute(do.ClaimJournal())
    driver.when_claimed(lambda: said.append("after"))
    returned = hooks.wait()
    assert returned == Returned(do.ClaimJournal())
    driver.arrive(returned)
    assert said == ["after"] and driver.life.done == []
    for thread in driver.threads():
        thread.stop()


def test_which_actions_block_follows_from_the_store() -> None:
    assert blocking(StoreTraits("process")) == OUTSIDE
    disk = blocking(StoreTraits("host", frozenset({"commit"})))
    assert {kind: name for kind, name in disk.items() if kind not in OUTSIDE} == {do.Commit: "commit"}
    network = blocking(StoreTraits("hosts", frozenset({"claim", "commit", "read"})))
    every = {kind for kind in vars(do).values() if isinstance(kind, type) and issubclass(kind, do.Action)}
    assert every - set(network) == {
        *(do.Action, do.Rebuild, do.TakeIn, do.Apply, do.CheckClock, do.Generate, do.Discard),
        *(do.StopCalls, do.Permit, do.Release, do.Ring, do.Wake, do.Halt, do.Leave, do.Checkpoint, do.LetGo),
    }


def test_other_channels_are_told_to_the_life_and_to_its_machine() -> None:
    """R28: the life reads them, the machine asks for their events."""
    driver, machine = scene({})
    spec = InstanceSpec(OP, inputs=(Channel.between(InstanceName("up"), OUT, OP, IN),))
    driver.rewire(spec)
    steps(driver)
    assert driver.life.spec is spec
    assert machine.heard[-1] == on.Rewired(spec)
