"""Which open set is checkpointed next, and when (CEC sections II and III.A; R22).

The next one is always the set whose newest footprint in the log is the oldest: its checkpoint, or its opening. When
it is time is said by targets, or reckoned by cost and benefit if there are none:

    >>> schedule = OldestFirst(Targets(replay=3, every=0))
    >>> slow, fast = Serial(1), Serial(2)
    >>> schedule.joined([slow, fast, fast], Monotonic(0), spent=60)
    >>> schedule.due(Monotonic(0))                      # three events to replay: that is allowed
    ()
    >>> schedule.joined([fast], Monotonic(1), spent=20)
    >>> schedule.due(Monotonic(1))                      # four are not; the slow set is the oldest
    (1,)
    >>> schedule.checkpointed({slow: Checkpoint(1, b"state", "plain", b"")}, Monotonic(2), spent=0)
    >>> schedule.replay, schedule.due(Monotonic(2))
    (3, ())

**Targets.** While recovery would have to take in more than `replay` events (CEC's U), or to read more than `records`
checkpoints and records of members (Q), the oldest sets are checkpointed, so many that it would not.

**Cost and benefit**, which CEC leaves open. A checkpoint costs what encoding took lately, and its bytes. Without it a
failure costs the time to take in the set's uncovered events again, as measured. Young's rule of thumb balances the
two: write a checkpoint when the time since the last one, times the work that would be lost, is worth twice its cost
times the time between failures. That time is taken to be an hour: an operator that fails more often comes back a
little later than it could, one that fails less often has spent a little more than it had to.

**Budget.** Checkpoints get a share of the time (CEC's CI/CP): what they take longer than that is waited for before
the next one. `every` is how often sets are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from logline.engine.image import Image
from logline.engine.moments import Monotonic
from logline.engine.sets import Checkpoint
from logline.engine.spec import Targets
from logline.names import Serial

FAILURES = 3_600_000_000
"""Microseconds between two failures, as taken."""
WRITE = 0.02
"""Microseconds that it takes to write a byte: 50 MB/s."""
MOST = 256
"""Sets that are encoded at once."""
LOOK = 64
"""Sets, the oldest ones, whose benefit is reckoned in one round."""
_NEWER = 0.2
"""How much the newest measurement counts."""


@dataclass(slots=True)
class _Open:
    """An open set, as far as it matters here."""

    age: int
    """Its place among the footprints: the lower, the older."""
    at: Monotonic
    """When that was written."""
    events: int = 0
    """Members that its checkpoint does not cover."""
    records: int = 0
    """Records in the log that hold them."""
    saved: bool = False
    nbytes: int = 0
    """Of its checkpoint."""


class OldestFirst:
    """The open sets of one life, the one with the oldest footprint first."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self._sets: dict[Serial, _Open] = {}
        self._order: list[tuple[int, Serial]] = []
        """A heap of those with uncovered members; entries that are out of date are skipped."""
        self._footprints = 0
        self.replay = 0
        """Events that recovery would take in now (CEC's u)."""
        self.records = 0
        """Checkpoints and records of members that it would read now (CEC's q)."""
        self._next = Monotonic(0)
        """When sets are looked at again."""
        self._allowance = 0.0
        """Microseconds that checkpoints may take now; below zero they have taken too long."""
        self._reckoned = Monotonic(0)
        self._each = 500.0
        """Microseconds that a checkpoint takes, as measured."""
        self._event = 20.0
        """Microseconds that it takes to take in an event, as measured."""

    # ---- what there is --------------------------------------------------------------------------------

    def restore(self, image: Image, now: Monotonic, spent: int) -> None:
        """A life begins, with these open sets. Rebuilding them took so many microseconds."""
        self._next = self._reckoned = now
        for serial, opened in image.sets.items():
            if opened.cause is None:
                known = self._open(serial, now)
                known.saved = opened.checkpoint is not None
                known.nbytes = 0 if opened.checkpoint is None else len(opened.checkpoint.state)
                known.events, known.records = len(opened.members), int(bool(opened.members))
                self.replay += known.events
                self.records += known.records + known.saved
                self._queue(serial, known)
        if self.replay >= LOOK:
            self._event = max(spent / self.replay, 1.0)

    def joined(self, serials: Iterable[Serial], now: Monotonic, spent: int) -> None:
        """Sets have a member more, once for each entry. Taking it all in took so many microseconds."""
        many = 0
        for serial in serials:
            known = self._sets.get(serial) or self._open(serial, now)
            if not known.events:
                self._queue(serial, known)
            known.events += 1
            many += 1
        self.replay += many
        if many:
            self._event = _newer(self._event, max(spent / many, 1.0))

    def logged(self, serials: Iterable[Serial]) -> None:
        """Each of these sets has one more record of members in the log."""
        for serial in serials:
            known = self._sets.get(serial)
            if known is not None and known.events:
                known.records += 1
                self.records += 1

    def closed(self, serial: Serial) -> None:
        """The set is open no longer."""
        known = self._sets.pop(serial, None)
        if known is not None:
            self.replay -= known.events
            self.records -= known.records + known.saved

    def checkpointed(self, made: Mapping[Serial, Checkpoint], now: Monotonic, spent: int) -> None:
        """These were made, in so many microseconds."""
        self._allowance -= spent
        if made:
            self._each = _newer(self._each, spent / len(made))
        for serial, checkpoint in made.items():
            known = self._sets.get(serial)
            if known is None:
                continue
            self.replay -= known.events
            self.records -= known.records + known.saved - 1
            known.events = known.records = 0
            known.saved, known.nbytes, known.at = True, len(checkpoint.state), now
            self._footprints += 1
            known.age = self._footprints

    def _open(self, serial: Serial, now: Monotonic) -> _Open:
        self._footprints += 1
        known = self._sets[serial] = _Open(self._footprints, now)
        return known

    def _queue(self, serial: Serial, known: _Open) -> None:
        heappush(self._order, (known.age, serial))

    # ---- what is to be done ---------------------------------------------------------------------------

    def due(self, now: Monotonic) -> Sequence[Serial]:
        """The sets that are to have a checkpoint now, the oldest first; none if it is not the time."""
        if now < self._next or not self._sets:
            return ()
        targets = self._targets
        most = targets.budget * targets.every
        self._allowance = min(most, self._allowance + (now - self._reckoned) * targets.budget)
        self._reckoned = now
        if self._allowance < 0:
            return ()
        many = max(1, min(MOST, int(self._allowance / max(self._each, 1.0))))
        found = tuple(self._beyond_targets(many) if self._has_targets else self._worth_it(now, many))
        if not found:
            self._next = Monotonic(now + targets.every)
        return found

    def wake(self, now: Monotonic) -> Monotonic | None:
        """When to ask again, if nothing happens meanwhile; None if something has to happen first."""
        oldest = next(iter(self._oldest(1)), None)
        if oldest is None:
            return None
        late = -min(0.0, self._allowance) / self._targets.budget
        ready = max(self._next, Monotonic(self._reckoned + int(late) + 1))
        if self._has_targets:
            return ready if self._is_beyond(self.replay, self.records) else None
        known = self._sets[oldest]
        waits = 2 * FAILURES * self._cost(known) / (self._event * known.events)
        return max(ready, Monotonic(known.at + int(waits) + 1))

    @property
    def _has_targets(self) -> bool:
        return self._targets.replay is not None or self._targets.records is not None

    def _is_beyond(self, replay: int, records: int) -> bool:
        most = self._targets
        return (most.replay is not None and replay > most.replay) or (
            most.records is not None and records > most.records
        )

    def _beyond_targets(self, many: int) -> Iterator[Serial]:
        replay, records = self.replay, self.records
        if not self._is_beyond(replay, records):
            return
        for serial in self._oldest(many):
            known = self._sets[serial]
            yield serial
            replay -= known.events
            records -= known.records + known.saved - 1
            if not self._is_beyond(replay, records):
                return

    def _worth_it(self, now: Monotonic, many: int) -> Iterator[Serial]:
        for serial in self._oldest(max(many, LOOK)):
            known = self._sets[serial]
            lost = (now - known.at) * self._event * known.events
            if lost >= 2 * FAILURES * self._cost(known):
                yield serial
                many -= 1
                if not many:
                    return

    def _cost(self, known: _Open) -> float:
        return self._each + known.nbytes * WRITE

    def _oldest(self, many: int) -> list[Serial]:
        """The first sets with uncovered members; they stay where they are."""
        found: list[tuple[int, Serial]] = []
        order, sets = self._order, self._sets
        while order and len(found) < many:
            entry = heappop(order)
            known = sets.get(entry[1])
            if known is not None and known.age == entry[0] and known.events and (not found or found[-1] != entry):
                found.append(entry)
        for entry in found:
            heappush(order, entry)
        return [serial for _, serial in found]


def _newer(before: float, now: float) -> float:
    return before + _NEWER * (now - before)
