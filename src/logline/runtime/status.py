"""The status of a run, for users: its phase, and a line per operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa

from logline.engine.events import Position
from logline.engine.spec import InstanceSpec
from logline.names import ERRORS
from logline.store.seam import Store

Phase = Literal["running", "draining", "stopped", "caught up", "finished", "failed"]


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """How far one operator is. Events are batches of records."""

    taken: int = 0
    """Events taken in."""
    out: int = 0
    """Events put out, over all ports."""
    lag: int = 0
    """Events that its senders have logged and it has not taken."""
    open_sets: int = 0
    in_flight: int = 0
    """Sets in generation."""
    restarts: int = 0
    errors: int = 0
    """Events on its port `errors` that wait to be retried or dropped."""
    errors_ever: int = 0
    """Events that were ever put there."""
    counters: Mapping[str, int | float] = field(default_factory=dict)
    """What the operator counted with `ctx.count`."""


@dataclass(frozen=True, slots=True)
class Status:
    """A run at one moment; `str()` of it is a table in text. `Run` has an example."""

    phase: Phase
    operators: Mapping[str, OperatorStatus]
    error: str = ""
    ui: str = ""
    """Where Spark shows the run: the address of its UI. Empty with other engines, or if the session has no UI."""

    @property
    def open_errors(self) -> int:
        """Events on ports `errors` that wait to be retried or dropped."""
        return sum(operator.errors for operator in self.operators.values())

    @property
    def summary(self) -> str:
        """The phase in words.

        >>> Status("finished", {"enrich": OperatorStatus(errors=3)}).summary
        'finished, 3 errors open'
        """
        count = self.open_errors
        return f"{self.phase}, {count} error{'s'[: count != 1]} open" if count else self.phase

    def table(self) -> pa.Table:
        """The numbers as a table, one row per operator."""
        columns = ("taken", "out", "lag", "open_sets", "in_flight", "restarts", "errors")
        data: dict[str, list[object]] = {"operator": list(self.operators)}
        data |= {c: [getattr(o, c) for o in self.operators.values()] for c in columns}
        return pa.table(data)

    def __str__(self) -> str:
        head = f"{'operator':<20} {'in':>8} {'out':>8} {'lag':>6} {'open':>6} {'flight':>6} {'restarts':>8} "
        head += f"{'errors':>6}"
        lines = [f"pipeline {self.summary}" + (f": {self.error}" if self.error else "")]
        lines += [f"in Spark's UI: {self.ui}"] if self.ui else []
        lines.append(head)
        for name, o in self.operators.items():
            lines.append(
                f"{name:<20} {o.taken:>8} {o.out:>8} {o.lag:>6} {o.open_sets:>6} "
                f"{o.in_flight:>6} {o.restarts:>8} {o.errors:>6}"
            )
        return "\n".join(lines)


def logged_status(store: Store, spec: InstanceSpec, live: OperatorStatus) -> OperatorStatus:
    """What the log says of an instance that has no life, added to what `live` holds."""
    image = store.read(spec.name).image()
    taken = lag = 0
    for channel in spec.inputs:
        at = image.positions.get(channel.name, Position())
        taken += at.ssn - at.marks
        lag += max(store.read(channel.sender).head(channel.out).last - at.ssn, 0)
    last = {port: image.head(port).last - image.marks for port in spec.ports}
    return replace(
        live,
        taken=taken,
        out=sum(last.values()),
        lag=lag,
        open_sets=sum(opened.cause != "parked" for opened in image.sets.values()),
        errors=image.open_errors,
        errors_ever=last.get(ERRORS, 0),
    )
