"""Commits: all or nothing (R1), one life at a time (R10), numbered, and what of them is the image."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis.stateful import run_state_machine_as_test

from logline.engine.events import Head, Position
from logline.engine.history import Finished
from logline.engine.image import Image
from logline.engine.keyed import KeyState
from logline.engine.progress import Progress
from logline.engine.results import Failure
from logline.engine.sets import Answer, Member, Timer
from logline.engine.step import Step
from logline.errors import CodecError, EngineError, Fenced
from logline.names import OUT, ChannelName, InstanceName, PartitionName, PortName, Serial, Ssn, TargetName
from logline.store.seam import Store
from logline.testing.conformance.base import HOURLY, OpenLog, StoreSuite
from logline.testing.conformance.model import Model, Scribe, batch, exact, row, step_of
from logline.testing.conformance.random_steps import JournalMachine

ORDERS = ChannelName("orders.out>hourly.in")
ONE, TWO, THREE = Serial(1), Serial(2), Serial(3)


def taken(ssn: int, note: object = None) -> Member:
    """An event of `orders`."""
    return Member(ORDERS, Ssn(ssn), note)


def busy_step() -> Step:
    """A step that touches everything an image has."""
    step = step_of(
        positions={ORDERS: Position(Ssn(9), 2**40, 1)},
        alone={ONE: taken(1)},
        serial=ONE,
        state=b"",
        clock={ORDERS: -5, ChannelName(""): -7},
        timers={"BZ234": Timer(-1, "event"), 7: Timer(2**50, "wall"), 8: Timer(9, "wall", -4)},
        keyed={b"BZ234": KeyState(b"", 5), b"": KeyState(b"state")},
        written={TargetName("store"): 3},
        progress={PartitionName("0"): Progress(2, "complete", b"", Ssn(7), 70, True, (b"", b"m1"))},
        ended=True,
    )
    step.open(TWO, ("BZ234", 7), [taken(2, ("a", [1])), taken(3)])
    step.open(THREE, "late", [taken(2)])
    step.sets.due[THREE] = "end"
    step.sets.answers[ONE] = [Answer(ONE, -1, 0, "rate", "d1", b"")]
    step.sets.failures[THREE] = Failure("KeyError", "'x'", "Traceback ...", True)
    return step


def refused_steps() -> dict[str, Step]:
    """Steps that hold, among good things, one that can't be logged exactly."""
    bad = object()
    found = {where: Step(positions={ORDERS: Position(Ssn(5), 50)}, state=b"s") for where in _PLACES}
    found["note of a new set"].open(TWO, "H", [taken(5, bad)])
    found["note of a new member"].sets.members[ONE] = [taken(5, bad)]
    found["note of an event alone"].sets.alone[TWO] = taken(5, bad)
    found["note of a finished set"].sets.finished.append(Finished(TWO, "H", (taken(5, bad),)))
    found["id of a set"].open(TWO, bad, [taken(5)])  # type: ignore[arg-type]
    found["id of a finished set"].sets.finished.append(Finished(TWO, bad, (taken(5),)))  # type: ignore[arg-type]
    found["id of a timer"].timers[bad] = Timer(1, "wall")  # type: ignore[index]
    return found


_PLACES = (
    "note of a new set",
    "note of a new member",
    "note of an event alone",
    "note of a finished set",
    "id of a set",
    "id of a finished set",
    "id of a timer",
)


class CommitRules(StoreSuite):
    """Atomicity, fencing, numbers and the content of the image."""

    # ---- atomicity (R1) ---------------------------------------------------------------------------------------

    @pytest.mark.parametrize("where", _PLACES)
    def test_a_step_that_cannot_be_encoded_leaves_nothing_behind(self, scribe: Scribe, where: str) -> None:
        first = scribe.emit(2)
        first.open(ONE, "H", [taken(1)])
        scribe.commit(first)
        step = refused_steps()[where]
        step.outputs = scribe.emit(1).outputs
        step.reads.staged = scribe.emit(1, PortName("effect")).outputs
        with pytest.raises(CodecError):
            scribe.journal.commit(scribe.number(step))
        scribe.check()
        scribe.commit(scribe.emit(1))  # the number is still free, the journal still works
        scribe.check()

    def test_outputs_and_image_are_one_change(self, scribe: Scribe) -> None:
        step = scribe.emit(3)
        step.positions[ORDERS] = Position(Ssn(1), 10)
        step.open(ONE, "H", [taken(1)])
        assert scribe.reader.head(OUT) == Head()
        scribe.commit(step)
        scribe.check()
        assert scribe.reader.head(OUT).last == 3
        assert list(scribe.reader.needs(ORDERS).members) == [1]

    # ---- fencing (R10) ----------------------------------------------------------------------------------------

    def test_an_older_life_is_fenced_off_and_changes_nothing(self, store: Store) -> None:
        old = Scribe(store, HOURLY)
        old.commit(old.emit(2))
        zombie = Step(outputs=[row(OUT, 3, 99, 79, payload=batch(-3))], state=b"zombie")
        old.number(zombie)
        new = Scribe(store, HOURLY, old.model)
        with pytest.raises(Fenced):
            old.journal.commit(zombie)
        new.check()
        new.commit(new.emit(2))  # the same events, made by the newer life
        with pytest.raises(Fenced):
            old.journal.commit(zombie)
        new.check()

    def test_a_fenced_journal_stays_fenced(self, store: Store) -> None:
        old = Scribe(store, HOURLY)
        last = old.commit(old.emit(1))
        new = Scribe(store, HOURLY, old.model)
        for step in (last, old.number(old.emit(1)), old.number(Step(left=True))):  # the first was committed once
            with pytest.raises(Fenced):
                old.journal.commit(step)
        old.journal.close()  # and its end does not disturb the newer one
        new.commit(new.emit(1))
        new.check()

    def test_a_claim_returns_the_newest_image(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        assert exact(scribe.journal.image) == exact(Image())
        for _ in range(3):
            scribe.commit(scribe.emit(1))
            scribe = Scribe(store, HOURLY, scribe.model)
            assert exact(scribe.journal.image) == exact(scribe.model.image)

    def test_incarnations_rise_and_readers_see_the_newest(self, store: Store, reopen: Callable[[], Store]) -> None:
        reader = store.read(HOURLY)
        assert reader.incarnation() == 0
        newest = 0
        for _ in range(3):
            journal = store.claim(HOURLY)
            assert reader.incarnation() == journal.incarnation > newest
            newest = journal.incarnation
        again = reopen()
        assert again.read(HOURLY).incarnation() == newest
        assert again.claim(HOURLY).incarnation > newest

    def test_a_claim_fences_no_other_instance(self, store: Store) -> None:
        one, other = Scribe(store, HOURLY), Scribe(store, InstanceName("hourly/2"))
        store.claim(HOURLY)
        other.commit(other.emit(1))
        other.check()
        with pytest.raises(Fenced):
            one.journal.commit(one.number(one.emit(1)))

    # ---- numbers ----------------------------------------------------------------------------------------------

    def test_a_commit_repeated_after_a_lost_answer_changes_nothing(self, scribe: Scribe) -> None:
        step = scribe.commit(busy_step())
        scribe.journal.commit(step)
        scribe.check()
        step = scribe.emit(2)
        step.join(TWO, taken(4))
        step.sets.answers[ONE] = [Answer(ONE, 0, 0, "rate", "d2", b"2")]
        scribe.commit(step)
        scribe.journal.commit(step)
        scribe.check()

    def test_numbers_go_on_across_claims(self, store: Store) -> None:
        model = Model()
        for life in range(3):
            scribe = Scribe(store, HOURLY, model)
            assert scribe.journal.image.commits == 2 * life
            scribe.commit(scribe.emit(1))
            scribe.commit(Step(state=b"%d" % life))
        assert store.read(HOURLY).image().commits == 6

    @pytest.mark.parametrize("number", [0, 1, 4])
    def test_a_commit_out_of_turn_is_refused(self, scribe: Scribe, number: int) -> None:
        scribe.commit(scribe.emit(1))
        scribe.commit(scribe.emit(1))
        step = scribe.emit(1)
        step.number = number
        with pytest.raises(EngineError):
            scribe.journal.commit(step)
        scribe.check()

    # ---- the image --------------------------------------------------------------------------------------------

    def test_every_field_comes_back(self, store: Store, reopen: Callable[[], Store]) -> None:
        scribe = Scribe(store, HOURLY)
        step = busy_step()
        step.outputs = scribe.emit(3).outputs
        scribe.commit(step)
        image = store.claim(HOURLY).image
        assert exact(image) == exact(scribe.model.image)
        assert image.state == b""  # not None
        assert image.reads[PartitionName("0")].offset == b""
        again = reopen()
        assert exact(again.claim(HOURLY).image) == exact(scribe.model.image)

    def test_what_is_due_keeps_its_order(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        step = Step()
        for serial in range(1, 300):
            step.open(Serial(serial), serial, [taken(serial)])
        scribe.commit(step)
        scribe.commit(step_of(due=dict.fromkeys(map(Serial, (200, 7, 130)), "fired")))
        scribe.commit(step_of(due=dict.fromkeys(map(Serial, (5, 299, 6)), "ready"), done=[Serial(7)]))
        image = store.claim(HOURLY).image
        assert image.due == [200, 130, 5, 299, 6]
        assert list(image.sets) == [s for s in range(1, 300) if s != 7]

    def test_members_keep_their_order(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        other = ChannelName("refunds.out>hourly.in")
        step = Step()
        step.open(ONE, "H", [taken(300), Member(other, Ssn(2)), taken(301)])
        scribe.commit(step)
        scribe.commit(step_of(members={ONE: [Member(other, Ssn(1)), taken(1000), taken(302)]}))
        members = store.claim(HOURLY).image.sets[ONE].members
        assert [m.ssn for m in members] == [300, 2, 301, 1, 1000, 302]

    @pytest.mark.parametrize(
        "inset",
        [
            "",
            "BZ234",
            0,
            -1,
            2**70,
            (),
            ("a", 1),
            datetime(2010, 10, 2, 5, tzinfo=UTC),
            datetime(2010, 10, 2, 5, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
            datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
            ("item", datetime(2024, 7, 1, tzinfo=ZoneInfo("America/New_York"))),
        ],
        ids=repr,
    )
    def test_ids_of_every_kind(self, store: Store, inset: object) -> None:
        scribe = Scribe(store, HOURLY)
        step = Step(timers={inset: Timer(5, "event")})  # type: ignore[dict-item]
        step.open(ONE, inset, [taken(1)])  # type: ignore[arg-type]
        scribe.commit(step)
        assert exact(store.claim(HOURLY).image) == exact(scribe.model.image)
        scribe = Scribe(store, HOURLY, scribe.model)
        scribe.commit(step_of(timers={inset: Timer(6, "wall")}, done=[ONE]))
        scribe.check()
        scribe.commit(Step(timers={inset: None}))  # type: ignore[dict-item]
        assert store.claim(HOURLY).image.timers == {}

    def test_one_instant_in_two_zones_is_one_id(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        here = datetime(2024, 7, 1, 14, tzinfo=ZoneInfo("Europe/Berlin"))
        there = datetime(2024, 7, 1, 12, tzinfo=UTC)
        scribe.commit(Step(timers={here: Timer(1, "event"), ("x", here): Timer(1, "event")}))
        scribe.commit(Step(timers={there: Timer(2, "event"), ("x", there): None}))
        assert store.claim(HOURLY).image.timers == {there: Timer(2, "event")}

    def test_a_done_set_takes_its_answers_and_failure_along(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        scribe.commit(busy_step())
        scribe.commit(step_of(done=[ONE, THREE]))
        image = store.claim(HOURLY).image
        assert (list(image.sets), image.due, image.answers, image.failures) == ([TWO], [], {}, {})

    def test_keys_that_changed_are_replaced_and_a_deleted_one_is_gone(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        long = b"k" * 2000
        scribe.commit(Step(keyed={b"a": KeyState(b"1", 1), b"b": KeyState(b"1", 2**62), long: KeyState(b"", -3)}))
        scribe.check()
        scribe.commit(Step(keyed={b"a": KeyState(b"2", 4), b"b": None, b"never there": None}))
        scribe.check()
        assert store.claim(HOURLY).image.keyed == {b"a": KeyState(b"2", 4), long: KeyState(b"", -3)}
        assert store.read(HOURLY).key_state(b"b") is None

    def test_random_steps_lives_and_restarts(self, open_log: OpenLog) -> None:
        def machine() -> JournalMachine:
            return JournalMachine(open_log())

        run_state_machine_as_test(machine, settings=self.examples)  # type: ignore[arg-type]  # any callable will do
