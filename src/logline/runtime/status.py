"""The status of a run, for users: its phase, and a line per operator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from logline.engine.clock import marks_key
from logline.engine.codec import watermark_instant
from logline.engine.events import Position
from logline.engine.image import Outline, SetCounts
from logline.engine.spec import InstanceSpec, again_channel, write_port
from logline.graph.instances import Channel
from logline.names import ERRORS, LATE, ChannelName, Serial, Ssn
from logline.store.seam import Reader, Store

Phase = Literal["running", "draining", "stopping", "stopped", "caught up", "finished", "failed"]
AT_WORK: frozenset[Phase] = frozenset({"running", "draining", "stopping"})
"""Phases of a run that is not over."""


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """How far one target of an operator is. A write is one event."""

    written: int = 0
    """Writes that are known to be done."""
    pending: int = 0
    """Writes that are logged and not known to be done."""


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """How far one operator is. Events are batches of records."""

    taken: int = 0
    """Events taken in."""
    out: int = 0
    """Events put out, over all ports."""
    lag: int = 0
    """Events that its senders have logged and it has not taken. The end of a stream is no event."""
    open_sets: int = 0
    checkpoints: int = 0
    """Open sets that have a checkpoint."""
    replay: int = 0
    """Events that a recovery would take in again: members of open sets that no checkpoint covers."""
    extent: int = 0
    """Records of open sets that a recovery would read, with `policy="eventual"`: checkpoints, and records of members
    that no checkpoint covers."""
    in_flight: int = 0
    """Sets in generation."""
    calls: int = 0
    """Calls that `generate` has made and that are not answered."""
    restarts: int = 0
    errors: int = 0
    """Events on its port `errors` that wait to be retried or dropped."""
    errors_retried: int = 0
    """Events there that are being retried: not settled yet, and nobody has to do anything about them."""
    errors_ever: int = 0
    """Events that were ever put there."""
    late: int = 0
    """Events on its port `late`: the rows of a window operator that came when their window was out, or without a
    time."""
    keys: int = 0
    """Keys that had a state when its life last said so, of an operator with a state per key."""
    counters: Mapping[str, int | float] = field(default_factory=dict)
    """What the operator counted with `ctx.count`."""
    targets: Mapping[str, TargetStatus] = field(default_factory=dict)
    """By the name of the target: what is written, and what is not yet."""
    rows: int = 0
    """Rows of the events in generation, where each row has a call of its own (`map_rows`)."""
    rows_answered: int = 0
    """How many of these rows have their answer."""
    watermark: str = ""
    """How far event time is on its output ports, in UTC; empty if they have none, and before the first time."""
    waits: str = ""
    """What a drain or a stop waits for here; empty if there is nothing, and while the run goes on."""
    pid: int | None = None
    """The process in which it lives; None if it has no life."""
    host: str = ""
    """The machine of that process."""

    @property
    def written(self) -> int:
        """Writes that are known to be done, over all targets."""
        return sum(target.written for target in self.targets.values())

    @property
    def pending(self) -> int:
        """Writes that are logged and not known to be done, over all targets."""
        return sum(target.pending for target in self.targets.values())

    @property
    def progress(self) -> str:
        """How many rows of the events in generation are answered; empty if rows are not asked for one by one.

        >>> OperatorStatus(in_flight=1, rows=100, rows_answered=37).progress
        '37 of 100 rows'
        """
        return f"{self.rows_answered:,} of {self.rows:,} rows" if self.rows else ""

    def without_life(self) -> OperatorStatus:
        """The same of an operator that does not live: what only a life has is gone."""
        return replace(self, in_flight=0, rows=0, rows_answered=0, waits="", pid=None, host="")


@dataclass(frozen=True, slots=True)
class Status:
    """A run at one moment; `str()` of it is a table in text. `Run` has an example."""

    phase: Phase
    operators: Mapping[str, OperatorStatus]
    error: str = ""
    ui: str = ""
    """Where Spark shows the run: the address of its UI. Empty with other engines, or if the session has no UI."""
    ephemeral: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Operators that log nothing, and in which operators they run."""

    @property
    def open_errors(self) -> int:
        """Events on ports `errors` that wait to be retried or dropped."""
        return sum(operator.errors for operator in self.operators.values())

    @property
    def summary(self) -> str:
        """The phase in words.

        >>> Status("finished", {"enrich": OperatorStatus(errors=3)}).summary
        'finished, 3 errors open'
        >>> Status("stopping", {"enrich": OperatorStatus(in_flight=1, calls=5)}).summary
        'stopping (5 calls in flight)'
        """
        text = self.phase + (self._under_way() if self.phase == "stopping" else "")
        return f"{text}, {_counted(self.open_errors, 'error')} open" if self.open_errors else text

    def _under_way(self) -> str:
        """What a stop waits for."""
        if calls := sum(operator.calls for operator in self.operators.values()):
            return f" ({_counted(calls, 'call')} in flight)"
        sets = sum(operator.in_flight for operator in self.operators.values())
        return f" ({_counted(sets, 'input set')} in generation)" if sets else ""

    @property
    def remarks(self) -> list[str]:
        """What the numbers of a table do not say, a line each: rows within events, late rows, errors that are being
        retried, and what a drain waits for.

        >>> Status("draining", {"store": OperatorStatus(waits="2 writes to 'out' are not done")}).remarks
        ["store waits: 2 writes to 'out' are not done"]
        """
        return all_remarks(self.operators, self.ephemeral)

    def table(self) -> pa.Table:
        """The numbers as a table, one row per operator."""
        columns = ["taken", "out", "lag", "open_sets", "in_flight", "rows_answered", "rows", "written", "pending"]
        columns += ["restarts", "errors", "errors_retried", "late", "watermark", "host"]
        data: dict[str, object] = {"operator": list(self.operators)}
        data |= {c: [getattr(o, c) for o in self.operators.values()] for c in columns}
        data["pid"] = pa.array([o.pid for o in self.operators.values()], pa.int64())
        return pa.table(data)

    def __str__(self) -> str:
        head = f"{'operator':<20} {'in':>8} {'out':>8} {'lag':>6} {'open':>6} {'flight':>6} {'written':>8} "
        head += f"{'pending':>8} {'restarts':>8} {'errors':>6}"
        lines = [f"pipeline {self.summary}" + (f": {self.error}" if self.error else "")]
        lines += [f"in Spark's UI: {self.ui}"] if self.ui else []
        lines.append(head)
        for name, o in self.operators.items():
            lines.append(
                f"{name:<20} {o.taken:>8} {o.out:>8} {o.lag:>6} {o.open_sets:>6} "
                f"{o.in_flight:>6} {o.written:>8} {o.pending:>8} {o.restarts:>8} {o.errors:>6}"
            )
        return "\n".join([*lines, *self.remarks])


def all_remarks(operators: Mapping[str, OperatorStatus], ephemeral: Mapping[str, tuple[str, ...]]) -> list[str]:
    """What a table of these operators does not say; see `Status.remarks`.

    >>> all_remarks({}, {"parse": ("hourly",)})
    ['parse is ephemeral: it runs in hourly']
    """
    rides = [f"{name} is ephemeral: it runs in {', '.join(where)}" for name, where in ephemeral.items()]
    return rides + _remarks(operators)


def _remarks(operators: Mapping[str, OperatorStatus]) -> list[str]:
    found = [f"{name}: {one.progress} answered" for name, one in operators.items() if one.progress]
    for name, one in operators.items():
        if len(one.targets) > 1:
            found += [f"{name}.{t}: {s.written:,} written, {s.pending:,} pending" for t, s in one.targets.items()]
    found += [f"{name}: {_recovery(one)}" for name, one in operators.items() if one.checkpoints]
    found += [f"{name}: event time is {one.watermark}" for name, one in operators.items() if one.watermark]
    found += [f"{name}: {_late(name, one)}" for name, one in operators.items() if one.late]
    found += [
        f"{name}: {_counted(one.errors_retried, 'error')} being retried"
        for name, one in operators.items()
        if one.errors_retried
    ]
    return found + [f"{name} waits: {one.waits}" for name, one in operators.items() if one.waits]


def _recovery(one: OperatorStatus) -> str:
    """
    >>> _recovery(OperatorStatus(open_sets=3, checkpoints=2, replay=17, extent=6))
    'recovery would read 6 records and take in 17 events again; 2 of 3 open sets have a checkpoint'
    """
    again = f"recovery would read {_counted(one.extent, 'record')} and take in {_counted(one.replay, 'event')} again"
    return f"{again}; {one.checkpoints} of {one.open_sets} open sets have a checkpoint"


def shown_time(watermark: int | None) -> str:
    """A watermark for people.

    >>> shown_time(1_704_070_800_000_000)
    '2024-01-01 01:00:00+00:00'
    """
    return "" if watermark is None else str(watermark_instant(watermark))


def _late(name: str, one: OperatorStatus) -> str:
    """Events are counted by the log, rows by the lives that this run has had.

    >>> _late("hourly", OperatorStatus(late=2, counters={"late": 17, "no_time": 1}))
    '2 events on hourly.late (in this run 17 rows too late, 1 row without a time)'
    """
    counted = [(one.counters.get("late"), "too late"), (one.counters.get("no_time"), "without a time")]
    rows = ", ".join(f"{_counted(int(n), 'row')} {why}" for n, why in counted if n)
    return f"{_counted(one.late, 'event')} on {name}.{LATE}" + (f" (in this run {rows})" if rows else "")


def lag_behind(
    store: Store,
    channels: Iterable[Channel],
    positions: Mapping[ChannelName, Position],
    clock: Mapping[ChannelName, int] | None = None,
) -> int:
    """Events that the senders of these channels have logged and that were not taken. Marks are no events: nobody has
    to work on an end. `clock`: as it is logged; it counts the watermarks that were taken."""
    lag = 0
    for channel in channels:
        at = positions.get(channel.name, Position())
        taken = at.ssn - at.marks - (clock or {}).get(marks_key(channel.name), 0)
        lag += max(store.read(channel.sender).put_out(channel.out) - taken, 0)
    return lag


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s'[: count != 1]}"


def errors_retried(reader: Reader, spec: InstanceSpec, outline: Outline) -> set[Ssn]:
    """The errors that are being retried, as `on_their_way` has them of an image. Only an operator that takes each
    event by itself has sets of rejected rows, and it has few sets."""
    if not outline.unsettled_errors:
        return set()
    rows = reader.needs(again_channel(spec.name)).members if spec.stateless else ()
    return {*outline.retrying, *rows}


def _extent(reader: Reader, spec: InstanceSpec, counts: SetCounts, outline: Outline) -> int:
    """Records that a recovery would read: checkpoints, and records of members. Parked sets are not rebuilt."""
    if spec.policy != "eventual" and not counts.checkpoints:
        return 0
    records = reader.records()
    parked: Collection[Serial] = ()
    if outline.unsettled_errors:
        parked = {serial for serial, opened in reader.image().sets.items() if opened.cause == "parked"}
    return counts.checkpoints + sum(count for serial, count in records.items() if serial not in parked)


def logged_status(store: Store, spec: InstanceSpec, live: OperatorStatus) -> OperatorStatus:
    """What the log says of an instance that has no life, added to what `live` holds."""
    reader = store.read(spec.name)
    outline, counts = reader.outline(), reader.count_sets()
    last = {port: outline.put_out(port) for port in spec.ports}
    retried = errors_retried(reader, spec, outline)
    targets = {}
    for target in spec.targets:
        # A life knows of a write before its journal does (R3).
        done = max(outline.written.get(target, 0), live.targets.get(str(target), TargetStatus()).written)
        targets[str(target)] = TargetStatus(done, max(outline.head(write_port(target)).last - done, 0))
    return replace(
        live,
        taken=max(sum(outline.taken(channel.name) for channel in spec.inputs) - spec.passed, 0),
        out=sum(last.values()),
        lag=lag_behind(store, spec.inputs, outline.positions, outline.clock),
        watermark=shown_time(outline.port_time),
        open_sets=counts.sets,
        checkpoints=counts.checkpoints,
        replay=counts.replay,
        extent=_extent(reader, spec, counts, outline),
        errors=outline.unsettled_errors - len(retried),
        errors_retried=len(retried),
        errors_ever=last.get(ERRORS, 0),
        late=last.get(LATE, 0),
        targets=targets,
    )
