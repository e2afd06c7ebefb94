"""Which open set is checkpointed next, and when (CEC III.A)."""

from __future__ import annotations

from collections.abc import Iterable

from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.sets import Checkpoint, OpenSet
from logline.engine.spec import Targets
from logline.names import Serial
from logline.recovery.checkpointing import FAILURES, OldestFirst

SECOND = 1_000_000


def join(schedule: OldestFirst, *serials: int, now: int = 0, spent: int = 0) -> None:
    schedule.joined(map(Serial, serials), Monotonic(now), spent)


def save(schedule: OldestFirst, serials: Iterable[int], now: int = 0, spent: int = 0, nbytes: int = 0) -> None:
    made = {Serial(serial): Checkpoint(1, bytes(nbytes), "", b"") for serial in serials}
    schedule.checkpointed(made, Monotonic(now), spent)


def test_the_oldest_footprint_comes_first() -> None:
    schedule = OldestFirst(Targets(replay=0, every=0))
    join(schedule, 3, 1, 2)
    order = []
    for now in range(3):
        (first, *_) = schedule.due(Monotonic(now))
        order.append(first)
        save(schedule, [first], now)
    assert order == [3, 1, 2]
    join(schedule, 2, 3, now=4)  # the last ones to have a checkpoint were 1 and 2
    assert schedule.due(Monotonic(4))[0] == 3


def test_as_many_sets_as_bring_the_replay_below_its_target() -> None:
    schedule = OldestFirst(Targets(replay=4, every=SECOND, budget=1.0))
    join(schedule, *[1] * 3, *[2] * 2, *[3] * 2)
    schedule.due(Monotonic(0))
    assert schedule.due(Monotonic(10 * SECOND)) == (1,)
    join(schedule, *[3] * 3, now=10 * SECOND)
    assert schedule.due(Monotonic(20 * SECOND)) == (1, 2, 3)


def test_records_are_bounded_too() -> None:
    schedule = OldestFirst(Targets(records=2, every=0))
    join(schedule, 1)
    for _ in range(2):
        schedule.logged([Serial(1)])
    assert (schedule.records, schedule.due(Monotonic(0))) == (2, ())
    join(schedule, 1)
    schedule.logged([Serial(1)])
    assert schedule.due(Monotonic(1)) == (1,)
    save(schedule, [1])
    assert schedule.records == 1  # the checkpoint


def test_the_budget_is_a_share_of_the_time() -> None:
    schedule = OldestFirst(Targets(replay=0, every=0, budget=0.1))
    join(schedule, 1, 2)
    assert schedule.due(Monotonic(0)) == (1,)
    save(schedule, [1], now=50, spent=50)
    assert schedule.due(Monotonic(400)) == ()
    assert schedule.wake(Monotonic(400)) == 501
    assert schedule.due(Monotonic(501)) == (2,)


def test_sets_are_looked_at_once_a_period() -> None:
    schedule = OldestFirst(Targets(replay=1, every=SECOND))
    join(schedule, 1)
    assert schedule.due(Monotonic(0)) == ()
    join(schedule, 1, now=1)
    assert schedule.due(Monotonic(SECOND - 1)) == ()
    assert schedule.wake(Monotonic(SECOND - 1)) == SECOND
    assert schedule.due(Monotonic(SECOND)) == (1,)


def test_a_set_that_is_closed_counts_no_more() -> None:
    schedule = OldestFirst(Targets(replay=1, every=0))
    join(schedule, 1, 1, 1)
    schedule.logged([Serial(1)])
    schedule.closed(Serial(1))
    assert (schedule.replay, schedule.records, schedule.due(Monotonic(9))) == (0, 0, ())
    assert schedule.wake(Monotonic(9)) is None


def test_a_set_without_new_events_waits_for_some() -> None:
    schedule = OldestFirst(Targets(replay=0, every=0))
    join(schedule, 1)
    save(schedule, [1])
    assert schedule.due(Monotonic(9)) == ()
    assert schedule.wake(Monotonic(9)) is None


def test_without_targets_a_checkpoint_is_written_when_it_is_worth_it() -> None:
    """Young: time since the last one x work lost >= 2 x cost x time between failures."""
    schedule = OldestFirst(Targets(every=SECOND))
    join(schedule, *[1] * 1000, spent=20 * 1000)
    at = schedule.wake(Monotonic(0))
    assert at is not None
    assert schedule.due(Monotonic(at - 2 * SECOND)) == ()
    assert schedule.due(at) == (1,)
    assert 0.9 < at * 20 * 1000 / (2 * FAILURES * 500) < 1.1


def test_a_larger_state_is_written_less_often() -> None:
    waits = []
    for nbytes in (100, 100_000_000):
        schedule = OldestFirst(Targets())
        join(schedule, 1)
        save(schedule, [1], nbytes=nbytes, spent=500)
        join(schedule, *[1] * 1000, spent=20 * 1000)
        waits.append(schedule.wake(Monotonic(0)))
    assert None not in waits
    assert waits[1] > 100 * waits[0]  # type: ignore[operator]


def test_a_life_begins_with_what_its_image_says() -> None:
    image = Image()
    image.sets[Serial(1)] = OpenSet("a", [], None, Checkpoint(5, b"", "", b""))
    image.sets[Serial(2)] = OpenSet("b", [None] * 3)  # type: ignore[list-item]
    image.sets[Serial(3)] = OpenSet("c", [None] * 9, "ready")  # type: ignore[list-item]
    schedule = OldestFirst(Targets(replay=2, every=0))
    schedule.restore(image, Monotonic(0), spent=0)
    assert (schedule.replay, schedule.records) == (3, 2)
    assert schedule.due(Monotonic(0)) == (2,)
