"""Where events go on when the operators between them have changed (R14).

An operator that stays has taken events of its senders up to a position. A new connection goes on where a former one
stopped, so that every event takes the old way or the new one, and none takes both:

    before    orders ----------> hourly -> store        hourly has taken orders up to 17
    after     orders -> clean -> hourly -> store        clean begins after 17

- A connection that *replaces* former ones begins where those stopped: they come from the same port, and lead to the
  same operator that stays, with nothing else that stays in between. Operators that change places replace nothing.
- A connection to operators that are all new is an end branch: it begins with the first event that the sender still
  has. So is everything that is made anew.
- Any other connection to an operator that stays begins with what comes from now on.

What was removed must not hold anything that an operator that stays would never get: a set that is not done, or events
that nobody takes any more. `plan` says which there are; `LogContents` knows what the log holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from logline.graph.model import Wire
from logline.graph.record import Column, GraphRecord, ids_in, riders_of
from logline.names import OperatorId, OperatorName


class Beginning(NamedTuple):
    """Where a new connection from an operator that stays begins."""

    wire: Wire
    how: Literal["first", "now", "after"]
    """With the first event that the sender still has; with what comes from now on; or after former connections."""
    after: tuple[Wire, ...] = ()


class Flow(Protocol):
    """What the log holds of connections and operators, as far as it decides about a rewiring."""

    def untaken(self, wire: Wire) -> int:
        """How many events of the sender the receiver has not taken."""

    def position(self, wire: Wire) -> int:
        """The last event of the sender that the receiver has taken."""

    def sets(self, operator: OperatorId) -> Sequence[str]:
        """The ids of the input sets that are not generated for good: open, due, or waiting to be retried."""

    def errors(self, operator: OperatorId) -> int:
        """How many events on its port `errors` wait to be retried or dropped."""

    def sets_with(self, wire: Wire) -> Sequence[str]:
        """Those of the receiver with events that came by this connection."""


@dataclass
class Rewiring:
    """How the log goes on with other connections."""

    beginnings: list[Beginning] = field(default_factory=list)
    closed: list[Wire] = field(default_factory=list)
    """Connections that are gone. What was taken by them stays taken."""
    refused: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)


def wires_of(record: GraphRecord) -> dict[Wire, None]:
    """The connections of a recorded graph."""
    ids = ids_in(record)
    return {Wire(ids[c.sender], c.out, ids[c.receiver], c.port): None for c in record.connections}


def plan(old: GraphRecord, new: GraphRecord, flow: Flow | None) -> Rewiring:
    """How to go from the connections of one graph to those of another. Without `flow` the worst is assumed."""
    return _Planner(old, new, flow).plan()


class _Planner:
    def __init__(self, old: GraphRecord, new: GraphRecord, flow: Flow | None) -> None:
        self.old, self.new = old, new
        self.before, self.now = wires_of(old), wires_of(new)
        self.names: dict[OperatorId, OperatorName] = {
            id_: name for record in (old, new) for name, id_ in ids_in(record).items()
        }
        there, here = set(ids_in(old).values()), set(ids_in(new).values())
        self.staying, self.removed, self.added = there & here, there - here, here - there
        self.flow = flow
        self.found = Rewiring(closed=[wire for wire in self.before if wire not in self.now])

    def plan(self) -> Rewiring:
        for wire in self.now:
            if wire not in self.before and wire.sender in self.staying:
                self.found.beginnings.append(self._begin(wire))
        replaced = {wire for beginning in self.found.beginnings for wire in beginning.after}
        for wire in self.found.closed:
            self._check_closed(wire, wire in replaced)
        for operator in self.before_leading(self.removed):
            self._check_removed(operator)
        kept = set(ids_in(self.new))
        for operator in sorted(one for one in self.removed if self.names[one] not in kept):
            self._check_errors(operator)
        return self.found

    def before_leading(self, operators: Iterable[OperatorId]) -> list[OperatorId]:
        """Those of the old graph that lead to an operator that stays, in a fixed order."""
        return sorted(one for one in operators if self._leads_to(self.before, one))

    def _leads_to(self, wires: Collection[Wire], operator: OperatorId) -> set[OperatorId]:
        """The operators that stay and get something of this one, itself among them if it stays."""
        found, todo = {operator}, [operator]
        while todo:
            at = todo.pop()
            new = {wire.receiver for wire in wires if wire.sender == at} - found
            found |= new
            todo += new
        return found & self.staying

    def _first(self, wires: Collection[Wire], operator: OperatorId) -> set[OperatorId]:
        """The operators that stay and to which this one leads by way of such alone that do not."""
        found, todo = {operator}, [operator]
        while todo:
            at = todo.pop()
            new = {wire.receiver for wire in wires if wire.sender == at and at not in self.staying} - found
            found |= new
            todo += new
        return found & self.staying

    def _begin(self, wire: Wire) -> Beginning:
        if not self._leads_to(self.now, wire.receiver):
            return Beginning(wire, "first")
        reached = self._first(self.now, wire.receiver)
        after = tuple(
            former
            for former in self.found.closed
            if (former.sender, former.out) == (wire.sender, wire.out)
            and self._first(self.before, former.receiver) & reached
        )
        if not after:
            if wire.receiver in self.staying:
                self.found.accepted.append(f"{self._text(wire)} is new: it begins with what comes from now on")
            return Beginning(wire, "now")
        if self.flow is not None and len({self.flow.position(former) for former in after}) > 1:
            ways = " and ".join(self._text(former) for former in after)
            self.found.refused.append(
                f"{self._text(wire)} takes the place of {ways}, which have taken different events: run the pipeline "
                "as it was until all is taken (stop it with drain), then change it"
            )
        return Beginning(wire, "after", after)

    def _check_closed(self, wire: Wire, replaced: bool) -> None:
        """What came by a connection that is gone and was not taken must come by another one."""
        if wire.receiver in self.staying:
            self._check_members(wire)
        if replaced and wire.sender in self.staying:
            return
        if not self._leads_to(self.before, wire.receiver):
            return  # an end branch: what it had not finished is not finished
        untaken = 1 if self.flow is None else self.flow.untaken(wire)
        if untaken:
            count = "events" if self.flow is None else f"{untaken} event{'s'[: untaken != 1]}"
            self.found.refused.append(
                f"{self._text(wire)} was removed, and {count} of {self.names[wire.sender]}.{wire.out} that "
                f"{self.names[wire.receiver]!r} has not taken would never get there: run the pipeline as it was "
                "until they are taken (stop it with drain), then change it" + self._if_renamed(wire.sender)
            )

    def _check_members(self, wire: Wire) -> None:
        """Open sets keep what came by it, and are rebuilt from that: it must look like what comes now."""
        sets = ["(unknown)"] if self.flow is None else self.flow.sets_with(wire)
        was = self._columns(self.old, wire)
        now = [
            self._columns(self.new, other)
            for other in self.now
            if (other.receiver, other.port) == (wire.receiver, wire.port)
        ]
        if sets and was not in now:
            name = self.names[wire.receiver]
            self.found.refused.append(
                f"{self._text(wire)} was removed, and {name!r} has events of it in sets that are not done: "
                f"{some(sets)}; what comes by its port {wire.port!r} now has other columns. Run the pipeline as it "
                f"was until they are done (with --close if they are windows), or make {name!r} anew, with all that "
                f'follows it: fresh=["{name}"] (--fresh {name})'
            )

    def _columns(self, record: GraphRecord, wire: Wire) -> tuple[Column, ...]:
        """Of what comes by a connection: as the last ephemeral operator on it makes it (R24)."""
        riders = riders_of(record).get(wire)
        if riders:
            return riders[-1].columns
        return record.operators[self._name(record, wire.sender)].outputs[wire.out]

    @staticmethod
    def _name(record: GraphRecord, operator: OperatorId) -> OperatorName:
        return next(name for name, id_ in ids_in(record).items() if id_ == operator)

    def _check_removed(self, operator: OperatorId) -> None:
        sets = ["(unknown)"] if self.flow is None else self.flow.sets(operator)
        if sets:
            self.found.refused.append(
                f"operator {self.names[operator]!r} was removed, and what stays would never get what comes of its "
                f"input sets that are not done: {some(sets)}; run the pipeline as it was until they are (with "
                "--close if they are windows, and see `logline errors LOG` for those set aside), then change it"
                + self._if_renamed(operator)
            )

    def _if_renamed(self, operator: OperatorId) -> str:
        if operator not in self.removed or not self.added:
            return ""
        return f'. If it is called otherwise now, say was="{self.names[operator]}" where it is made'

    def _check_errors(self, operator: OperatorId) -> None:
        waiting = 0 if self.flow is None else self.flow.errors(operator)
        if waiting:
            name = self.names[operator]
            self.found.refused.append(
                f"operator {name!r} was removed, and {waiting} of its errors wait{'s'[: waiting == 1]}: nobody could "
                f"retry them any more. Retry or drop them first: `logline errors LOG {name}`"
            )

    def _text(self, wire: Wire) -> str:
        return f"{self.names[wire.sender]}.{wire.out}>{self.names[wire.receiver]}.{wire.port}"


def some(names: Sequence[str], shown: int = 5) -> str:
    """The first few of what may be thousands."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")
