"""The connector kit finds what breaks a sink's promise: each sink here breaks one, and the message says which. What a
check needs of its caller is here too; broken sources are in `test_source_promises.py`."""

from __future__ import annotations

import sqlite3
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.unit.testing.test_source_promises import Counted

import logline as ll
from logline.errors import OptionError, PermanentError
from logline.graph.connector import Guarantee
from logline.testing.connectors import BrokenPromise, check

SCHEMA = "id long, item string"


class Target:
    """What is outside."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.last: dict[str, int] = {}
        self.names: dict[str, list[dict[str, Any]]] = {}
        self.guards: dict[int, tuple[str, int, dict[str, Any]]] = {}

    def table(self) -> pa.Table:
        named = [row for rows in self.names.values() for row in rows]
        guarded = [row for _, _, row in self.guards.values()]
        return pa.Table.from_pylist([*self.rows, *named, *guarded])


class Memory(ll.Sink):
    """Positioned, and right."""

    guarantee: Guarantee = "positioned"

    def __init__(self, target: Target) -> None:
        self.target = target

    def open(self, scope: str) -> None:
        self.scope = scope

    def position(self) -> int:
        return self.target.last.get(self.scope, 0)

    def is_next(self, number: int) -> bool:
        if number > self.position() + 1:
            raise PermanentError(f"write {number} comes after {self.position()}")
        return number == self.position() + 1

    def apply(self, batch: pa.RecordBatch, number: int) -> None:
        """In one piece, as a transaction does."""
        self.target.rows, self.target.last = (
            [*self.target.rows, *batch.to_pylist()],
            {**self.target.last, self.scope: number},
        )

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        if self.is_next(number):
            self.apply(batch, number)


class ForgetsItsPosition(Memory):
    def apply(self, batch, number):
        self.target.rows += batch.to_pylist()


class PositionOfAnyLog(Memory):
    def open(self, scope):
        self.scope = "the only one"


class PositionBeforeRows(Memory):
    def apply(self, batch, number):
        self.target.last[self.scope] = number
        self.target.rows += batch.to_pylist()


class RowsBeforePosition(Memory):
    def apply(self, batch, number):
        self.target.rows += batch.to_pylist()
        self.target.last[self.scope] = number


class PositionInTheLife(Memory):
    """It looks once, and believes that nobody else writes."""

    def open(self, scope):
        self.scope = scope
        self.known = self.target.last.get(scope, 0)

    def position(self):
        return self.known

    def apply(self, batch, number):
        super().apply(batch, number)
        self.known = number


class TakesAnyNumber(Memory):
    def is_next(self, number):
        return number > self.position()


class SkipsWhatIsTooEarly(Memory):
    def is_next(self, number):
        return number == self.position() + 1


class AppliesBeforeItsTurn(Memory):
    def write(self, batch, number, write_id):
        if number > self.position():
            self.target.rows += batch.to_pylist()
        super().write(batch, number, write_id)


class CountsFromZero(Memory):
    def position(self):
        return super().position() - 1

    def is_next(self, number):
        return number == self.target.last.get(self.scope, 0) + 1


class LosesEmptyWrites(Memory):
    def write(self, batch, number, write_id):
        if batch.num_rows:
            super().write(batch, number, write_id)


class LosesARow(Memory):
    def apply(self, batch, number):
        super().apply(batch.slice(1) if number == 3 else batch, number)


class Reverses(Memory):
    def apply(self, batch, number):
        super().apply(batch.take(list(range(batch.num_rows))[::-1]), number)


class Guarded(Memory):
    """Right: an older write never takes the place of a newer one."""

    guarantee = "guarded"

    def highest(self):
        return max((number for scope, number, _ in self.target.guards.values() if scope == self.scope), default=None)

    def beats(self, number: int, there: int) -> bool:
        return number >= there

    def write(self, batch, number, write_id):
        for row in batch.to_pylist():
            scope, there, _ = self.target.guards.get(row["id"], ("", 0, {}))
            if scope != self.scope or self.beats(number, there):
                self.target.guards[row["id"]] = (self.scope, number, row)


class UpsertsWithoutGuard(Guarded):
    def beats(self, number, there):
        return True


class NeverUpdates(Guarded):
    def beats(self, number, there):
        return False


class HighestOfAnyLog(Guarded):
    def highest(self):
        return max((number for _, number, _ in self.target.guards.values()), default=None)


class Named(Memory):
    """Right: a name is written once."""

    guarantee = "named"

    def highest(self):
        return None

    def name(self, number: int, write_id: str) -> str:
        return write_id

    def write(self, batch, number, write_id):
        self.target.names[self.name(number, write_id)] = batch.to_pylist()


class NameOfOneLife(Named):
    def name(self, number, write_id):
        return f"{id(self)} {number}"


class NameOfTheNumber(Named):
    def name(self, number, write_id):
        return str(number)


class AppendsToItsName(Named):
    def write(self, batch, number, write_id):
        self.target.names.setdefault(write_id, [])
        for row in batch.to_pylist():
            self.target.names[write_id].append(row)


class Mails(Memory):
    """Right: at least once."""

    guarantee = "at_least_once"

    def write(self, batch, number, write_id):
        self.target.rows += batch.to_pylist()


class MarksBeforeItMails(Mails):
    def write(self, batch, number, write_id):
        if self.target.last.get(self.scope, 0) < number:
            self.target.last[self.scope] = number
            super().write(batch, number, write_id)


def run(kind: type[Memory], **options: Any) -> Any:
    target = Target()
    return check(lambda: kind(target), read_back=target.table, schema=SCHEMA, **options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(Memory, {"ordered": True}), (Guarded, {"key": "id"}), (Named, {}), (Mails, {})],
)
def test_a_sink_that_is_right(kind, options):
    found = run(kind, **options)
    assert found.promise == kind.guarantee
    assert found.faults > 30


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ForgetsItsPosition, r"position\(\) .*after write 1 of 3, .*is 0, and 1 writes are there"),
        (PositionOfAnyLog, r"before the first write of a fresh log: position\(\) of a new life is 3, and 0 writes"),
        (PositionBeforeRows, r"a life died at line \d+ of \d+ of open.* row {.*} is not there, \d of 6 rows"),
        (RowsBeforePosition, r"a life died at line \d+ of \d+ of open.* is there 2 times"),
        (
            PositionInTheLife,
            r"each row is there once; but a zombie's write 1 landed after write 0 .* is there 2 times",
        ),
        (TakesAnyNumber, "n is applied only after n - 1; but write 3 came after write 1, and the sink did not raise"),
        (SkipsWhatIsTooEarly, "write 3 came after write 1, and the sink did not raise"),
        (AppliesBeforeItsTurn, "write 3 came after write 1 and was refused|is there 2 times"),
        (CountsFromZero, r"position\(\) of a new life is 0, and 1 writes are there"),
        (LosesEmptyWrites, "write 2 raised PermanentError: write 2 comes after 0, after 1 writes"),
        (
            LosesARow,
            "no row is lost .* after write 3 of 3, without any fault: .* is not there, 5 of 6 rows are there",
        ),
        (Reverses, "rows are in the order of their writes"),
    ],
)
def test_a_positioned_sink_that_is_not(kind, said):
    with pytest.raises(BrokenPromise, match=said) as raised:
        run(kind, ordered=True)
    assert str(raised.value).startswith(f"{kind.__name__} is positioned, so ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (
            UpsertsWithoutGuard,
            {"key": "id"},
            r"after write 2, the log knew of 0, and the next life repeated write 1: .* in its place is row",
        ),
        (NeverUpdates, {"key": "id"}, "after write 2 of 3, without any fault: row .* is not there, in its place is"),
        (HighestOfAnyLog, {"key": "id"}, r"highest\(\) is the last number that was applied in its scope"),
        (NameOfOneLife, {}, r"a life died after write 1, the log knew of 0, .*repeated write 1: .* is there 2 times"),
        (NameOfTheNumber, {}, "another log made a write 1 of its own: row .* is not there"),
        (AppendsToItsName, {}, "a life made write 1 three times: row .* is there 3 times"),
        (MarksBeforeItMails, {}, "MarksBeforeItMails is at_least_once, so no row is lost .* a life died at line"),
    ],
)
def test_a_sink_that_promises_too_much(kind, options, said):
    with pytest.raises(BrokenPromise, match=said):
        run(kind, **options)


def test_rows_of_an_earlier_check_do_no_harm():
    target = Target()
    for _ in range(2):
        check(lambda: Guarded(target), read_back=target.table, schema=SCHEMA, key="id")
        check(lambda: Memory(target), read_back=target.table, schema=SCHEMA)


def test_a_real_sink_that_looks_before_it_writes(tmp_path):
    """Position and rows are two transactions."""

    class Looks(ll.Sink):
        guarantee = "positioned"
        db: Any = None

        def open(self, scope):
            self.scope = scope
            self.db = sqlite3.connect(tmp_path / "looks.db", isolation_level=None)
            self.db.execute("create table if not exists rows (id integer)")
            self.db.execute("create table if not exists positions (scope text primary key, number integer)")

        def position(self):
            row = self.db.execute("select number from positions where scope = ?", (self.scope,)).fetchone()
            return 0 if row is None else row[0]

        def write(self, batch, number, write_id):
            if number != self.position() + 1:
                if number > self.position():
                    raise ValueError("too early")
                return
            self.db.executemany("insert into rows values (?)", [(n,) for n in batch["id"].to_pylist()])
            self.db.execute("insert or replace into positions values (?, ?)", (self.scope, number))

        def close(self):
            self.db.close()

    def table() -> pa.Table:
        db = sqlite3.connect(tmp_path / "looks.db")
        found = pa.table({"id": [n for (n,) in db.execute("select id from rows")]})
        db.close()
        return found

    with pytest.raises(BrokenPromise, match=r"died at line \d+ of \d+ of open\(\) and write 2.* is there 2 times"):
        check(Looks, read_back=table, schema="id long")


# ---- what it needs ----------------------------------------------------------------------------------------


class One(Counted):
    outside: ClassVar[list[int]] = [1, 2]


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (Counted(), {}, "takes a function that makes the connector anew, not a Counted"),
        (lambda: 7, {}, "the function made an int; it must make a Source or a Sink"),
        (Counted, {"schema": SCHEMA}, "are for sinks"),
        (One, {}, "One gave less than two batches"),
        (lambda: Memory(Target()), {}, "a sink needs read_back="),
        (lambda: Guarded(Target()), {"read_back": pa.table, "schema": SCHEMA}, "give key="),
        (lambda: Memory(Target()), {"read_back": pa.table, "schema": SCHEMA, "key": "nr"}, "key= names 'nr'"),
        (lambda: Memory(Target()), {"read_back": pa.table, "schema": "id long", "key": "id"}, "names all columns"),
    ],
)
def test_what_a_check_needs(make, options, said):
    with pytest.raises(OptionError, match=said):
        check(make, **options)


def test_rows_of_any_schema():
    target = Target()
    kinds = (
        "a int, b short, c double, d decimal(20,2), e binary, f date, g timestamp, h array<string>, i struct<x: long>"
    )
    assert check(lambda: Memory(target), read_back=target.table, schema=f"{kinds}, j boolean").faults > 30
    with pytest.raises(OptionError, match=r"rows 1 and 3 are equal.*rows= that makes them different"):
        check(lambda: Memory(Target()), read_back=target.table, schema="yes boolean")
    with pytest.raises(OptionError, match=r"it can't make values of map.*give rows="):
        check(lambda: Memory(Target()), read_back=target.table, schema="m map<string, long>")
    made = Target()
    check(lambda: Memory(made), read_back=made.table, schema="id long", rows=lambda n: {"id": -n})
    assert made.rows and all(row["id"] < 0 for row in made.rows)
    with pytest.raises(OptionError, match=r"read_back\(\) gave no column 'id'; it gave x"):
        check(lambda: Memory(Target()), read_back=lambda: pa.table({"x": [1]}), schema="id long")
