"""The history that lineage scopes keep, in memory: sets that are done, what they were made of and what they made.

By segment, so that a segment goes as a whole (R12).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from logline.engine.events import Output
from logline.engine.history import Finished, Lone
from logline.engine.sets import Answer, own_id
from logline.engine.step import Step
from logline.names import ChannelName, PortName, Serial, Ssn


@dataclass
class KeptHistory:
    """Of one journal."""

    made: dict[Serial, list[tuple[PortName, Ssn]]] = field(default_factory=dict)
    answers: dict[Serial, list[Answer]] = field(default_factory=dict)
    _sets: dict[Serial, Finished] = field(default_factory=dict)
    _lone: dict[Serial, Lone] = field(default_factory=dict)
    """Runs, by their first serial."""
    _order: list[Serial] = field(default_factory=list)
    """The first serials of the runs, sorted."""
    _by_event: dict[ChannelName, list[tuple[Ssn, Serial]]] = field(default_factory=dict)
    """The first event and serial of the runs, by channel, sorted."""
    _segments: dict[int, tuple[list[Serial], list[Serial]]] = field(default_factory=dict)
    """Sets and runs of each segment."""

    def add(
        self,
        step: Step,
        over: Iterable[Finished],
        outputs: Sequence[Output],
        answers: Mapping[Serial, list[Answer]],
    ) -> None:
        """What the step finished and a scope keeps."""
        if not step.lineage.kept and not step.lineage.lone:
            return
        assert step.lineage.segment is not None
        sets, runs = self._segments.setdefault(step.lineage.segment.number, ([], []))
        kept = set(step.lineage.kept)
        for finished in over:
            if finished.serial in kept:
                self._sets[finished.serial] = finished
                sets.append(finished.serial)
                if finished.serial in answers:
                    self.answers[finished.serial] = list(answers[finished.serial])
        for run in step.lineage.lone:
            self._lone[run.serial] = run
            insort(self._order, run.serial)
            insort(self._by_event.setdefault(run.channel, []), (run.ssn, run.serial))
            runs.append(run.serial)
        for output in outputs:
            if output.serial in kept or self._run(output.serial) is not None:
                self.made.setdefault(output.serial, []).append((output.port, output.ssn))

    def expire(self, upto: int) -> None:
        """Forgets segments."""
        for number in [n for n in self._segments if n <= upto]:
            sets, runs = self._segments.pop(number)
            for serial in sets:
                del self._sets[serial]
                self.made.pop(serial, None)
                self.answers.pop(serial, None)
            for serial in runs:
                run = self._lone.pop(serial)
                for one in range(serial, serial + run.count):
                    self.made.pop(Serial(one), None)
            if runs:
                self._order = [serial for serial in self._order if serial in self._lone]
                for channel, known in self._by_event.items():
                    self._by_event[channel] = [(ssn, serial) for ssn, serial in known if serial in self._lone]

    def _run(self, serial: Serial) -> Lone | None:
        at = bisect_right(self._order, serial)
        run = self._lone[self._order[at - 1]] if at else None
        return run if run is not None and serial < run.serial + run.count else None

    def inset(self, serial: Serial) -> Finished | None:
        """A set by its serial."""
        run = None if serial in self._sets else self._run(serial)
        return self._sets.get(serial) if run is None else _one(run, serial)

    def lone_of(self, channel: ChannelName, ssn: Ssn) -> list[Serial]:
        """The sets of one event that were this event."""
        known = self._by_event.get(channel, [])
        at = bisect_right(known, ssn, key=lambda begin: begin[0])
        run = self._lone[known[at - 1][1]] if at else None
        return [Serial(run.serial + ssn - run.ssn)] if run is not None and ssn < run.ssn + run.count else []

    def all(self) -> Iterator[tuple[Serial, Finished]]:
        """Every set."""
        yield from self._sets.items()
        for run in self._lone.values():
            for serial in range(run.serial, run.serial + run.count):
                yield Serial(serial), _one(run, Serial(serial))


def _one(run: Lone, serial: Serial) -> Finished:
    member = run.member(serial)
    return Finished(serial, own_id(member), (member,))
