"""Rows of one event at one of its receivers: each goes on into rows of other events, or ends there with a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from logline.engine.events import Position
from logline.engine.sets import Member
from logline.errors import Collected
from logline.graph.dependencies import Dependency
from logline.graph.instances import Channel
from logline.lineage import rows as by
from logline.lineage import say
from logline.lineage.crossing import Error, InSet, Receiver, rows_of
from logline.lineage.joined_rows import LATE_PORTS
from logline.lineage.rows import Pairs, ready_made
from logline.lineage.say import Target
from logline.lineage.verdicts import Level, Verdict
from logline.lineage.view import Event, Port
from logline.names import ERRORS, Serial


class GoesOn(NamedTuple):
    """A row came to be in these rows of another event, or may have."""

    row: int
    event: Event
    rows: Collection[int]
    level: Level


class Ends(NamedTuple):
    """A row went no further here."""

    row: int
    verdict: Verdict


@dataclass(frozen=True)
class Question:
    """What is asked, the same at every operator."""

    target: Target
    towards: Collection[Port]
    """The ports from which a way leads to the target."""
    where: str
    meets: Callable[[pa.Table, Port], Collection[int] | None]
    """The rows of a table that meet the condition; None if it has not the columns for it."""
    db: Any


@dataclass
class Passing:
    """One event at one receiver."""

    question: Question
    receiver: Receiver
    channel: Channel
    event: Event
    table: pa.Table
    rows: Collection[int]
    _found: set[int] = field(default_factory=set)
    """Rows of which something is known."""
    _sets: dict[int, list[InSet]] = field(default_factory=dict)
    """The sets that each row is in."""
    _made: list[Event] = field(default_factory=list)
    """What the event led to on ports that lead to the target."""
    _level: Level = "row"

    def outcomes(self) -> Iterator[GoesOn | Ends]:
        """What became of each row; several things, if it went several ways."""
        receiver, (_, _, ssn) = self.receiver, self.event
        retried = self.event[0] == receiver.instance
        taken = receiver.image.positions.get(self.channel.name, Position())
        if ssn > taken.ssn and not retried:
            sender = receiver.view.reader(self.event[0])
            behind = sender.head(self.event[1]).last - taken.ssn - int(sender.outline().ended)
            verdict = say.unread(receiver, self.event, taken.ssn, behind, "row")
            yield from (Ends(row, verdict) for row in self.rows)
            return
        sets = receiver.sets(self.channel.name, ssn)
        if receiver.operator.kind == "sink":
            yield from self._written(sets)
            return
        for known in sets:
            rows = self.rows
            if known.id is not None:
                rows = by.in_set(receiver.operator, known.id, known.note, self.channel.port, self.table, rows)
            for row in rows:
                self._sets.setdefault(row, []).append(known)
            for outcome in self._in_set(known, rows):
                self._found.add(outcome.row)
                yield outcome
        for outcome in self._on_errors():
            self._found.add(outcome.row)
            yield outcome
        yield from (Ends(row, self._nothing(row)) for row in self.rows if row not in self._found)

    def _written(self, sets: Sequence[InSet]) -> Iterator[Ends]:
        receiver = self.receiver
        need = receiver.reader.needs(self.channel.name)
        waits = need.unwritten is not None and self.event[2] >= need.unwritten
        if waits or any(known.stage != "done" for known in sets):
            verdict = say.unwritten(receiver, "row")
        else:
            verdict = say.written(receiver, "row")
        yield from (Ends(row, verdict) for row in self.rows)

    # ---- input sets ---------------------------------------------------------------------------------------------

    def _in_set(self, known: InSet, rows: Collection[int]) -> Iterator[GoesOn | Ends]:
        receiver = self.receiver
        if known.stage == "open":
            yield from self._all(rows, say.in_open_set(receiver, self.event, known, "row"))
        elif known.stage == "due":
            yield from self._all(rows, say.due(receiver, self.event, known, "row"))
        elif known.dropped is not None:
            yield from self._all(rows, say.dropped(receiver, self.event, known, "row"))
        elif known.stage == "done":
            made = receiver.made(known.serial) if receiver.traces(self.channel.name) else []
            late = known.id is not None and by.is_late(receiver.operator, known.id)
            if late and all((receiver.instance, port) not in self.question.towards for port in LATE_PORTS):
                for row in rows:
                    timeless = not by.has_time(receiver.operator, self.channel.port, self.table, row)
                    on = made[0] if made else None
                    yield Ends(row, say.late(receiver, self.event, known, on, timeless, "row"))
            else:
                for out in made:
                    yield from self._into(known, rows, out)

    @staticmethod
    def _all(rows: Collection[int], verdict: Verdict) -> Iterator[Ends]:
        return (Ends(row, verdict) for row in rows)

    def _into(self, known: InSet, rows: Collection[int], out: Event) -> Iterator[GoesOn | Ends]:
        """The rows of this set in one of the events that it put out."""
        receiver, question = self.receiver, self.question
        leads = out[:2] in question.towards
        try:
            made = rows_of(receiver.view, out)
        except Collected:
            yield from self._all(rows, say.forgotten(receiver, self.event, out, "row"))
            return
        if leads:
            self._made.append(out)
        pairs = self._pairs(known, rows, out, made)
        if pairs is not None:
            for row, found in pairs.items():
                if leads:
                    yield GoesOn(row, out, found, "row")
                else:
                    yield Ends(row, say.elsewhere(receiver, out, question.target, "row"))
            return
        self._level = "event"
        met = question.meets(made, out[:2]) if leads else ()
        found = range(made.num_rows) if met is None else met
        if found:
            yield from (GoesOn(row, out, found, "event") for row in rows)

    def _pairs(self, known: InSet, rows: Collection[int], out: Event, made: pa.Table) -> Pairs | None:
        """Which rows of an output event came of which rows of this one; None if the log does not tell."""
        receiver = self.receiver
        ready = ready_made(receiver.operator)
        if ready == "MapRows" and (answers := receiver.reader.answers(known.serial)):
            return by.by_answers(answers, rows)
        if ready == "Rebatch" and (members := receiver.members(known.serial)):
            return by.by_notes(members, Member(self.channel.name, self.event[2]), rows)
        on = by.depends(receiver.operator, self.channel.port, out[1], self.table.schema, made.schema)
        return None if on is None else by.by_columns(self.question.db, self.table, rows, made, on)

    # ---- errors -------------------------------------------------------------------------------------------------

    def _on_errors(self) -> Iterator[GoesOn | Ends]:
        receiver, question = self.receiver, self.question
        for error in receiver.errors(self.channel.name, self.event[2]):
            leads = (receiver.instance, ERRORS) in question.towards
            again = receiver.retried(error) is not None
            for row, found in self._held(error).items():
                if leads or again:
                    yield GoesOn(row, error.event, found, "row")
                elif not receiver.settled(error):
                    yield Ends(row, say.diverted(receiver, error, "row"))
                elif all(known.serial <= error.serial for known in self._sets.get(row, ())):
                    # Otherwise its whole set was retried: it is in a new one, and what became of that counts.
                    yield Ends(row, say.error_dropped(receiver, error, "row"))

    def _held(self, error: Error) -> Pairs:
        """The rows that are in an error, and where in it. One without rows, or with others, holds the whole event."""
        of = {row for row, sets in self._sets.items() if any(known.serial == error.serial for known in sets)}
        rows = of or self.rows
        if error.rows is None or error.rows.schema.names != self.table.schema.names:
            return dict.fromkeys(rows, ())
        same = [Dependency(name, name) for name in dict.fromkeys(self.table.schema.names)]
        return by.by_columns(self.question.db, self.table, rows, error.rows, same)

    # ---- nothing ------------------------------------------------------------------------------------------------

    def _nothing(self, row: int) -> Verdict:
        """Nothing is found that came of a row."""
        receiver, question, (sender, port, ssn) = self.receiver, self.question, self.event
        name, sets = self.channel.name, self._sets.get(row, ())
        leading = {out for instance, out in question.towards if instance == receiver.instance and out != ERRORS}
        if not receiver.traces(name) or not leading <= set(receiver.enabled):
            return say.untraced(receiver, self.event, question.target, "row")
        gone = not receiver.operator.stateless and not sets and ssn < receiver.view.reader(sender).base(port)
        serials: list[Serial | None] = [known.serial for known in sets if known.stage == "done"]
        serials = serials or [None]
        if gone or any(receiver.forgotten(name, ssn, serial) for serial in serials):
            return say.forgotten(receiver, self.event, None, "row")
        if ready_made(receiver.operator) == "MapRows":
            gave = by.answered(answer for known in sets for answer in receiver.reader.answers(known.serial))
            if row not in gave:
                return say.row_dropped(receiver, self.event, "row")
        return say.filtered(receiver, self.channel.port, self.event, self._made, question.where, self._level)
