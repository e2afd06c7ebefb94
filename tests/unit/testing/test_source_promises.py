"""The connector kit finds what breaks a source's promise: each source here breaks one, and the message says which."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import logline as ll
from logline.testing.connectors import BrokenPromise, check


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
