"""Event time in a simulated run (R30): what ports have said of it is never taken back, and nobody makes it a lie.

A record is (id, time), and keeps its id from operator to operator. One that its source put out behind the source's
watermark is late, wherever it comes; so are rows of errors that somebody retried. Any other record that is behind
what its port has said before is a lie of the operator that put it out.
"""

from __future__ import annotations

from collections.abc import Mapping

from logline.engine.clock import SHOWN
from logline.engine.events import IDLE_HEADER, WATERMARK_HEADER, Output, Position
from logline.engine.image import Image
from logline.engine.spec import InstanceSpec
from logline.names import ERRORS, ChannelName, InstanceName, PortName, Ssn, sender_of
from logline.testing.sim.outside import Violation

Ghost = Mapping[tuple[InstanceName, PortName], Mapping[Ssn, Output]]


class TimeChecks:
    """Looks at every commit."""

    def __init__(self, ghost: Ghost) -> None:
        self._ghost = ghost
        self._seen: dict[tuple[InstanceName, PortName], tuple[Ssn, int | None]] = {}
        """By port: up to which event it was looked at, and what it had said of time then."""
        self._late: set[str] = set()
        """Ids of records that were late before, or on a port `errors`."""
        self.promised = True
        """Whether records that are not late at their source are never late. An idle channel is not waited for, nor is
        one that had ended, and one that comes later was not."""

    def after_commit(self, spec: InstanceSpec, image: Image) -> None:
        """Looks at what is new on the ports of an instance."""
        for port in spec.ports:
            self._look(spec, port)
        shown = image.clock.get(SHOWN)
        for port in spec.timed_out:
            said = self._seen[spec.name, port][1]
            if said is not None and (shown is None or shown < said):
                raise Violation(f"WATERMARK {spec.name}.{port} has said {said}, the log knows of {shown}")

    def _look(self, spec: InstanceSpec, port: PortName) -> None:
        rows = self._ghost.get((spec.name, port), {})
        upto, said = self._seen.get((spec.name, port), (Ssn(0), None))
        for ssn in range(upto + 1, len(rows) + 1):
            row = rows[Ssn(ssn)]
            if row.kind == "reopened":
                self.promised = False
            if row.kind == "event" and port == ERRORS:
                self._late.update(record[0] for record in row.payload)
            elif row.kind == "event" and said is not None:
                self._look_at_records(spec, port, row, said)
            said = self._said(spec, port, row, said)
        self._seen[spec.name, port] = Ssn(len(rows)), said

    def _look_at_records(self, spec: InstanceSpec, port: PortName, row: Output, said: int) -> None:
        for name, time in row.payload:
            if time < said and not spec.inputs:
                self._late.add(name)
            elif time < said and self.promised and name not in self._late:
                raise Violation(f"LATE {spec.name}.{port}:{row.ssn} has {name} at {time}, it had said {said}")

    def _said(self, spec: InstanceSpec, port: PortName, row: Output, said: int | None) -> int | None:
        headers = row.headers or {}
        if row.kind == "watermark" and not headers:
            raise Violation(f"WATERMARK {spec.name}.{port}:{row.ssn} says nothing")
        if headers and port not in spec.timed_out:
            raise Violation(f"WATERMARK {spec.name}.{port}:{row.ssn}, and the port has no event time")
        if headers.get(IDLE_HEADER):
            self.promised = False
        time = headers.get(WATERMARK_HEADER)
        if not isinstance(time, int):
            return said
        if said is not None and time < said:
            raise Violation(f"WATERMARK-BACK {spec.name}.{port}:{row.ssn} from {said} to {time}")
        return time

    def marks_between(self, channel: ChannelName, after: Position, upto: Position) -> int:
        """How many watermarks that are no events a channel has between two positions."""
        rows = self._ghost.get(sender_of(channel), {})
        return sum(row.kind == "watermark" for ssn, row in rows.items() if after.ssn < ssn <= upto.ssn)
