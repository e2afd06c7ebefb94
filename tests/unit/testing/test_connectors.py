"""The connector kit finds what breaks a promise: each connector here breaks one, and the message says which."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

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


# ---- sources ----------------------------------------------------------------------------------------------


class Counted(ll.Source):
    """Replayable, and right."""

    schema: Any = pa.schema([("n", pa.int64())])
    outside: ClassVar[list[int]] = list(range(10))

    def batch(self, first: int) -> pa.RecordBatch:
        return pa.record_batch({"n": self.outside[first : first + 2]}, schema=self.schema)

    def read(self, partition, offset):
        for first in range(offset or 0, len(self.outside), 2):
            yield self.batch(first), first + 2


class Differs(Counted):
    def batch(self, first):
        return pa.record_batch({"n": [random.getrandbits(60), first]}, schema=self.schema)


class LosesAfterAnOffset(Counted):
    def read(self, partition, offset):
        yield from super().read(partition, offset and offset + 2)


class RepeatsAfterAnOffset(Counted):
    def read(self, partition, offset):
        for batch, after in super().read(partition, offset):
            yield batch, after - 2


class LosesAfterTheThird(Counted):
    def read(self, partition, offset):
        yield from super().read(partition, offset + 2 if offset == 6 else offset)


class SharesItsPlace(Counted):
    """Lives share what they should not."""

    at: ClassVar[list[int]] = [0]

    def read(self, partition, offset):
        self.at[0] = offset or 0
        while self.at[0] < len(self.outside):
            self.at[0] += 2
            yield self.batch(self.at[0] - 2), self.at[0]


class MarksWhatItTook(Counted):
    """It believes that what it took from outside is in the log."""

    taken: ClassVar[set[int]] = set()

    def read(self, partition, offset):
        for batch, after in super().read(partition, offset):
            if after - 2 not in self.taken or offset is None:
                yield batch, after
                self.taken.add(after - 2)


class OtherSchema(Counted):
    def batch(self, first):
        return pa.record_batch({"n": pa.array([1], pa.int32())})


class OffsetThatIsNone(Counted):
    def read(self, partition, offset):
        for batch, _ in super().read(partition, None):
            yield batch, None


class OffsetOfItsOwn(Counted):
    def read(self, partition, offset):
        for batch, _ in super().read(partition, None):
            yield batch, object()


class Renames(Counted):
    def partitions(self):
        return [str(random.getrandbits(60))]


class YieldsBatches(Counted):
    def read(self, partition, offset):
        for batch, _ in super().read(partition, offset):
            yield batch


def test_a_source_that_is_right():
    found = check(Counted)
    assert (found.promise, found.faults > 10) == ("replayable", True)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Differs, "was read again from its beginning: 10 rows came where 10 were left, and row 1 of them is"),
        (LosesAfterAnOffset, r"read on after batch 1 of 5 \(offset 2\): 6 rows came where 8 were left, and row 1"),
        (RepeatsAfterAnOffset, r"after batch 1 of 5 \(offset 0\): 10 rows came where 8 were left"),
        (
            LosesAfterTheThird,
            r"after batch 3 of 5 \(offset 6\): 2 rows came where 4 were left, .* is {'n': 8}, not {'n': 6}",
        ),
        (SharesItsPlace, "while the former life read on: "),
        (MarksWhatItTook, "rows came where"),
        (OtherSchema, "batches have the schema; but the schema is 'n: int64', and a batch has 'n: int32'"),
        (OffsetThatIsNone, "a batch comes with what to go on after; but one came with None"),
        (OffsetOfItsOwn, "the log can hold what comes with a batch"),
        (Renames, "partitions keep their names"),
        (YieldsBatches, r"read\(\) yields \(batch, offset\) or None; but it yielded RecordBatch"),
    ],
)
def test_a_replayable_source_that_is_not(kind, said):
    with pytest.raises(BrokenPromise, match=said) as raised:
        check(kind)
    assert str(raised.value).startswith(f"{kind.__name__} is replayable, so ")
    assert "\n" not in str(raised.value)


class Queue(ll.Source):
    """Destructive, and right."""

    schema = "text string"
    destructive = True

    def __init__(self, messages: dict[str, str]) -> None:
        self.messages = messages

    def read(self, partition, offset):
        for id_ in sorted(self.messages):
            yield pa.record_batch({"text": [self.messages[id_]]}), id_
        yield None
        raise AssertionError("nobody asks again")

    def confirm(self, partition, ids):
        for id_ in ids:
            self.messages.pop(id_, None)


class RemovesWhenRead(Queue):
    def read(self, partition, offset):
        for id_ in sorted(self.messages):
            yield pa.record_batch({"text": [self.messages.pop(id_)]}), id_


class ConfirmsNothing(Queue):
    def confirm(self, partition, ids):
        pass


class ConfirmsTheFirst(Queue):
    """As many as were given, whichever they are: a repeated confirmation takes another one."""

    def confirm(self, partition, ids):
        for id_ in sorted(self.messages)[: len(ids)]:
            self.messages.pop(id_)


class ConfirmsItsOwnOnly(Queue):
    """What this life has not read it does not know."""

    def __init__(self, messages):
        super().__init__(messages)
        self.read_here: set[str] = set()

    def read(self, partition, offset):
        for item in super().read(partition, offset):
            self.read_here.add("" if item is None else item[1])
            yield item

    def confirm(self, partition, ids):
        super().confirm(partition, self.read_here.intersection(ids))


class NumbersWhatIsThere(Queue):
    """The id is a place in the queue, not the message."""

    reads: ClassVar[list[int]] = []

    def read(self, partition, offset):
        self.reads.append(1)
        for place, id_ in enumerate(sorted(self.messages, reverse=len(self.reads) % 2 == 0)):
            yield pa.record_batch({"text": [self.messages[id_]]}), place


class Pulse(ll.Source):
    """Not replayable, and right."""

    schema = "x double"
    replayable = False

    def read(self, partition, offset):
        for _ in range(3):
            yield pa.record_batch({"x": [random.random()]}), None
        yield None


class OnlyOnce(Pulse):
    used: ClassVar[list[int]] = []

    def read(self, partition, offset):
        self.used.append(1)
        if len(self.used) == 1:
            yield from super().read(partition, offset)


def queue(kind: type[Queue]) -> Callable[[], Queue]:
    messages = {f"m{n}": random.choice("abc") + str(n) for n in range(6)}
    return lambda: kind(messages)


def test_a_queue_and_a_reading_that_are_right():
    assert check(queue(Queue)).promise == "destructive"
    assert check(Pulse).promise == "not replayable"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            RemovesWhenRead,
            "6 of 6 messages of partition '0' are gone after a life read them and died, the first is 'm0'",
        ),
        (ConfirmsNothing, "message 'm0' was confirmed by a life that had not read it, and it came once more"),
        (ConfirmsTheFirst, "message 'm0' was confirmed again .* and then 1 of 5 others are gone, the first is 'm1'"),
        (ConfirmsItsOwnOnly, "what is confirmed is gone"),
    ],
)
def test_a_queue_that_is_not(kind, said):
    with pytest.raises(BrokenPromise, match=said):
        check(queue(kind))


def test_an_id_that_is_used_for_another_message():
    with pytest.raises(BrokenPromise, match="an id is never used for another message; but message"):
        check(queue(NumbersWhatIsThere))


def test_a_reading_that_can_be_made_once():
    with pytest.raises(BrokenPromise, match="gave 3 batches, and none after 3 passes broke off"):
        check(OnlyOnce)


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
