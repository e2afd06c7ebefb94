"""Sets that merge, and sets that are generated and stay open, in a journal (R5, R7, R32)."""

from __future__ import annotations

from collections.abc import Callable

from logline.engine.history import Finished
from logline.engine.sets import Kept, Member
from logline.engine.step import Step
from logline.names import ChannelName, Serial, Ssn
from logline.store.seam import Store
from logline.testing.conformance.base import HOURLY, StoreSuite
from logline.testing.conformance.model import Scribe, exact_history, step_of

_ORDERS, _REFUNDS = ChannelName("orders.out>hourly.in"), ChannelName("refunds.out>hourly.in")
_ONE, _TWO, _THREE = Serial(1), Serial(2), Serial(3)


def _opened(serial: Serial, *members: Member) -> Step:
    step = Step()
    step.open(serial, ("ann", serial), members)
    return step


def _merged(gone: Serial, into: Serial, *moved: Member) -> Step:
    step = Step()
    for member in moved:
        step.join(into, member)
    step.merge(gone, into)
    return step


class MergingRules(StoreSuite):
    """A part of the suite."""

    def test_moved_members_stand_after_those_of_the_set_they_join(self, scribe: Scribe) -> None:
        first, later = Member(_ORDERS, Ssn(1), "note"), Member(_REFUNDS, Ssn(7))
        scribe.commit(_opened(_ONE, first))  # opened first, and merged into the one that was opened later
        scribe.commit(_opened(_TWO, later))
        step = _merged(_ONE, _TWO, first)
        step.join(_TWO, Member(_ORDERS, Ssn(2)))
        scribe.commit(step)
        scribe.check()
        sets = scribe.reader.image().sets
        assert {serial: opened.members for serial, opened in sets.items()} == {
            _TWO: [later, first, Member(_ORDERS, Ssn(2))]
        }

    def test_moved_members_are_needed_and_remembered_under_the_new_serial(self, scribe: Scribe) -> None:
        first, later = Member(_ORDERS, Ssn(1)), Member(_ORDERS, Ssn(300), [3])
        scribe.commit(_opened(_ONE, first))
        scribe.commit(_opened(_TWO, later))
        scribe.commit(_merged(_TWO, _ONE, later))
        assert sorted(scribe.reader.needs(_ORDERS).members) == [1, 300]
        scribe.commit(step_of(due={_ONE: "fired"}))
        scribe.commit(step_of(done=[_ONE]))
        scribe.check()
        wanted = [Finished(_ONE, ("ann", 1), (first, later))]
        assert exact_history(scribe.reader.history()) == exact_history(wanted)
        assert [known.serial for known in scribe.reader.memberships(_ORDERS, Ssn(300))] == [_ONE]

    def test_an_event_of_both_sets_is_a_member_with_each_note(self, scribe: Scribe) -> None:
        even, odd = Member(_ORDERS, Ssn(5), 0), Member(_ORDERS, Ssn(5), 1)
        scribe.commit(_opened(_ONE, even))
        scribe.commit(_opened(_TWO, odd))
        scribe.commit(_merged(_TWO, _ONE, odd))
        assert scribe.reader.image().sets[_ONE].members == [even, odd]
        scribe.commit(step_of(done=[_ONE]))
        scribe.check()
        assert [known.note for known in scribe.reader.memberships(_ORDERS, Ssn(5))] == [0, 1]

    def test_sets_merge_across_the_steps_of_one_commit(self, scribe: Scribe) -> None:
        scribe.commit(_opened(_ONE, Member(_ORDERS, Ssn(1))))
        step = _opened(_TWO, Member(_ORDERS, Ssn(2)))
        step.absorb(_merged(_TWO, _ONE, Member(_ORDERS, Ssn(2))))  # never seen by the journal
        step.absorb(_opened(_THREE, Member(_ORDERS, Ssn(3))))
        both = Member(_ORDERS, Ssn(1)), Member(_ORDERS, Ssn(2))
        step.absorb(_merged(_ONE, _THREE, *both))  # what had joined it in this commit goes with it
        scribe.commit(step)
        scribe.check()
        sets = scribe.reader.image().sets
        assert {serial: [m.ssn for m in opened.members] for serial, opened in sets.items()} == {_THREE: [3, 1, 2]}

    def test_how_often_a_set_was_generated_is_kept(self, reopen: Callable[[], Store]) -> None:
        scribe = Scribe(reopen(), HOURLY)
        scribe.commit(_opened(_ONE, Member(_ORDERS, Ssn(1))))
        step = step_of(due={_ONE: "kept"})
        step.open(_TWO, ("ann", 1), [Member(_ORDERS, Ssn(1))], Kept(1, 1))
        scribe.commit(step)
        scribe.commit(step_of(done=[_ONE]))
        scribe.commit(step_of(due={_TWO: "fired"}))
        scribe.journal.close()
        known = Scribe(reopen(), HOURLY, scribe.model)
        known.check()
        (opened,) = known.journal.image.sets.values()
        assert (opened.kept, opened.cause) == (Kept(1, 1), "fired")
