"""A Hypothesis state machine over one journal: steps, repeated commits, refused ones, claims, zombies, reopening.
After each of them the journal holds exactly what the model holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from logline.engine.sets import Member
from logline.errors import CodecError, Fenced
from logline.names import InstanceName, Serial, Ssn
from logline.store.seam import Store
from logline.testing.conformance.model import Scribe, exact
from logline.testing.conformance.steps import CHANNELS, steps

INSTANCE = InstanceName("hourly/2")


class JournalMachine(RuleBasedStateMachine):
    """`open_store` opens the same log again each time."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        super().__init__()
        self.open_store = open_store
        self.store = open_store()
        self.scribe = Scribe(self.store, INSTANCE)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """Commits another step that is valid now."""
        self.scribe.commit(data.draw(steps(self.scribe.model)))

    @rule(data=st.data())
    def commit_repeated(self, data: st.DataObject) -> None:
        """The answer got lost."""
        step = self.scribe.commit(data.draw(steps(self.scribe.model)))
        self.scribe.journal.commit(step)

    @rule(data=st.data())
    def commit_refused(self, data: st.DataObject) -> None:
        """What can't be logged exactly takes the whole step with it (R1)."""
        step = self.scribe.number(data.draw(steps(self.scribe.model)))
        serial = Serial(max(step.sets.serial, self.scribe.model.image.serial) + 1)
        step.open(serial, "refused", [Member(CHANNELS[0], Ssn(1), object())])
        with pytest.raises(CodecError):
            self.scribe.journal.commit(step)

    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        """A new life; the old one does not know yet (R10)."""
        old, model = self.scribe, self.scribe.model
        self.scribe = Scribe(self.store, INSTANCE, model)
        assert self.scribe.journal.incarnation > old.journal.incarnation
        assert exact(self.scribe.journal.image) == exact(model.image)
        assert self.scribe.journal.image.keyed == model.image.keyed
        with pytest.raises(Fenced):
            old.journal.commit(old.number(data.draw(steps(model))))

    @rule()
    def reopen(self) -> None:
        """The process is gone, the log is not."""
        before = self.scribe.journal.incarnation
        self.scribe.journal.close()
        self.store.close()
        self.store = self.open_store()
        self.scribe = Scribe(self.store, INSTANCE, self.scribe.model)
        assert self.scribe.journal.incarnation > before
        assert exact(self.scribe.journal.image) == exact(self.scribe.model.image)
        assert self.scribe.journal.image.keyed == self.scribe.model.image.keyed

    @invariant()
    def same(self) -> None:
        """The journal and the model agree."""
        self.scribe.check()

    def teardown(self) -> None:
        self.scribe.journal.close()
        self.store.close()
