"""Sets that are due: one record for each, from the moment it is closed until what came of it is logged (R6, R7).

    queued ---> running ---> done ---> (logged, and gone from here)
      ^  \\       |  ^  \\       ^
      |   \\      v  |   \\      |
      |    \\   calling   +-> failed
      |     +--------------> failed
      +------- retrying <--- running, calling
      +--------------------- running, calling     (a stop has cut it off)

`calling` is a set whose code waits: until a call may be made, or until an answer is committed (R9). `failed` is one
that failed for good and is being set aside. Every change of state goes through a table (`NEXT`), so that a stimulus
that comes at the wrong moment is found where it comes.

    >>> sets = DueSets(ordered=True)
    >>> for serial in (1, 2):
    ...     _ = sets.add(Serial(serial), "fired")
    >>> [due.serial for due in sets.start(2)]
    [1, 2]
    >>> sets.generated([Result(Serial(2))])    # the second one is faster,
    []
    >>> sets.finished()                        # and waits for its turn
    []
    >>> sets.generated([Result(Serial(1))])
    []
    >>> [due.serial for due in sets.finished()]
    [1, 2]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from logline.engine.history import Finished
from logline.engine.keyed import KeyChanges
from logline.engine.moments import Monotonic
from logline.engine.results import Produced, Result
from logline.engine.sets import Answer
from logline.errors import EngineError
from logline.graph.operator import Cause
from logline.names import Serial, Ssn

State = Literal["queued", "running", "calling", "retrying", "failed", "done"]

NEXT: Mapping[State, frozenset[State]] = {
    "queued": frozenset({"running", "failed"}),
    "running": frozenset({"calling", "retrying", "failed", "done", "queued"}),
    "calling": frozenset({"running", "retrying", "failed", "done", "queued"}),
    "retrying": frozenset({"queued"}),
    "failed": frozenset({"done"}),
    "done": frozenset(),
}
"""Where a set may go from each state."""

Call = tuple[int, int]
"""A call of a set: its row, and which one it is in that row."""


class DueSet(msgspec.Struct, eq=False):
    """One set that is due. Made for every event of a stateless operator, so it costs little."""

    serial: Serial
    cause: Cause = "ready"
    """Why it is due; a set that is one event of its own is `ready`."""
    state: State = "queued"
    outputs: tuple[Produced, ...] = ()
    """What came of it, once it is done."""
    keyed: KeyChanges | None = None
    """What it changed of the states of keys, once it is done."""
    answers: list[Answer] | None = None
    """The kept answers of its calls: a further try does not ask again (R9)."""
    calls: set[Call] | None = None
    """The calls that its code waits for."""
    tries: int = 0
    retry_at: Monotonic = Monotonic(0)
    retried: tuple[Ssn, ...] = ()
    """Of a diverted set or rejected rows that are retried: their event on port `errors`, and that of the rows that
    somebody put in their place."""
    diverted: Finished | None = None
    """Of a set that failed for good and goes to port `errors`: its members."""
    dropped: str | None = None
    """Of a set that failed for good and is dropped: why."""

    def move(self, to: State) -> None:
        """Changes the state; raises if the table does not allow it."""
        if to not in NEXT[self.state]:
            raise self.stays(to)
        self.state = to

    def stays(self, to: State) -> EngineError:
        """The error for a change of state that the table does not allow."""
        return EngineError(f"input set {self.serial} is {self.state} and can't become {to}")


class DueSets:
    """All sets of one instance that are due and not logged yet, in the order in which they became due."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._sets: dict[Serial, DueSet] = {}
        self._order: deque[DueSet] = deque()
        """With `ordered`: all of them; whoever is done is logged when it comes to the front."""
        self._done: list[DueSet] = []
        """Without: those that are done."""
        self._queue: deque[DueSet] = deque()
        """Those that wait for generation."""
        self._retrying: list[DueSet] = []
        self.in_flight = 0
        """How many are running or calling."""

    def __len__(self) -> int:
        return len(self._sets)

    def __contains__(self, serial: Serial) -> bool:
        return serial in self._sets

    def __getitem__(self, serial: Serial) -> DueSet:
        return self._sets[serial]

    def get(self, serial: Serial) -> DueSet | None:
        """The record of a set; None if it is logged, or was never due."""
        return self._sets.get(serial)

    def at_work(self) -> list[DueSet]:
        """Those that are not done yet, in the order in which they became due. Any thread may ask."""
        return [due for due in list(self._sets.values()) if due.state != "done"]

    def retried(self) -> set[Ssn]:
        """The events on port `errors` that these sets retry. Any thread may ask."""
        return {ssn for due in list(self._sets.values()) for ssn in due.retried}

    # ---- becoming due ---------------------------------------------------------------------------------

    def add(self, serial: Serial, cause: Cause) -> DueSet:
        """Adds a set that waits for generation."""
        due = DueSet(serial, cause)
        self._sets[serial] = due
        if self._ordered:
            self._order.append(due)
        self._queue.append(due)
        return due

    def add_run(self, serials: Iterable[Serial]) -> None:
        """Sets of one event each; runs of them are long, so little is done for each."""
        names = tuple(serials)
        run = list(map(DueSet, names))
        self._sets.update(zip(names, run, strict=True))
        if self._ordered:
            self._order.extend(run)
        self._queue.extend(run)

    # ---- generation -----------------------------------------------------------------------------------

    @property
    def queued(self) -> int:
        """How many wait for generation."""
        return len(self._queue)

    def start(self, most: int) -> list[DueSet]:
        """Takes the next ones out of the queue, up to `most`: they run."""
        queue = self._queue
        run = [queue.popleft() for _ in range(min(len(queue), most))]
        for due in run:
            if "running" not in NEXT[due.state]:
                raise due.stays("running")
            due.state = "running"
        self.in_flight += len(run)
        return run

    def generated(self, results: Iterable[Result]) -> list[Result]:
        """Sets that ran have come to an end. Returns those that failed: what becomes of them is not decided here."""
        sets, failed, count = self._sets, [], 0
        for result in results:
            serial, outputs, failure, _, keyed = result
            if failure is not None:
                failed.append(result)
                continue
            due = sets[serial]
            if "done" not in NEXT[due.state]:
                raise due.stays("done")
            due.state = "done"
            due.outputs = outputs
            due.keyed = keyed
            count += 1
            if not self._ordered:
                self._done.append(due)
        self.in_flight -= count
        return failed

    def waits(self, serial: Serial, call: Call) -> None:
        """The code of a set that runs waits for a call. One that is tried again meanwhile waits for nothing."""
        due = self._sets.get(serial)
        if due is None:
            return
        if due.state == "running":
            due.move("calling")
            due.calls = {call}
        elif due.calls is not None:
            due.calls.add(call)

    def goes_on(self, serial: Serial, call: Call) -> None:
        """A call of a set has what it waited for. The set runs again when none of its calls waits."""
        due = self._sets.get(serial)
        if due is not None and due.calls is not None:
            due.calls.discard(call)
            if not due.calls:
                due.calls = None
                due.move("running")

    def interrupt(self, serial: Serial) -> None:
        """A stop has cut its code off, or never let it begin; this may be told more than once."""
        due = self._sets.get(serial)
        if due is not None and due.state in ("running", "calling"):
            due.move("queued")
            self._stopped(due)
            self._queue.appendleft(due)

    # ---- failing --------------------------------------------------------------------------------------

    def retry(self, serial: Serial, at: Monotonic) -> None:
        """Its code raised, and is tried again at this time."""
        due = self._sets[serial]
        due.move("retrying")
        self._stopped(due)
        due.retry_at = at
        self._retrying.append(due)

    def requeue(self, now: Monotonic) -> Monotonic | None:
        """Sets whose time has come are generated next. Returns the time of the first one that still waits."""
        if not self._retrying:
            return None
        for due in [due for due in self._retrying if now >= due.retry_at]:
            self._retrying.remove(due)
            due.move("queued")
            self._queue.appendleft(due)
        return min((due.retry_at for due in self._retrying), default=None)

    def fail(self, serial: Serial) -> DueSet:
        """It failed for good: in generation, or while it waited for it."""
        due = self._sets[serial]
        before = due.state
        due.move("failed")
        if before == "queued":
            self._queue.remove(due)
        else:
            self._stopped(due)
        return due

    def divert(self, serial: Serial, outputs: tuple[Produced, ...], diverted: Finished) -> None:
        """A set that failed for good leaves with its event for port `errors`."""
        due = self._set_aside(serial)
        due.diverted, due.outputs = diverted, outputs

    def drop(self, serial: Serial, why: str) -> None:
        """A set that failed for good is dropped."""
        self._set_aside(serial).dropped = why

    def _set_aside(self, serial: Serial) -> DueSet:
        due = self._sets[serial]
        due.move("done")
        if not self._ordered:
            self._done.append(due)
        return due

    def _stopped(self, due: DueSet) -> None:
        self.in_flight -= 1
        due.calls = None

    # ---- being logged ---------------------------------------------------------------------------------

    def finished(self) -> list[DueSet]:
        """Takes out those that are to be logged now: done, and with `ordered` nobody before them is not."""
        if self._ordered:
            order = self._order
            found = []
            while order and order[0].state == "done":
                found.append(order.popleft())
        else:
            found, self._done = self._done, []
        for due in found:
            del self._sets[due.serial]
        return found
