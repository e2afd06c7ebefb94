"""Rows that somebody puts in the place of an error's before it is retried: checked, and made an event that says so.

fixed = fixed_rows(store, "enrich.errors:3", pa.table({"id": [7], "zip": ["69190"]}))
"""

from __future__ import annotations

import getpass
import os
import socket
from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from logline.engine.results import Produced
from logline.errors import LogError, SchemaError
from logline.graph.instances import expand
from logline.graph.operator import Tabular
from logline.graph.record import GraphRecord, graph_of, schema_of
from logline.graph.schemas import to_batches
from logline.names import InstanceName, parse_events
from logline.runtime.lives.dead_letters import rows_of, rows_to_bytes
from logline.runtime.lives.payloads import dead_letter
from logline.store.seam import Store
from logline.store.tables import record_in


class Fixed(msgspec.Struct, frozen=True):
    """The rows, and who gave them."""

    rows: bytes
    """An Arrow IPC stream."""
    by: str
    """Who gave them, where and when; and out of which file."""


def fixed_rows(store: Store, event: str, data: Tabular, *, source: str = "") -> Fixed:
    """Rows for the error `event`. Raises SchemaError if they are not what its operator takes."""
    record = record_in(store)
    instance = expand(graph_of(record)).find(parse_events(event).called)
    batch = _fitting(record, instance, event, data)
    made = rows_to_bytes([batch])
    assert made is not None
    at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Fixed(made, ", ".join(filter(None, [f"{_user()} on {socket.gethostname()}", at, source])))


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process of a user that the machine does not know
        return f"user {os.getuid()}"


def fixed_event(record: GraphRecord, instance: InstanceName, name: str, fixed: Fixed) -> Produced:
    """The rows as an event on port `errors`, which says that they were given by hand."""
    batch = _fitting(record, instance, name, pa.ipc.open_stream(fixed.rows).read_all())
    reason = f"rows given by hand instead of {name} ({fixed.by})"
    operator = expand(graph_of(record)).operator_of(instance)
    return dead_letter(operator, name, [name], reason, "", rows_to_bytes([batch]))


def _fitting(record: GraphRecord, instance: InstanceName, name: str, data: Tabular) -> pa.RecordBatch:
    expansion = expand(graph_of(record))
    channels = expansion.into(instance)
    refused: list[SchemaError] = []
    for schema in [schema_of(record, expansion.called(c.sender), c.out) for c in channels]:
        try:  # ports may have different schemas: the rows are for the first one that they fit
            return to_batches(data, schema, f"the rows for {name}")[0]
        except SchemaError as error:
            refused.append(error)
    takes = f"look at what {expansion.called(instance)!r} takes"
    raise SchemaError(str(refused[0]).replace("change the schema of the port", takes)) from None


def check_rows(record: GraphRecord, instance: InstanceName, name: str, error: pa.RecordBatch) -> None:
    """Rejected rows go in again: they must look like what the operator takes."""
    columns = None
    if error.column("data")[0].is_valid:
        columns = [(field.name, str(field.type)) for field in rows_of(error).schema]
    expansion = expand(graph_of(record))
    for channel in expansion.into(instance):
        sender = record.operators[expansion.operator_of(channel.sender)]
        if columns != [(column.name, column.type) for column in sender.outputs[channel.out]]:
            raise LogError(
                f"{name} can't be retried: the rejected rows don't have the columns that "
                f"{expansion.called(instance)!r} takes; export them with `logline errors LOG export {name} FILE` and "
                "retry with rows that have, or drop it"
            )
