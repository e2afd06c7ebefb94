"""The pipeline as tables, so that views can name operators, channels and what lineage captures.

The log's record of its pipeline is one JSON value. What follows from it (who is an instance of what, which channels
join them, on which ports lineage is captured) is worked out here and written beside it, in the same transaction.

    graph_instances     every operator that is or was there, with its name in the log and what users call it
    graph_ports         output ports and targets
    graph_channels      open ones; closed ones; those by which rejected rows are retried (`again`)
    graph_spans         of channels that have come or gone: which events went by them (R14)
    graph_partitions    what the sources read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from logline.graph.instances import Channel, Expansion, expand
from logline.graph.lineage_paths import Enabled
from logline.graph.record import GraphRecord, graph_of, to_plain, whole_record
from logline.names import ERRORS, OperatorName, PortName
from logline.store.postgres.columns import escape
from logline.store.seam import Meta
from logline.store.tables import again_channel_of, enabled

if TYPE_CHECKING:
    from psycopg import Connection

Row = tuple[Any, ...]
_NOTHING = Enabled(frozenset(), frozenset())


def write_graph(connection: Connection[Any], meta: Meta) -> None:
    """Replaces what the log knows of its pipeline."""
    graph = msgspec.json.encode(to_plain(meta.graph)).decode()
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("update about set pipeline = %s, graph = %s", (escape(meta.pipeline), graph))
        for table, rows in graph_rows(meta.graph).items():
            cursor.execute(f"delete from {table}".encode())
            if rows:
                places = ", ".join(["%s"] * len(rows[0]))
                cursor.executemany(f"insert into {table} values ({places})".encode(), rows)


def graph_rows(record: GraphRecord) -> Mapping[str, Sequence[Row]]:
    """The rows of each table."""
    now, ever = _Known(record), _Known(whole_record(record))
    return {
        "graph_instances": list(_instances(now, ever)),
        "graph_ports": list(_ports(now, ever)),
        "graph_channels": list(_channels(now, ever)),
        "graph_spans": [(channel, *span) for channel, spans in record.spans.items() for span in spans],
        "graph_partitions": list(_partitions(now)),
    }


class _Known:
    """A record, and what follows from it."""

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.expansion: Expansion = expand(graph_of(record))
        self._enabled = enabled(record)

    def captured(self, operator: OperatorName) -> Enabled:
        """The ports of an operator between which lineage is captured."""
        return self._enabled.get(operator, _NOTHING)

    def traces_port(self, operator: OperatorName, port: PortName) -> bool:
        """Whether lineage is captured of what this port puts out."""
        return port in self.captured(operator).outputs

    def traces(self, channel: Channel, *, again: bool) -> bool:
        """Whether lineage is captured of what comes by this channel. Retried rows came of all that was taken."""
        known = self.captured(self.expansion.operator_of(channel.receiver))
        return bool(known.inputs) and ERRORS in known.outputs if again else channel.port in known.inputs


def _instances(now: _Known, ever: _Known) -> Iterator[Row]:
    for at, (name, node) in enumerate(ever.expansion.instances.items()):
        known = ever.record.operators[node.operator]
        former = name not in now.expansion.instances
        reads = known.read is not None
        yield name, at, node.operator, node.called, known.kind, known.stateless, reads, known.stages, former


def _ports(now: _Known, ever: _Known) -> Iterator[Row]:
    for name, node in ever.expansion.instances.items():
        known, operator = ever.record.operators[node.operator], node.operator
        for port in known.outputs:
            traced = name in now.expansion.instances and now.traces_port(operator, port)
            yield name, "out", port, traced, ever.traces_port(operator, port)
        for target in known.targets:
            yield name, "target", target, False, False


def _channels(now: _Known, ever: _Known) -> Iterator[Row]:
    for name, channel in ever.expansion.channels.items():
        is_open = name in now.expansion.channels
        traced = is_open and now.traces(channel, again=False)
        kind = "open" if is_open else "closed"
        yield *_ends(channel, kind), traced, ever.traces(channel, again=False), now.record.passed.get(name, 0)
    for instance in ever.expansion.instances:
        there = now if instance in now.expansion.instances else ever
        again = again_channel_of(there.record, there.expansion, instance)
        if again is not None:
            traced = there is now and now.traces(again, again=True)
            yield *_ends(again, "again"), traced, ever.traces(again, again=True), 0


def _ends(channel: Channel, kind: str) -> Row:
    return channel.name, kind, channel.sender, channel.out, channel.receiver, channel.port


def _partitions(now: _Known) -> Iterator[Row]:
    for name, node in now.expansion.instances.items():
        for at, (partition, text) in enumerate(now.record.actions.get(node.operator, {}).items()):
            yield name, escape(partition), at, escape(text)
