"""Channels by which events come through ephemeral operators: each is a function on the way (R24).

The sender's journal has the event, and the receiver sees what the functions make of it, under the event's own SSN.
What comes of an event does not depend on when it is read, nor how often: the operators are deterministic, so that
the members of open sets are the same when a later life reads them (R5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from logline.engine.events import Output
from logline.engine.user_errors import USER_ERRORS, UserError, failure_of
from logline.errors import GraphError
from logline.graph.instances import Channel as Wire
from logline.graph.model import Node
from logline.graph.operator import BatchOperator, Reject, Write
from logline.names import PortName, Ssn, event_name
from logline.runtime.lives.log_life import EventChannel
from logline.runtime.lives.payloads import Payloads
from logline.store.channels import Gone


class Ride:
    """One ephemeral operator on the way of a channel."""

    def __init__(self, node: Node, port: PortName, payloads: Payloads) -> None:
        assert isinstance(node.op, BatchOperator)
        self.operator = node.name
        self._op = node.op
        self._port = port
        self._payloads = payloads

    def __call__(self, payload: Any) -> Any:
        """What it makes of one event, as one payload; None for nothing."""
        found: list[Any] = []
        for made in self._op.each(payload):
            if isinstance(made, Write | Reject):
                raise GraphError(
                    f"operator {self.operator!r} is ephemeral and yielded a {type(made).__name__}: that would have "
                    "to be logged; leave policy='ephemeral' out"
                )
            produced = self._payloads.made(self.operator, made, ())
            if produced is not None and produced.port == self._port:
                found.append(produced.payload)
        if len(found) < 2:
            return found[0] if found else None
        return self._payloads.joined(found)


class Riding:
    """A channel with ephemeral operators on the way."""

    def __init__(self, channel: EventChannel, wire: Wire, rides: Sequence[Ride]) -> None:
        self._channel = channel
        self._wire = wire
        self._rides = rides

    def events(self, after: Ssn, *, limit: int, max_bytes: int) -> Sequence[Output] | Gone:
        """As `Channel.events`: the same SSNs, with what comes of the events."""
        found = self._channel.events(after, limit=limit, max_bytes=max_bytes)
        if isinstance(found, Gone):
            return found
        made: list[Output] = []
        try:
            made.extend(map(self._through, found))
        except UserError:
            if not made:
                raise  # what came before it is taken first: it is the next one that fails
        return made

    def pick(self, ssns: Sequence[Ssn]) -> Sequence[Output] | Gone:
        """Exactly these events, with what comes of them."""
        found = self._channel.pick(ssns)
        return found if isinstance(found, Gone) else [self._through(output) for output in found]

    def _through(self, output: Output) -> Output:
        """The bytes stay those of the sender's event: it is what the receiver has taken of the port (R13)."""
        if output.mark:
            return output
        payload = output.payload
        for ride in self._rides:
            try:
                payload = ride(payload)
            except USER_ERRORS as error:
                wire = self._wire
                failure = failure_of(error)
                said = f"in operator {ride.operator!r}, which is ephemeral and runs here: {failure.message}"
                name = event_name(wire.called or wire.sender, wire.out, output.ssn)
                raise UserError(replace(failure, message=said), name) from error
            if payload is None:
                return output._replace(kind="nothing", payload=None, rows=0)
        return output._replace(payload=payload, rows=_rows(payload, output.rows))


def _rows(payload: Any, known: int) -> int:
    return payload.num_rows if isinstance(payload, pa.RecordBatch) else known
