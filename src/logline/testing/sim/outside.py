"""The outside world of a simulated pipeline: sources, targets and a paid service that notice what must not happen."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pyarrow as pa

from logline.graph.connector import Guarantee, Sink, Source
from logline.testing.sim.plain import Records


class Violation(AssertionError):
    """A rule was broken. The seed that led here replays it."""


_NOTHING = pa.schema([])


class SimSource(Source):
    """One that grows, and knows what must have been logged of it at the end."""

    gather = False
    schema = _NOTHING
    honest = False
    """Whether it pauses only where there is nothing more for now. A run that reads what is there ends at a pause."""

    @abstractmethod
    def grow(self, rnd: Random) -> None:
        """There is more to read than there was."""

    @abstractmethod
    def check(self, logged: Sequence[Records]) -> None:
        """Raises a Violation unless this is what a run without failure would have logged."""

    def size(self) -> int:
        """How many events it has by now, those that were read included."""
        raise NotImplementedError


class ReplayableSource(SimSource):
    """A fixed list of batches; the offset is the index. `apart`: a life reads one of the partitions. `files`: what is
    new comes as a new partition."""

    def __init__(
        self, batches: Sequence[Records], parts: int = 1, *, apart: bool = False, files: bool = False
    ) -> None:
        self.apart = apart
        self.grows = not files
        self.tag = batches[0][0][0] if batches else ""
        self.batches = {str(k): list(batches[k::parts]) for k in range(parts)}

    def partitions(self) -> Sequence[str]:
        return tuple(self.batches)

    def read(self, partition: str, offset: Any) -> Iterator[tuple[Any, Any] | None]:
        for index in range(offset or 0, len(self.batches[partition])):
            yield self.batches[partition][index], index + 1
            if index % 3 == 2 and not self.honest:
                yield None

    def size(self) -> int:
        return sum(map(len, self.batches.values()))

    def grow(self, rnd: Random) -> None:
        if not self.grows:
            self.batches[str(len(self.batches))] = []
        for name, batches in self.batches.items():
            for _ in range(rnd.randint(0, 2) if self.grows or name == str(len(self.batches) - 1) else 0):
                batches.append(((f"{self.tag}more{name}.{len(batches)}", len(batches)),))

    def check(self, logged: Sequence[Records]) -> None:
        """Every batch once, and those of one partition in their order."""
        for name, batches in self.batches.items():
            mine = [b for b in logged if b in batches]
            if mine != batches:
                raise Violation(f"SOURCE partition {name}: {batches} was logged as {mine}")
        if len(logged) != sum(map(len, self.batches.values())):
            raise Violation(f"SOURCE {len(logged)} events logged of {self.batches}")


class QuerySource(SimSource):
    """Not replayable: each execution sees other data, and a read is whole or did not happen."""

    replayable = False

    def __init__(self, rnd: Random, reads: int = 2) -> None:
        self._rnd = rnd
        self._reads = reads
        self.executions = 0
        self.effects: dict[int, list[Records]] = {}

    def read(self, partition: str, offset: Any) -> Iterator[tuple[Any, Any] | None]:
        done = offset or 0
        for turn in range(done, self._reads):
            self.executions += 1
            execution = self.executions
            effect: list[Records] = [
                ((f"q{execution}.{i}", execution * 10 + i),) for i in range(self._rnd.randint(1, 4))
            ]
            self.effects[execution] = effect
            for batch in effect:
                yield batch, turn + 1
            if turn + 1 < self._reads:
                yield None

    def grow(self, rnd: Random) -> None:
        self._reads += rnd.randint(0, 1)

    def check(self, logged: Sequence[Records]) -> None:
        """The events are those of whole executions, one for each read."""
        rest, used = list(logged), 0
        while rest:
            execution = int(rest[0][0][0][1:].split(".")[0])
            effect = self.effects[execution]
            if rest[: len(effect)] != effect:
                raise Violation(f"EFFECT-MIXED execution {execution} gave {effect}, logged {logged}")
            rest, used = rest[len(effect) :], used + 1
        if used > self._reads or (used != self._reads and not self.honest):  # a run makes those up to a pause
            raise Violation(f"EFFECT-COUNT {used} reads logged, {self._reads} were to be made: {logged}")


class QueueSource(SimSource):
    """Destructive: messages go when they are confirmed, and come again, in any order, until then."""

    destructive = True

    def __init__(self, rnd: Random, messages: int = 5) -> None:
        self._rnd = rnd
        self.messages: dict[int, Records] = {i: ((f"m{i}", i),) for i in range(messages)}
        self.waiting = dict(self.messages)

    def read(self, partition: str, offset: Any) -> Iterator[tuple[Any, Any] | None]:
        while self.waiting:
            hand = list(self.waiting.items())  # a delivery that is under way while others are confirmed
            self._rnd.shuffle(hand)
            for message, body in hand if self.honest else hand[: self._rnd.randint(1, 3)]:
                yield body, message
            yield None

    def confirm(self, partition: str, ids: Sequence[Any]) -> None:
        for message in ids:
            self.waiting.pop(message, None)

    def grow(self, rnd: Random) -> None:
        for i in range(len(self.messages), len(self.messages) + rnd.randint(0, 2)):
            self.messages[i] = self.waiting[i] = ((f"m{i}", i),)

    def check(self, logged: Sequence[Records]) -> None:
        """Raises a Violation unless every message was logged once and all are confirmed."""
        if sorted(logged) != sorted(self.messages.values()):
            raise Violation(f"QUEUE logged {logged}")
        if self.waiting:
            raise Violation(f"QUEUE never confirmed {self.waiting}")


class Target(Sink):
    """An external target of each kind of R8. It outlives every life."""

    def __init__(self, guarantee: Guarantee) -> None:
        self.guarantee = guarantee
        self.scope = ""
        self.last = 0
        self.names: dict[str, Records] = {}
        self.rows: list[Records] = []
        self.guards: dict[str, tuple[int, Records]] = {}
        self.failing: list[int] = []
        """The next write of such a number fails."""

    def open(self, scope: str) -> None:
        if self.scope and scope != self.scope:
            raise Violation(f"SCOPE of a target changed from {self.scope} to {scope}")
        self.scope = scope

    def position(self) -> int:
        return self.last

    def write(self, batch: Any, number: int, write_id: str) -> None:
        if number in self.failing:
            self.failing.remove(number)
            raise OSError("the target is away for a moment")
        if self.guarantee == "positioned":
            if number <= self.last:
                return
            if number != self.last + 1:
                raise Violation(f"TARGET-GAP {number} after {self.last}")
            self.last = number
            self.rows.append(batch)
        elif self.guarantee == "guarded":
            key = str(len(batch))
            if self.guards.get(key, (0, ()))[0] < number:
                self.guards[key] = (number, batch)
        elif self.names.setdefault(write_id, batch) != batch:
            raise Violation(f"WRITE-ID {write_id} has two contents")

    def check(self, logged: Sequence[Records]) -> None:
        """What is in the target is what the log says was to be written."""
        if self.guarantee == "positioned":
            if self.rows != list(logged):
                raise Violation(f"EXACTLY-ONCE target has {self.rows}, log has {list(logged)}")
        elif self.guarantee == "guarded":
            want = {str(len(batch)): (n + 1, batch) for n, batch in enumerate(logged)}
            if self.guards != want:
                raise Violation(f"LOST-UPDATE target has {self.guards}, want {want}")
        elif sorted(self.names.values()) != sorted(logged):
            raise Violation(f"EXACTLY-ONCE named target has {self.names}, log has {list(logged)}")


class PaidService:
    """Counts what it is asked; never gives the same answer twice."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.kept: dict[str, bytes] = {}
        """Answers that have been committed. A zombie may ask again; nobody may keep another answer."""

    def ask(self, token: str) -> list[Any]:
        """Gives an answer that was never given before, and counts that the token was asked for."""
        self.asked[token] += 1
        return [token, sum(self.asked.values())]

    def keep(self, token: str, answer: bytes) -> None:
        """An answer is in a committed image."""
        if self.kept.setdefault(token, answer) != answer:
            raise Violation(f"PAID-TWICE {token}: its answer was committed before and it was asked again")
