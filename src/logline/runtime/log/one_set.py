"""Generates one input set of a log again, with the ordinary machine and runners, and logs nothing.

The store is laid over: a claim gives an image in which this set alone is due, with its members and the answers that
are kept for it, and a commit is captured. Members come from the log. Writes are not executed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Output
from logline.engine.history import Finished
from logline.engine.image import Image
from logline.engine.operating import OperatorMachine
from logline.engine.sets import Answer, OpenSet
from logline.engine.step import Step
from logline.errors import Collected, EngineError, LogError
from logline.graph.operator import Cause
from logline.names import Incarnation, InstanceName, event_name
from logline.runtime.lives.calls import Call
from logline.runtime.lives.driver import Hooks, LifeDriver, live
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.life import Surroundings
from logline.runtime.lives.threads import SteppedLoop
from logline.store.seam import Journals, Reader


def generate_again(
    instance: Instance,
    store: Journals,
    inset: Finished,
    answers: Sequence[Answer],
    state: bytes | None,
    *,
    ask: bool,
    may_ask: Collection[Call] = (),
) -> list[Output]:
    """What comes of this set now, writes included. Raises what user code raises.

    With `ask`, calls without an answer in the log are made; otherwise they are refused, but for `may_ask`.
    """
    cause: Cause = "ready" if instance.spec.stateless and inset.members else "fired"
    image = Image(serial=inset.serial, state=state)
    if instance.spec.keyed:  # as they are now: what they were then is not in the log
        image.keyed = dict(store.read(instance.spec.name).keyed())
    image.sets[inset.serial] = OpenSet(inset.id, list(inset.members), cause)
    image.due = [inset.serial]
    image.answers[inset.serial] = list(answers)
    captured = _Captured(store.read(instance.spec.name).incarnation(), image)
    loop = SteppedLoop()
    hooks = _Again(loop, ask=ask, may_ask=may_ask)
    around = Surroundings(loop=loop.get, threads=False, announce_calls=not ask, raised=hooks.errors.append)
    driver = live(instance, _Overlay(store, captured), hooks, around)
    try:
        driver.run()
        while _in_flight(driver) and loop.run():
            while driver.step():
                pass
        if not isinstance(driver.machine, OperatorMachine) or driver.machine.generation.sets:
            raise EngineError(f"{driver.name}: the set {inset.id!r} did not come to its end")
    finally:
        driver.end("stopped")
        loop.close()
    return [output for output in captured.outputs if not output.mark]


def _in_flight(driver: LifeDriver[Any]) -> bool:
    machine = driver.machine
    return isinstance(machine, OperatorMachine) and machine.in_flight > 0


class _Captured:
    """A journal that remembers outputs for the caller and logs nothing."""

    def __init__(self, incarnation: Incarnation, image: Image) -> None:
        self.incarnation = incarnation
        self.image = image
        self.outputs: list[Output] = []

    def commit(self, step: Step) -> None:
        """Remembers what the step puts out, and logs nothing."""
        self.outputs += step.outputs

    def close(self) -> None:
        """Does nothing: a captured journal holds no lock and no file."""


class _Overlay:
    """The log, with one journal in the place of another."""

    fresh = None

    def __init__(self, store: Journals, journal: _Captured) -> None:
        self.traits = store.traits
        self._store = store
        self._journal = journal

    def claim(self, instance: InstanceName) -> _Captured:
        """The captured journal. It fences nobody off: the log itself is not claimed."""
        return self._journal

    def read(self, instance: InstanceName) -> Reader:
        """A reader of the log itself: members come from there."""
        return self._store.read(instance)

    def ring(self, instance: InstanceName) -> None:
        """Does nothing: the log does not change."""


class _Again(Hooks):
    """In the foreground, on the caller's thread: a breakpoint in the operator works."""

    def __init__(self, loop: SteppedLoop, *, ask: bool, may_ask: Collection[Call] = ()) -> None:
        self._loop = loop
        self._ask = ask
        self._may_ask = may_ask
        self.errors: list[BaseException] = []
        """What `generate` raised."""

    def post(self, driver: LifeDriver[Any], stimulus: on.Stimulus) -> None:
        """Ends the turn of async user code, if it is that which reports."""
        driver.arrive(stimulus)
        self._loop.heard()

    def execute(self, driver: LifeDriver[Any], action: do.Action) -> Sequence[on.Stimulus]:
        """Executes an action, but fetches no events, and makes no calls unless asked to. Targets are left alone."""
        match action:
            case do.Fetch():
                return [on.Fetched(action.channel, action.after, ())]
            case do.AskPosition():
                return [on.PositionKnown(action.target, 0)]
            case do.WriteOut():
                return [on.Written(action.target, action.writes[-1].ssn)]
            case do.Permit() if not self._ask and (action.row, action.n) not in self._may_ask:
                where = "" if action.row < 0 else f" in row {action.row}"
                raise LogError(
                    f"call {action.n + 1}{where} has no answer in the log, and a rerun does not ask the outside by "
                    "itself: the code has changed, or the call had failed. Say ask=True (--ask) to call again"
                )
        outcome = super().execute(driver, action)
        for stimulus in outcome:
            if isinstance(stimulus, on.PayloadGone):
                channel = driver.life.spec.channels[stimulus.channel]
                raise Collected(
                    "the set can't be run again: its member "
                    f"{event_name(channel.sender, channel.out, stimulus.ssns[0])} is collected; "
                    "the lineage scope has to keep every input of the operator: p.lineage() without ports does"
                )
        return outcome

    def halted(self, driver: LifeDriver[Any], halt: do.Halt) -> None:
        """Raises what `generate` raised, as it is; for `open` and `update` an error with their traceback."""
        if self.errors:
            raise self.errors[0]
        raise LogError(f"{driver.name!r} failed before generate():\n{halt.failure.traceback}")
