"""Exports a run as OpenLineage events. It works beside the run and with every engine, since it only reads the log.

A thread looks at the journals once a second and makes an event per window. It never stops the pipeline: if something
goes wrong here, it logs one warning.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from logline.engine.events import Position
from logline.engine.image import Outline
from logline.engine.spec import InstanceSpec, write_port
from logline.graph.model import Graph
from logline.lineage.openlineage.events import Events, Failure, Kind, Moved, RunOf
from logline.lineage.openlineage.facets import public_address
from logline.lineage.openlineage.jobs import Port
from logline.lineage.openlineage.settings import OpenLineage
from logline.lineage.openlineage.transport import Sender
from logline.names import ERRORS, ChannelName, InstanceName, PortName, Ssn
from logline.runtime.control.engine import Engine
from logline.runtime.lives.instances import Instance
from logline.runtime.messages.notes import EXPORT_NOTES, ExportNote, read_note
from logline.runtime.messages.wire import encode
from logline.store.seam import Store

LOOK = 1.0
"""Seconds between two looks at the journals."""
PATIENCE = 3.0
"""Seconds that the end of a run waits for its last events to be delivered."""
MOST = 2_000
"""Events of a port whose rows are counted at one look: each costs about 15 us, so this is 3 % of a core."""
_NOTE = "@openlineage"
"""The place in the log where a run notes that it is exported."""
_ENDS: Mapping[str, Kind] = {"finished": "COMPLETE", "failed": "FAIL"}

logger = logging.getLogger("logline")


class Tally:
    """What went through the ports and channels of a log, window by window.

    SSNs and bytes are in the heads and positions. Rows are in the headers of the events, which go when the events are
    collected (R12): those of each look are counted, and if some had gone before, the window's rows are not known.
    """

    def __init__(self, store: Store, specs: Mapping[InstanceName, InstanceSpec]) -> None:
        self._store = store
        self._specs = specs
        self._ports: list[Port] = [
            (name, port)
            for name, spec in specs.items()
            for port in (*(p for p in spec.ports if p != ERRORS), *map(write_port, spec.targets))
        ]
        self._looked: dict[Port, Ssn] = {}
        self._rows: dict[Port, int | None] = dict.fromkeys(self._ports, 0)
        self._begun: dict[Port | ChannelName, tuple[Ssn, int]] = {}
        for at, now in self._now().items():
            self._begun[at] = now
        for port in self._ports:
            self._looked[port] = self._begun[port][0]

    def look(self) -> None:
        """Counts the rows of what was put out since the last look."""
        for instance, port in self._ports:
            reader = self._store.read(instance)
            last, before = reader.head(port).last, self._looked[instance, port]
            self._looked[instance, port] = last
            known = self._rows[instance, port]
            if known is None or last == before:
                continue
            new = [Ssn(ssn) for ssn in range(before + 1, last + 1)] if last - before <= MOST else []
            headers = reader.headers(port, new)
            whole = bool(new) and all(header is not None for header in headers)
            self._rows[instance, port] = known + sum(h.rows for h in headers if h is not None) if whole else None

    def window(self) -> dict[Port | ChannelName, Moved]:
        """What moved since the last window, and begins the next one."""
        self.look()
        found: dict[Port | ChannelName, Moved] = {}
        for at, (last, total) in self._now().items():
            before, counted = self._begun[at]
            if last > before:
                rows = self._rows[at] if isinstance(at, tuple) else None
                found[at] = Moved(Ssn(before + 1), last, total - counted, rows)
            self._begun[at] = (last, total)
        self._rows = dict.fromkeys(self._ports, 0)
        return found

    def _now(self) -> dict[Port | ChannelName, tuple[Ssn, int]]:
        """The last event and the bytes so far; the end of a stream is no event."""
        found: dict[Port | ChannelName, tuple[Ssn, int]] = {}
        outlines = {name: self._store.read(name).outline() for name in self._specs}
        for instance, port in self._ports:
            found[instance, port] = _head(outlines[instance], port)
        for name, spec in self._specs.items():
            for channel in spec.inputs:
                at = outlines[name].positions.get(channel.name, Position())
                found[channel.name] = (Ssn(at.ssn - at.marks), at.total)
        return found


def _head(outline: Outline, port: PortName) -> tuple[Ssn, int]:
    head = outline.head(port)
    marks = 0 if port.startswith("@") else outline.marks
    return Ssn(head.last - marks), head.total


class Exporter:
    """Exports one run, from its START to its end."""

    def __init__(
        self,
        to: OpenLineage,
        graph: Graph,
        instances: Mapping[InstanceName, Instance],
        store: Store,
        log: str,
        engine: Engine,
    ) -> None:
        assert engine.lease is not None
        self._engine = engine
        self._store = store
        self._operators = [str(instance.called) for instance in instances.values()]
        self._run = engine.lease.run
        self._every = to.every.total_seconds()
        self._events = Events(
            graph, RunOf(public_address(log), store.log_id, self._run), to.namespace, math.ceil(self._every)
        )
        self._broken = False
        self._over = threading.Event()
        self._since = datetime.now(UTC)
        self._tally = Tally(store, {name: part.spec for name, part in instances.items()})
        self._sender = Sender(to)
        self._begin()
        self._thread = threading.Thread(target=self._work, name="logline-openlineage", daemon=True)
        self._thread.start()

    def _begin(self) -> None:
        before = read_note(self._store, _NOTE, EXPORT_NOTES)
        if before is not None and before.open:  # noted by a run that did not live to tell its end
            for event in self._events.lost(before.run, before.operators, self._since):
                self._sender.put(event, must=True)
        self._note(is_open=True)
        for event in self._events.window("START", self._since, self._since, {}):
            self._sender.put(event, must=True)

    def _note(self, *, is_open: bool) -> None:
        self._store.put_status(_NOTE, encode(ExportNote(self._run, self._operators, is_open)))

    def _work(self) -> None:
        due = time.monotonic() + self._every
        while not self._over.wait(max(min(LOOK, due - time.monotonic()), 0.0)):
            try:
                if not self._mine():
                    return  # taken over: who did that has told the end of this run
                if time.monotonic() >= due:
                    due += self._every
                    self._tell("RUNNING", must=False)
                else:
                    self._tally.look()
            except Exception as error:  # whatever it is, the pipeline must go on
                self._complain(error)

    def _tell(self, kind: Kind, failure: Failure | None = None, *, must: bool) -> None:
        now = max(datetime.now(UTC), self._since)  # a window does not end before it began, whoever sets the clock
        counts = self._tally.window()
        for event in self._events.window(kind, self._since, now, counts, failure):
            self._sender.put(event, must=must)
        self._since = now

    def _complain(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            logger.warning("this run can't be exported whole as OpenLineage events: %s. The pipeline goes on", error)

    def close(self) -> None:
        """The run is over; says so, unless another one has taken the log over: that one has said it already."""
        self._over.set()
        self._thread.join()
        try:
            mine = self._mine()
            if mine:
                kind = _ENDS.get(self._engine.status().phase, "ABORT")
                self._tell(kind, self._failure() if kind == "FAIL" else None, must=True)
            if self._sender.close(PATIENCE) and mine:
                self._note(is_open=False)
        except Exception as error:
            self._complain(error)
            self._sender.close(0.0)

    def _mine(self) -> bool:
        lease = self._engine.lease
        return lease is not None and lease.held()

    def _failure(self) -> Failure | None:
        error = self._engine.error
        if error is None:
            return None
        message = str(error).removesuffix(f"\n\n{error.traceback}") if error.traceback else str(error)
        return Failure(error.operator, message, error.traceback)


def export(
    to: OpenLineage, graph: Graph, instances: Mapping[InstanceName, Instance], store: Store, log: str, engine: Engine
) -> Exporter | None:
    """Begins the export; None if that is not possible now, which must not keep a pipeline from running."""
    try:
        return Exporter(to, graph, instances, store, log, engine)
    except Exception as error:  # also of a connector's own `dataset`
        logger.warning("this run is not exported as OpenLineage events: %s", error)
        return None
