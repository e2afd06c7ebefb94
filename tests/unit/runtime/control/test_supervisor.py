"""When a life counts as hanging, and when a group gets nowhere; on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from logline.engine.events import Output
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.names import OUT, InstanceName, Serial, Ssn
from logline.runtime.control import supervisor
from logline.runtime.control.supervisor import LONGEST, Supervisor, back_off
from logline.runtime.hosts.seam import Ended, Group, Hear
from logline.runtime.lives.suspects import pardon, watch
from logline.runtime.messages.commands import Drain, Stop, WorkerCommand
from logline.runtime.messages.reports import LogLine, Started, StatusReport
from logline.store.memory import MemoryStore

NAMES = ("a", "b")
STATUS = StatusReport({}, quiet=False)


class Silent:
    """A life that does as the test says; killed, it is gone at once."""

    pid = 1

    def __init__(self, hear: Hear, ended: Callable[[Ended], None]) -> None:
        self.hear = hear
        self.ended = ended
        self.killed = False
        self.told: list[WorkerCommand] = []

    @property
    def may_live(self) -> bool:
        return True

    def tell(self, command: WorkerCommand) -> None:
        self.told.append(command)

    def kill(self) -> None:
        self.killed = True
        self.ended(Ended(how="was killed"))

    def close(self) -> None: ...

    def waits_for(self) -> str:
        return ""


class Place:
    """Keeps the lives of all groups."""

    patient = False

    def __init__(self) -> None:
        self.lives: dict[str, list[Silent]] = {name: [] for name in NAMES}
        self.why = ""
        self.deaf = False

    def start(self, group: Group, life: int, hear: Hear, ended: Callable[[Ended], None]) -> Silent:
        self.lives[group.name].append(Silent(hear, ended))
        return self.lives[group.name][-1]

    def hears(self) -> bool:
        return not self.deaf

    def broken(self) -> str:
        return self.why


class Scene:
    """A supervisor whose loop, clock and groups the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.place = Place()
        self.store = MemoryStore()
        specs = [InstanceSpec(InstanceName(name), ports={OUT: ()}, on_error="divert") for name in NAMES]
        groups = [Group(spec.name, {spec.name: SimpleNamespace(spec=spec, called=spec.name)}) for spec in specs]  # type: ignore[dict-item]
        self.journal = self.store.claim(InstanceName("a"))
        self.events = 0
        self.supervisor = Supervisor([(group, self.place) for group in groups], self.store)

    def begin(self) -> None:
        for worker in self.supervisor.workers.values():
            self.supervisor._start(worker)

    def life(self, name: str = "a") -> Silent:
        return self.place.lives[name][-1]

    def get_on(self) -> None:
        self.events += 1
        ssn = Ssn(self.events)
        self.journal.commit(Step(number=self.events, outputs=[Output(OUT, ssn, None, 0, 0, 0, Serial(self.events))]))

    def look(self) -> None:
        self.supervisor._take_events()
        self.supervisor._look_around()

    def pass_by(self, seconds: float, *silent: str) -> None:
        """The others report all the time."""
        for _ in range(round(seconds)):
            self.now += 1.0
            for name in NAMES:
                if name not in silent:
                    self.life(name).hear(STATUS)
            self.look()

    def patience(self) -> int:
        """Seconds after which the life of `a` is killed."""
        life = self.life()
        life.hear(Started(1))
        self.look()
        for second in range(1, 1000):
            self.pass_by(1, "a")
            if life.killed:
                while self.life() is life and self.supervisor.phase == "running":
                    self.pass_by(1, "a")
                return second - 1
        raise AssertionError("it is never killed")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()
    monkeypatch.setattr(supervisor, "TICK", 0.0)
    monkeypatch.setattr(supervisor, "BEGIN", 30.0)
    monkeypatch.setattr(Supervisor, "silence", 15.0)
    monkeypatch.setattr("logline.runtime.control.supervisor.time.monotonic", lambda: made.now)
    made.supervisor._looked = 0.0
    made.begin()
    return made


def test_a_report_that_waits_behind_others_is_no_silence(scene: Scene) -> None:
    for _ in range(100):
        scene.life("b").hear(LogLine("logline.op.b", 10, "so much to say"))
    for _ in range(100):
        scene.now += 1.0
        scene.life("a").hear(STATUS)
        scene.life("b").hear(STATUS)
        scene.look()
    assert not scene.life("a").killed
    assert not scene.life("b").killed


@pytest.mark.parametrize("heard", [False, True])
def test_while_the_driver_was_suspended_nobody_was_silent(scene: Scene, heard: bool) -> None:
    for name in NAMES:
        scene.life(name).hear(Started(1))
    scene.look()
    scene.now += 3600.0
    if heard:
        for name in NAMES:
            scene.life(name).hear(STATUS)
    scene.look()  # or what they have said meanwhile is still on its way
    scene.pass_by(Supervisor.silence - 1, *NAMES)
    assert [len(lives) for lives in scene.place.lives.values()] == [1, 1]
    scene.pass_by(2, "a")
    assert [scene.place.lives[name][0].killed for name in NAMES] == [True, False]


def test_while_no_report_comes_through_nobody_was_silent(scene: Scene) -> None:
    """The log's server was away; when it is back, a life has all its time to report."""
    scene.life().hear(Started(1))
    scene.place.deaf = True
    scene.pass_by(100, "a", "b")
    scene.place.deaf = False
    scene.pass_by(14, "a")
    assert not scene.life().killed
    life = scene.life()
    scene.pass_by(2, "a")
    assert life.killed


def test_one_that_gets_nowhere_has_longer_each_time_and_then_it_is_over(scene: Scene) -> None:
    seconds = [scene.patience() for _ in range(Supervisor.crashes)]
    longer = [Supervisor.silence * min(2**n, LONGEST) for n in range(Supervisor.crashes)]
    assert seconds == longer
    assert scene.supervisor.phase == "failed"
    assert "the process of a was killed, 12 times in a row: it does not get anywhere" in str(scene.supervisor.error)


def test_one_that_hangs_now_and_then_is_no_crash_loop(scene: Scene) -> None:
    for _ in range(Supervisor.crashes + 3):
        scene.get_on()
        assert scene.patience() == Supervisor.silence
    assert scene.supervisor.phase == "running"


def test_so_has_one_that_needs_long_to_begin(scene: Scene) -> None:
    life = scene.life()
    scene.pass_by(supervisor.BEGIN, "a")
    assert not life.killed
    scene.pass_by(2, "a")
    assert life.killed
    life = scene.life()  # type: ignore[unreachable]  # it is reached: to mypy, who was not killed never is
    scene.pass_by(2 * supervisor.BEGIN - 2, "a")
    assert not life.killed


def test_a_host_that_is_broken_ends_the_run(scene: Scene) -> None:
    scene.look()
    assert scene.supervisor.phase == "running"
    scene.place.why = "the place is gone: find another one"
    scene.look()
    assert (scene.supervisor.phase, scene.supervisor.status().error) == ("failed", scene.place.why)


def test_where_the_hosts_show_their_lives(scene: Scene) -> None:
    """Spark's UI; other hosts have none."""
    shown = Supervisor([], scene.store, ui="http://spark:4040").status()
    assert str(shown).splitlines()[:2] == ["pipeline running", "in Spark's UI: http://spark:4040"]
    assert "UI" not in str(scene.supervisor.status())


def test_restarts_by_hand_are_no_crashes(scene: Scene) -> None:
    for number in range(Supervisor.crashes + 1):
        life = scene.life()
        life.hear(Started(1))
        scene.supervisor.restart(InstanceName("a"), lambda: None)
        scene.look()
        scene.look()
        assert life.killed and scene.life() is not life, number
    assert scene.supervisor.phase == "running"
    assert scene.supervisor.workers["a"].restarts == Supervisor.crashes + 1


def test_one_that_is_fenced_off_by_a_retry_before_its_restart_comes_is_no_crash_either(scene: Scene) -> None:
    for _ in range(Supervisor.crashes + 1):
        life = scene.life()
        life.hear(Started(1))
        life.ended(Ended(over="fenced"))
        scene.look()
        scene.supervisor.restart(InstanceName("a"), lambda: None)
        scene.look()
        scene.look()
        assert scene.life() is not life
    assert scene.supervisor.phase == "running"


def test_no_set_is_blamed_for_a_restart_by_hand() -> None:
    store = MemoryStore()
    spec = InstanceSpec(InstanceName("a"), on_error="divert")
    first = watch(store, [spec], 1)[spec.name]
    first.begin(Serial(1), "one", "one")
    pardon(store, [spec])
    assert not watch(store, [spec], 2)[spec.name].alone


def test_the_supervisor_pardons_the_set_of_a_life_that_it_kills_for_a_restart(scene: Scene) -> None:
    name = InstanceName("a")
    specs = [scene.supervisor.workers["a"].group.instances[name].spec]
    watch(scene.store, specs, 1)[name].begin(Serial(1), "one", "one")
    scene.supervisor.restart(name, lambda: None)
    scene.look()
    assert not watch(scene.store, specs, 2)[name].alone


def test_what_a_life_says_that_is_over_is_not_heard(scene: Scene) -> None:
    """Else nobody would notice that the next one hangs."""
    first = scene.life()
    first.hear(Started(1))
    first.ended(Ended(how="died"))
    scene.look()
    second = scene.life()
    assert second is not first
    second.hear(Started(1))
    scene.look()
    for _ in range(round(Supervisor.silence) + 2):
        first.hear(STATUS)
        scene.pass_by(1, "a")
    assert second.killed


def test_the_end_of_a_life_that_is_over_is_not_that_of_the_next_one(scene: Scene) -> None:
    first = scene.life()
    first.ended(Ended(how="died"))
    scene.look()
    second = scene.life()
    first.ended(Ended(how="died"))
    scene.look()
    assert scene.life() is second and not second.killed


def test_one_that_dies_at_once_is_not_started_again_at_once(scene: Scene) -> None:
    """The first two deaths cost nothing."""
    for deaths in range(1, 6):
        life = scene.life()
        life.ended(Ended(how="died"))
        scene.look()
        if back_off(deaths):
            assert scene.life() is life
            scene.now += back_off(deaths)
            scene.look()
        assert scene.life() is not life


def test_a_drain_ends_when_all_have_said_twice_that_they_rest(scene: Scene) -> None:
    """A report is old when it comes: who was quiet then may have taken something since."""
    scene.supervisor.command("drain")
    scene.look()
    assert scene.life().told == [Drain()]
    for wanted in ([Drain()], [Drain(), Stop()]):
        for name in NAMES:
            scene.life(name).hear(StatusReport({}, quiet=True))
        scene.look()
        assert scene.life().told == wanted


def test_a_life_that_ends_by_itself_while_a_restart_is_asked_for_begins_again(scene: Scene) -> None:
    """Its end was taken back for a retry: the kill comes when it has ended, and nobody else takes what follows."""
    first = scene.life()
    first.hear(Started(1))
    scene.look()
    first.kill = lambda: first.ended(Ended(over="finished"))  # type: ignore[method-assign]
    scene.supervisor.restart(InstanceName("a"), lambda: None)
    scene.look()
    scene.look()
    assert scene.life() is not first
    assert scene.supervisor.workers["a"].over is None


def rests(scene: Scene) -> list[str]:
    """Has the life of `a` come to rest; what is noted when it has."""
    rested: list[str] = []
    scene.life().hear(Started(1))
    scene.supervisor.rest([InstanceName("a")], lambda: rested.append("a"))
    scene.look()
    return rested


def test_a_group_at_rest_begins_no_life_until_it_is_woken(scene: Scene) -> None:
    first, rested = scene.life(), rests(scene)
    assert first.told == [Stop()] and not rested and not first.killed
    first.ended(Ended(over="stopped"))
    scene.look()
    scene.pass_by(5, "a")
    assert rested == ["a"] and scene.life() is first
    scene.supervisor.wake([InstanceName("a")])
    scene.look()
    assert scene.life() is not first and scene.supervisor.workers["a"].restarts == 1
    assert scene.life("b").told == []


def test_a_group_that_dies_on_its_way_to_rest_is_at_rest(scene: Scene) -> None:
    first, rested = scene.life(), rests(scene)
    first.ended(Ended(how="died"))
    scene.look()
    scene.pass_by(5, "a")
    assert rested == ["a"] and scene.life() is first
    scene.supervisor.wake([InstanceName("a")])
    scene.look()
    assert scene.life() is not first


def test_one_that_is_woken_before_it_rests_begins_again(scene: Scene) -> None:
    """Also if it has just come to its end by itself when the kill comes."""
    first = scene.life()
    rests(scene)
    first.kill = lambda: first.ended(Ended(over="stopped"))  # type: ignore[method-assign]
    scene.supervisor.wake([InstanceName("a")])
    scene.look()
    scene.look()
    assert scene.life() is not first and scene.supervisor.workers["a"].over is None


def test_a_run_is_not_over_while_a_group_that_had_finished_rests(scene: Scene) -> None:
    """Its end is about to be taken back (R11')."""
    rested = rests(scene)
    for name in NAMES:
        scene.life(name).ended(Ended(over="finished"))
    scene.look()
    assert rested and scene.supervisor.phase == "running"
    scene.supervisor.wake([InstanceName("a")])
    scene.look()
    assert scene.supervisor.workers["a"].over is None and scene.supervisor.workers["b"].over == "finished"


def test_a_stop_does_not_wait_for_a_group_at_rest(scene: Scene) -> None:
    rests(scene)
    scene.life().ended(Ended(over="stopped"))
    scene.look()
    scene.supervisor.command("stop")
    scene.look()
    scene.life("b").ended(Ended(over="stopped"))
    scene.look()
    assert scene.supervisor.phase == "stopped"
