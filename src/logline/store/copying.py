"""Copies a whole log from one store to another: every row of every journal, its events, staged ones too, and what is
known of the pipeline.

A log that is moved keeps its id, and with it the positions of its targets (R8). It is run either here or there:

    target      marked `unfinished` while it is written: nobody can open it
    source      marked `moved`, with the new address: from here on it is only read
    target      its mark goes: it is the log now

A kill before the second step leaves the source as it was, and the next copy begins anew. A kill after it leaves two
logs that nobody runs; the next copy finishes the third step. The copy holds the lease of the source, and claims its
journals first, so that a life which nobody knows of any more can't commit behind it (R10).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logline.engine.events import Head, Output
from logline.engine.spec import write_port
from logline.errors import LogError
from logline.graph.instances import expand
from logline.graph.record import GraphRecord, graph_of, whole_record
from logline.names import InstanceName, PortName
from logline.store import load, pins
from logline.store.address import find_store, make_copy, no_log, shown_address, unfinished_copy
from logline.store.layout import BY_NAME, HEADS, JOURNAL
from logline.store.marks import Mark, check_may_run
from logline.store.reader import Look, RowsReader
from logline.store.rows import Row
from logline.store.seam import Lying, Store

Told = Callable[[InstanceName, int, int], None]
"""Hears how far it is: the journal, events that are copied, events that there are."""


class Copied(NamedTuple):
    """How much of a log was copied."""

    journals: int
    events: int


def copy_log(source_url: str, target_url: str, *, keep: bool = False, told: Told = lambda *_: None) -> Copied:
    """Moves a log that does not run to another address. With `keep` it stays where it is, and the copy is to be read.

    Raises LogInUse if the pipeline runs, LogError if there is a log at the other address.
    """
    source = find_store(source_url)
    if source is None:
        raise no_log(source_url)
    try:
        if _finish_move(source, target_url):
            return Copied(0, 0)
        meta = source.meta()
        if meta is None:
            raise LogError(f"no pipeline has run on {shown_address(source_url)}: there is nothing to copy")
        lease = source.lease(f"copy-{uuid.uuid4().hex[:8]}")
        try:
            target = make_copy(target_url, source.log_id, Mark("unfinished", shown_address(source_url)))
            try:
                copied = _copy(source, target, meta.graph, told)
                target.set_meta(meta)
                if keep:
                    target.set_mark(Mark("copy", shown_address(source_url)))
                else:
                    source.set_mark(Mark("moved", shown_address(target_url)))
                    target.set_mark(None)
                return copied
            finally:
                target.close()
        finally:
            lease.release()
    finally:
        source.close()


def _finish_move(source: Store, target_url: str) -> bool:
    """Whether all but the last step was done before, and a kill came between."""
    mark = source.mark()
    if mark is None or mark.kind != "moved" or mark.other != shown_address(target_url):
        check_may_run(mark)
        return False
    target = unfinished_copy(target_url, source.log_id)
    if target is None:
        check_may_run(mark)
        return False
    target.set_mark(None)
    target.close()
    return True


def _copy(source: Store, target: Store, record: GraphRecord, told: Told) -> Copied:
    instances = source.instances()
    for instance in instances:
        source.claim(instance).close()
    ports = _ports(record)
    events = 0
    for instance in instances:
        reader = source.read(instance)
        assert isinstance(reader, RowsReader)
        with reader.look() as look:
            heads = _heads(look, ports.get(instance, ()))
            many = sum(head.stored for head in heads.values())
            told(instance, 0, many)
            target.restore(instance, _rows(look), _events(look, heads, instance, many, told))
            events += many
        hint = source.crash_hint(instance).read()
        if hint:
            target.crash_hint(instance).write(hint)
    for name, status in source.statuses().items():
        target.put_status(name, status)
    return Copied(len(instances), events)


def _ports(record: GraphRecord) -> dict[InstanceName, tuple[PortName, ...]]:
    """The ports of each instance: rows may be staged on one that has no head yet."""
    record = whole_record(record)
    found = {}
    for name, node in expand(graph_of(record)).instances.items():
        known = record.operators[node.operator]
        found[name] = (*known.outputs, *map(write_port, known.targets))
    return found


def _heads(look: Look, ports: tuple[PortName, ...]) -> dict[PortName, Head]:
    known = [port for (port,), _ in look.rows.scan(HEADS)]
    found = {port: load.head(look.rows, port) for port in dict.fromkeys((*known, *ports))}
    for port, head in found.items():
        head.pinned = pins.of(look.rows, port)
    return found


def _rows(look: Look) -> Iterator[Row]:
    yield Row(JOURNAL, (), load.journal_row(look.rows))
    for table in BY_NAME.values():
        if table is not JOURNAL:
            for key, value in look.rows.scan(table):
                yield Row(table, key, value)


def _events(
    look: Look, heads: dict[PortName, Head], instance: InstanceName, many: int, told: Told
) -> Iterator[Lying]:
    """What counts of each port, and what is staged above its head, a run of events at a time."""
    done = 0
    for port, head in heads.items():
        for run in look.events.lying(port):
            there = [o for o in run if o.ssn >= head.base or o.ssn in head.pinned]
            for stretch in _stretches([o for o in there if o.ssn <= head.last]):
                yield Lying(stretch, [])
            yield Lying([], [o for o in there if o.ssn > head.last])
            done += len(there)
            told(instance, min(done, many), many)


def _stretches(outputs: list[Output]) -> Iterator[list[Output]]:
    """Events without a gap between them: what is collected leaves holes, and a row holds none."""
    at = 0
    for upto in range(1, len(outputs) + 1):
        if upto == len(outputs) or outputs[upto].ssn != outputs[upto - 1].ssn + 1:
            yield outputs[at:upto]
            at = upto
