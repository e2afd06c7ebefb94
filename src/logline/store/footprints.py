"""CEC's footprints as a table: what the log has of each input set, and what recovery would have to read of it (R22).

    state     `open`: members alone. `check`: a checkpoint, and members after it. `result`: it is due or done
    extent    records that recovery would read: the checkpoint, and records of members after it
    replay    events that recovery would take in again

How many rows are `open` or `check` is CEC's number of open windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from logline.graph.instances import expand
from logline.graph.record import GraphRecord, graph_of, whole_record
from logline.names import Serial
from logline.store.checkpoints import CheckpointRow
from logline.store.seam import Reader, Store
from logline.store.tables import inset_text

FOOTPRINTS = pa.schema(
    [
        pa.field("operator", pa.string()),
        pa.field("inset_id", pa.string()),
        pa.field("state", pa.string()),
        pa.field("members", pa.int64()),
        pa.field("covered", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("extent", pa.int64()),
        pa.field("replay", pa.int64()),
    ]
)


class Footprint(NamedTuple):
    """One row of the table."""

    operator: str
    inset_id: str
    state: str
    members: int
    covered: int
    bytes: int
    extent: int
    replay: int


def checkpoints_table(store: Store, record: GraphRecord) -> pa.Table:
    """Every input set that the log still knows of operators with inputs."""
    record = whole_record(record)
    found: list[Footprint] = []
    for instance in expand(graph_of(record)).instances.values():
        known = record.operators[instance.operator]
        if known.inputs and not known.stateless:
            found += _of(str(instance.called), store.read(instance.name))
    return pa.Table.from_pylist([row._asdict() for row in found], schema=FOOTPRINTS)


def _of(operator: str, reader: Reader) -> Iterator[Footprint]:
    saved: Mapping[Serial, CheckpointRow] = reader.checkpoints()
    records = reader.records()
    image = reader.image()
    for serial, opened in image.sets.items():
        row = saved.get(serial)
        covers, nbytes = (0, 0) if row is None else (row.covers, row.nbytes)
        state = "result" if opened.cause is not None else "open" if row is None else "check"
        extent, later = records.get(serial, 0) + (row is not None), len(opened.members)
        yield Footprint(operator, inset_text(opened.id, serial), state, covers + later, covers, nbytes, extent, later)
    for done in reader.history():
        if done.serial not in image.sets:
            name = inset_text(done.id, done.serial)
            yield Footprint(operator, name, "result", len(done.members), 0, 0, 0, 0)
