"""A sink under faults (R8): does a write that is repeated, late, or broken off count once?

A life of a sink is an object of its own that was opened. One that died is left as it is; a *zombie* is one that
writes on. The log knows of the first d writes of a life that has made k. So the next one repeats d + 1 to k. Each
case has a scope of its own, and rows that nothing else writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from uuid import uuid4

import pyarrow as pa

from logline.errors import OptionError
from logline.graph.connector import Sink
from logline.testing.connectors.crashing import crashes, lines_of, points
from logline.testing.connectors.findings import BrokenPromise, Checked
from logline.testing.connectors.rows import Row, Rows

WRITES = 3
"""Of a case: one before what goes wrong, one in it, one after it."""


class SinkCheck:
    """All cases of one sink."""

    def __init__(
        self, make: Callable[[], Sink], read_back: Callable[[], pa.Table], rows: Rows, *, ordered: bool, most: int
    ) -> None:
        first = make()
        self.guarantee = first.guarantee
        if self.guarantee not in first._GUARANTEES:
            raise BrokenPromise(
                f"guarantee={self.guarantee!r} of {type(first).__name__} is no promise: "
                f"it is one of {', '.join(first._GUARANTEES)}"
            )
        if self.guarantee == "guarded" and not rows.key:
            raise OptionError("check(): a guarded sink compares rows by key: give key=, the column or columns")
        self.make, self.read_back, self.rows = make, read_back, rows
        self.ordered, self.most = ordered, most
        self.name = type(first).__name__
        self.gapless = self.guarantee == "positioned" and not first.kept
        """Whether it must refuse a number that is not the next one. What is kept in the log is there in any case."""
        self.numbers = self._fresh_numbers()
        self.faults = 0

    def run(self) -> Checked:
        """Raises BrokenPromise at the first case that breaks one."""
        self._without_faults()
        self._fresh_log()
        self._repeated_at_once()
        self._crashes_between_writes()
        self._late_writes()
        self._without_rows()
        if self.gapless:
            self._gaps()
        self._crashes_within()
        return Checked(self.guarantee, self.faults)

    def _fresh_numbers(self) -> Iterator[int]:
        """Numbers of rows that are not in the target, of an earlier check say."""
        there: set[Row] = set()
        with suppress(Exception):  # the first write may make the table
            there = {self.rows.key_of(row) for row in self.rows.of(self.read_back())}
        for n in count(1):
            (row,) = self.rows.of(self.rows.batch([n]))
            if self.rows.key_of(row) not in there:
                yield n

    # ---- cases ----------------------------------------------------------------------------------------

    def _without_faults(self) -> None:
        with self._case() as case:
            life = case.life()
            for number in range(1, WRITES + 1):
                case.write(life, number)
                case.look(f"after write {number} of {WRITES}, without any fault")

    def _repeated_at_once(self) -> None:
        """The answer to a write got lost, and the same life makes it again."""
        with self._case() as case:
            life = case.life()
            for number in range(1, WRITES + 1):
                for _ in range(3):
                    case.write(life, number)
                case.look(f"a life made write {number} three times")

    def _crashes_between_writes(self) -> None:
        """k writes are made and the log knows of d. So this has a crash before and after each write."""
        for made in range(WRITES + 1):
            for known in range(made + 1):
                with self._case() as case:
                    first = case.life()
                    for number in range(1, made + 1):
                        case.write(first, number)
                    heir = case.life()
                    for number in range(known + 1, WRITES + 1):
                        case.write(heir, number)
                        again = "repeated" if number <= made else "made"
                        when = f"after write {made}" if made else "before its first write"
                        case.look(
                            f"a life died {when}, the log knew of {known}, and the next life {again} write {number}"
                        )

    def _late_writes(self) -> None:
        """A zombie has made k writes. Each of them, and the next one, lands after each write of the next life."""
        for made in range(WRITES):
            for late in range(1, made + 2):
                for after in range(made, WRITES + 1):
                    with self._case() as case:
                        zombie = case.life()
                        for number in range(1, made + 1):
                            case.write(zombie, number)
                        heir = case.life()
                        for number in range(1, after + 1):
                            case.write(heir, number)
                        case.write_late(zombie, late)
                        case.look(f"a zombie's write {late} landed after write {after} of the next life")
                        for number in range(after + 1, WRITES + 1):
                            case.write(heir, number)
                        case.look(
                            f"a zombie's write {late} landed after write {after} of the next life, which went on to "
                            f"write {WRITES}"
                        )

    def _without_rows(self) -> None:
        with self._case() as case:
            life = case.life()
            for _ in range(2):
                case.write(life, 1, empty=True)
            case.write(life, 2)
            case.look("write 1 had no rows and was repeated, and write 2 followed")

    def _fresh_log(self) -> None:
        """Another scope begins at 1, whatever the target has."""
        with self._case() as case, self._case() as fresh:
            case.write(case.life(), 1)
            fresh.asked("before the first write of a fresh log")
            fresh.write(fresh.life(), 1)
            fresh.look("a fresh log made write 1, as another log had before")
            case.look("another log made a write 1 of its own")

    def _gaps(self) -> None:
        with self._case() as case:
            life = case.life()
            case.write(life, 1)
            try:
                case.sink_write(life, 3)
            except Exception:
                case.look("write 3 came after write 1 and was refused")
            else:
                raise self._broken(
                    "n is applied only after n - 1", "write 3 came after write 1, and the sink did not raise"
                )

    def _crashes_within(self) -> None:
        """A life opens, says what is there, and writes 2: it dies at each line of its code."""

        def prepared(case: _Case) -> Callable[[], None]:
            before = case.life()
            case.write(before, 1)
            before.close()
            life = case.born()

            def work() -> None:
                life.open(case.scope)
                _asked(life)
                case.sink_write(life, 2)

            return work

        with self._case() as case:
            lines = lines_of(prepared(case))
        for at in points(lines, self.most):
            with self._case() as case:
                crashes(prepared(case), at)
                with suppress(Exception):
                    case.lives[-1].close()  # a process that dies ends its connections
                heir = case.life()
                for number in (2, 3):
                    case.write(heir, number)
                case.look(
                    f"a life died at line {at} of {lines} of open() and write 2, and the next life made 2 and 3"
                )

    # ---- what they have in common ---------------------------------------------------------------------

    @contextmanager
    def _case(self) -> Iterator[_Case]:
        self.faults += 1
        case = _Case(self)
        try:
            yield case
        finally:
            for life in case.lives:
                with suppress(Exception):
                    life.close()

    def _broken(self, promise: str, found: str) -> BrokenPromise:
        return BrokenPromise(f"{self.name} is {self.guarantee}, so {promise}; but {found}")


class _Case:
    """A scope, its lives, and what must be in the target."""

    def __init__(self, check: SinkCheck) -> None:
        self.check = check
        self.scope = f"check-{uuid4().hex[:12]}/store/out"
        self.lives: list[Sink] = []
        self.applied = 0
        base = [next(check.numbers) for _ in range(1 + 2 * WRITES)]
        self._shared = base[0]
        self._own = {n + 1: base[1 + 2 * n : 3 + 2 * n] for n in range(WRITES)}
        self._empty: set[int] = set()

    def born(self) -> Sink:
        made = self.check.make()
        self.lives.append(made)
        return made

    def life(self) -> Sink:
        """A new life, which was asked what it has as the engine does."""
        made = self.born()
        made.open(self.scope)
        _asked(made)
        return made

    def _batch(self, number: int) -> pa.RecordBatch:
        rows = self.check.rows
        if number in self._empty:
            return rows.batch([])
        own = self._own[number]
        if not rows.key:
            return rows.batch(own)
        return _joined(rows.batch(own[:1]), rows.batch(own[1:], key=self._shared))  # the second in all writes

    def sink_write(self, life: Sink, number: int) -> None:
        life.write(self._batch(number), number, f"{self.scope}/{number}")

    def write(self, life: Sink, number: int, *, empty: bool = False) -> None:
        """Makes a write, which the target has from now on."""
        if empty:
            self._empty.add(number)
        batch = self._batch(number)
        try:
            life.write(batch, number, f"{self.scope}/{number}")
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise self.check._broken(
                "a write that is repeated or next is taken",
                f"write {number} raised {said}, after {self.applied} writes",
            ) from error
        self.applied = max(self.applied, number)

    def write_late(self, zombie: Sink, number: int) -> None:
        """As a life does that is over: it may fail, if only it changes nothing."""
        with suppress(Exception):
            self.sink_write(zombie, number)
            self.applied = max(self.applied, number)

    def look(self, when: str) -> None:
        """Compares what is there with what must be, and what a new life says of it."""
        check, rows = self.check, self.check.rows
        mine: list[Row] = []
        for number in range(1, WRITES + 1):
            mine += rows.of(self._batch(number))
        wanted: dict[Row, Row] = {}
        for number in range(1, self.applied + 1):
            wanted.update({rows.key_of(row): row for row in rows.of(self._batch(number))})
        keys = {rows.key_of(row) for row in mine}
        found = [row for row in rows.of(check.read_back()) if rows.key_of(row) in keys]
        times = Counter(found)
        for row in wanted.values():
            if times[row] == 0:
                instead = [other for other in found if rows.key_of(other) == rows.key_of(row)]
                said = (
                    f"in its place is {self._shown(instead[0])}"
                    if instead
                    else f"{len(found)} of {len(wanted)} rows are there"
                )
                raise check._broken(
                    "no row is lost or overwritten by an older one",
                    f"{when}: {self._shown(row)} is not there, {said}",
                )
            if times[row] > 1 and check.guarantee != "at_least_once":
                raise check._broken(
                    "each row is there once", f"{when}: {self._shown(row)} is there {times[row]} times"
                )
        for row in found:
            if row not in wanted.values() and check.guarantee != "at_least_once":
                raise check._broken(
                    "nothing is applied before its turn", f"{when}: {self._shown(row)} is there already"
                )
        if check.ordered and not rows.key and check.guarantee != "at_least_once" and found != list(wanted.values()):
            raise check._broken("rows are in the order of their writes", f"{when}: they are {found}")
        self.asked(when)

    def asked(self, when: str) -> None:
        """What a new life says is the last number that is there."""
        check = self.check
        life = self.born()
        life.open(self.scope)
        said = _asked(life)
        life.close()
        told = "position()" if check.guarantee == "positioned" else "highest()"
        if check.guarantee == "positioned":
            wrong = said != self.applied
        else:
            wrong = said not in (None, 0 if not self.applied else self.applied) and not self._empty
        if wrong:
            raise check._broken(
                f"{told} is the last number that was applied in its scope",
                f"{when}: {told} of a new life is {said!r}, and {self.applied} writes are there",
            )

    def _shown(self, row: Row) -> str:
        return f"row {self.check.rows.shown(row)}"


def _asked(sink: Sink) -> int | None:
    return sink.position() if sink.guarantee == "positioned" else sink.highest()


def _joined(*batches: pa.RecordBatch) -> pa.RecordBatch:
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
