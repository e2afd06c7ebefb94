"""Why a row is not there: what became of the rows of a source that meet a condition, on their way to a port.

    orders:17 row 3  ->  sold:17 row 2  ->  hourly: in the open set of ten o'clock

Events are followed in the order of the stream, each with those of its rows that came of a row asked for. At every
operator that is sent the event (`crossing.py`), each row goes on into rows of what was made of it (`rows.py`), or it
ends there with a verdict (`verdicts.py`). Where only the event's way is known, all of its rows go on, with the level
`event`; the condition itself then chooses among them wherever the columns that it names are there.

Nothing of the pipeline's code is needed: a filter's condition is not in the log, but what it took and put out is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any

import pyarrow as pa

from logline.errors import BadName, LogError
from logline.graph.instances import Channel
from logline.graph.record import schema_of
from logline.lineage import say
from logline.lineage.crossing import Receiver, ports_towards, rows_of
from logline.lineage.passing import GoesOn, Passing, Question
from logline.lineage.say import Target
from logline.lineage.sql import database, hits, matching
from logline.lineage.verdicts import ORDER, Level, SourceRow, Verdict, explained_table
from logline.lineage.view import Event, LogView, Port, port_text
from logline.names import ERRORS, OUT, Called, parse_port

MOST = 10_000
"""Rows that are followed. More than a person looks at, and each costs memory."""

Asked = Mapping[int, Level]
"""Rows that were asked for, by number, with how exactly they were followed."""


def explain(view: LogView, port: str, where: str, source: str | None) -> pa.Table:
    """Why rows of the sources that fit `where` are not on a port: the table that `Log.explain` returns."""
    target = _target(view, port)
    towards = ports_towards(view, *target)
    following = _Following(view, target, towards, where)
    about: list[tuple[SourceRow | Port, Verdict]] = []
    for one in _sources(view, target, towards, source, where):
        found = following.begin(one)
        about += ((one, verdict) for verdict in say.about_source(view, one, target, where, found))
    return explained_table([*following.run(), *about])


def _target(view: LogView, text: str) -> Target:
    """The port that is asked about; a sink stands for what it writes."""
    instance, port = parse_port(text)
    if instance in view.instances and view.operator(instance).kind == "sink" and port == OUT:
        return instance, None
    return view.port(text)


def _sources(view: LogView, target: Target, towards: Collection[Port], source: str | None, where: str) -> list[Port]:
    if source is not None:
        port = view.port(source)
        if port not in towards or port[1] == ERRORS:
            there = ", ".join(sorted(port_text(one) for one in towards if one[1] != ERRORS))
            raise BadName(
                f"rows can't be followed from {source!r} to {say.target_text(target)!r}; from {there} they can"
            )
        return [port]
    found = [port for port in towards if view.operator(port[0]).kind == "source"]
    able, refused = [], []
    for port in sorted(found, key=lambda port: view.rank[port[0]]):
        try:
            matching(schema_of(view.record, *port).empty_table(), where, port)
            able.append(port)
        except LogError as error:  # a source without the columns has no such rows
            refused.append(f"{port_text(port)}: {error}")
    if not able and refused:
        raise LogError(f"no source has the columns of the condition ({'; '.join(refused)}): name a port with source=")
    return able


class _Following:
    """The rows that were asked for, and how far they have come."""

    def __init__(self, view: LogView, target: Target, towards: Collection[Port], where: str) -> None:
        self._view = view
        self._target = target
        self._towards = towards
        self._where = where
        self._asked: list[SourceRow] = []
        self._verdicts: list[dict[Verdict, None]] = []
        self._at: dict[Event, dict[int, Asked]] = {}
        self._todo: list[tuple[tuple[int, bool, int], Event]] = []
        self._receivers: dict[tuple[Called, bool], Receiver] = {}
        self._db: Any = None

    def begin(self, port: Port) -> int:
        """Adds the rows of a source that meet the condition; how many there are."""
        before = len(self._asked)
        for output, rows in hits(self._view, port, self._where):
            event = (*port, output.ssn)
            records = output.payload.take(pa.array(rows, pa.int64())).to_pylist()
            for row, record in zip(rows, records, strict=True):
                self._go_on(event, row, {len(self._asked): "row"})
                self._asked.append(SourceRow(event, row, record))
                self._verdicts.append({})
            if len(self._asked) > MOST:
                raise LogError(f"more than {MOST:,} rows have {self._where}: ask for fewer of them")
        return len(self._asked) - before

    def run(self) -> Iterator[tuple[SourceRow, Verdict]]:
        """What became of each row: one verdict for each way that it went, the best first."""
        with database() as self._db:
            while self._todo:
                event = heappop(self._todo)[1]
                self._pass(event, self._at[event])
        for asked, verdicts in zip(self._asked, self._verdicts, strict=True):
            there = any(verdict.what == "arrived" for verdict in verdicts)
            # Of a whole event some rows always go another way: that says nothing of a row that is there.
            shown = [v for v in verdicts if not there or v.what == "arrived" or v.level == "row"]
            yield from ((asked, verdict) for verdict in sorted(shown, key=lambda v: ORDER.index(v.what)))

    def _go_on(self, event: Event, row: int, asked: Asked) -> None:
        """These rows have come to be in a row of this event, or may have."""
        if event not in self._at:
            instance, port, ssn = event
            # Senders before receivers; what an instance rejected before what came of it when it was retried.
            heappush(self._todo, ((self._view.rank[instance], port != ERRORS, ssn), event))
        known = self._at.setdefault(event, {}).setdefault(row, {})
        for number, level in asked.items():
            known[number] = level if known.get(number) != "row" else "row"  # type: ignore[index]

    def _end(self, asked: Asked, verdict: Verdict) -> None:
        for number, level in asked.items():
            self._verdicts[number][verdict if level == "row" else verdict._replace(level="event")] = None

    def _pass(self, event: Event, rows: Mapping[int, Asked]) -> None:
        """The event goes to those of its receivers that are on a way to the target."""
        port = event[:2]
        if port == self._target:
            for number, level in ((number, level) for asked in rows.values() for number, level in asked.items()):
                self._verdicts[number][say.arrived(event, level)] = None
            return
        for channel in self._view.receivers(port, event[2]):
            if self._is_on_the_way(channel):
                # A receiver of port `errors` is sent the error; which row of it came of which, nobody knows.
                self._through(channel, event, rows if port[1] != ERRORS else {0: _level_of_event(rows)})
        again = self._view.again(event[0]) if port[1] == ERRORS else None
        if again is not None and self._receiver(event[0]).sets(again.name, event[2]):
            self._through(again, event, rows)

    def _is_on_the_way(self, channel: Channel) -> bool:
        receiver = self._view.receiver(channel)
        outputs = self._view.operator(receiver).outputs
        return receiver == self._target[0] or any((receiver, out) in self._towards for out in outputs)

    def _through(self, channel: Channel, event: Event, rows: Mapping[int, Asked]) -> None:
        receiver = self._receiver(self._view.receiver(channel), opaque=channel.name in self._view.changed)
        question = Question(self._target, self._towards, self._where, self._meets, self._db)
        passing = Passing(question, receiver, channel, event, rows_of(self._view, event), rows.keys())
        for outcome in passing.outcomes():
            asked = rows[outcome.row]
            if isinstance(outcome, GoesOn):
                exact = outcome.level == "row"
                for row in outcome.rows:
                    self._go_on(outcome.event, row, asked if exact else dict.fromkeys(asked, "event"))
            else:
                self._end(asked, outcome.verdict)

    def _receiver(self, instance: Called, *, opaque: bool = False) -> Receiver:
        found = self._receivers.get((instance, opaque))
        if found is None:
            found = self._receivers[instance, opaque] = Receiver(self._view, instance, opaque)
        return found

    def _meets(self, table: pa.Table, port: Port) -> Collection[int] | None:
        try:
            return matching(table, self._where, port)
        except LogError:  # it has not the columns
            return None


def _level_of_event(rows: Mapping[int, Asked]) -> Asked:
    return {number: "event" for asked in rows.values() for number in asked}
