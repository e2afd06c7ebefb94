"""Small events share a row of the embedded log: what a reader, a collector and user code notice of it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.unit.store.looking import rows_of

from logline.engine.events import Collection, Output
from logline.engine.step import Step
from logline.errors import Collected
from logline.names import OUT, InstanceName, Serial, Ssn
from logline.store.lmdb.folder import LmdbStore
from logline.store.lmdb.journal import LmdbJournal
from logline.store.packing import MOST, TOGETHER
from logline.testing.conformance.model import step_of

ORDERS = InstanceName("orders")
ROWS = 50
NAMES = pa.dictionary(pa.int8(), pa.string())


def event(ssn: int, rows: int = ROWS) -> Output:
    data = {"n": [ssn * 1000 + i for i in range(rows)], "s": [f"{ssn}.{i}" for i in range(rows)]}
    batch = pa.RecordBatch.from_pydict(data, pa.schema({"n": pa.int64(), "s": pa.string()}))
    return Output(OUT, Ssn(ssn), batch, rows, batch.nbytes, ssn * batch.nbytes, Serial(ssn))


@pytest.fixture
def journal(store: LmdbStore) -> Iterator[LmdbJournal]:
    claimed = store.claim(ORDERS)
    yield claimed
    claimed.close()


def test_a_run_of_small_events_is_one_row(store: LmdbStore, journal: LmdbJournal) -> None:
    outputs = [event(n, rows=n % 3) for n in range(1, 11)]
    journal.commit(Step(number=1, outputs=outputs))
    assert rows_of(store, ORDERS, "events") == 1
    found = store.read(ORDERS).events(OUT, Ssn(0), limit=100, max_bytes=1 << 30)
    assert [(e.ssn, e.payload, e.total, e.serial) for e in found] == [
        (e.ssn, e.payload, e.total, e.serial) for e in outputs
    ]
    middle = store.read(ORDERS).events(OUT, Ssn(4), limit=3, max_bytes=1 << 30)
    assert [e.payload for e in middle] == [e.payload for e in outputs[4:7]]
    picked = store.read(ORDERS).pick(OUT, [Ssn(9), Ssn(2), Ssn(3)])
    assert [e.payload for e in picked] == [outputs[8].payload, outputs[1].payload, outputs[2].payload]


def test_a_row_is_bounded(store: LmdbStore, journal: LmdbJournal) -> None:
    journal.commit(Step(number=1, outputs=[event(n, rows=0) for n in range(1, 2 * MOST + 2)]))
    assert rows_of(store, ORDERS, "events") == 3
    large = event(2 * MOST + 2, rows=TOGETHER)
    journal.commit(Step(number=2, outputs=[large, event(2 * MOST + 3), event(2 * MOST + 4)]))
    assert rows_of(store, ORDERS, "events") == 5


def test_events_of_another_schema_stay_alone(store: LmdbStore, journal: LmdbJournal) -> None:
    other = pa.record_batch({"x": [1.5]})
    outputs = [event(1), event(2), Output(OUT, Ssn(3), other, 1, other.nbytes, 10_000, Serial(3)), event(4)]
    outputs += [event(5)._replace(payload=event(5).payload.replace_schema_metadata({"a": "b"})), event(6)]
    journal.commit(Step(number=1, outputs=outputs))
    found = store.read(ORDERS).events(OUT, Ssn(0), limit=100, max_bytes=1 << 30)
    assert [e.payload for e in found] == [e.payload for e in outputs]
    for one, other in zip(found, outputs, strict=True):
        assert one.payload.schema.equals(other.payload.schema, check_metadata=True)


def test_what_is_collected_is_gone_although_it_lies_there(store: LmdbStore, journal: LmdbJournal) -> None:
    journal.commit(Step(number=1, outputs=[event(n) for n in range(1, 11)]))
    journal.commit(Step(number=2, collected={OUT: Collection(Ssn(4), frozenset())}))
    reader = store.read(ORDERS)
    assert rows_of(store, ORDERS, "events") == 1
    assert reader.stored(OUT) == list(range(4, 11))
    assert reader.headers(OUT, [Ssn(3), Ssn(4)])[0] is None
    with pytest.raises(Collected):
        reader.pick(OUT, [Ssn(3)])
    with pytest.raises(Collected):
        reader.events(OUT, Ssn(2), limit=10, max_bytes=1 << 30)
    assert [e.ssn for e in reader.events(OUT, Ssn(3), limit=10, max_bytes=1 << 30)] == list(range(4, 11))
    journal.commit(Step(number=3, collected={OUT: Collection(Ssn(11), frozenset())}))
    assert rows_of(store, ORDERS, "events") == 0


def test_one_that_is_pinned_does_not_keep_its_neighbours(store: LmdbStore, journal: LmdbJournal) -> None:
    """Holes are collected too (R12): the row is taken apart, and what is left of it goes when it is freed."""
    journal.commit(Step(number=1, outputs=[event(n) for n in range(1, 21)]))
    journal.commit(Step(number=2, collected={OUT: Collection(Ssn(21), frozenset({Ssn(7), Ssn(8)}))}))
    reader = store.read(ORDERS)
    assert reader.stored(OUT) == [7, 8]
    assert rows_of(store, ORDERS, "events") == 2
    assert [e.payload for e in reader.pick(OUT, [Ssn(7), Ssn(8)])] == [event(7).payload, event(8).payload]
    assert [e.ssn for e in reader.events(OUT, Ssn(6), limit=10, max_bytes=1 << 30)] == [7, 8]
    journal.commit(Step(number=3, collected={OUT: Collection(Ssn(21), frozenset({Ssn(8)}))}))
    assert (reader.stored(OUT), rows_of(store, ORDERS, "events")) == ([8], 1)


def test_who_keeps_one_event_does_not_keep_the_row(store: LmdbStore, journal: LmdbJournal) -> None:
    """A recovery picks the members of open sets: their neighbours must not come along."""
    journal.commit(Step(number=1, outputs=[event(n) for n in range(1, 31)]))
    (alone,) = store.read(ORDERS).pick(OUT, [Ssn(17)])
    assert alone.payload == event(17).payload
    assert alone.payload.get_total_buffer_size() < 2 * event(17).payload.get_total_buffer_size()


def test_staged_rows_stay_alone(store: LmdbStore, journal: LmdbJournal) -> None:
    """A life that staged three events and died; the next one stages two others in their place (R9)."""
    journal.commit(step_of(number=1, staged=[event(1), event(2), event(3)]))
    journal.close()
    again = store.claim(ORDERS)
    fresh = [event(1, rows=2), event(2, rows=3)]
    again.commit(step_of(number=2, staged=fresh))
    again.commit(step_of(number=3, reveal={OUT: (Ssn(2), fresh[1].total)}))
    again.commit(Step(number=4, outputs=[event(3, rows=1), event(4, rows=1)]))
    again.close()
    found = store.read(ORDERS).events(OUT, Ssn(0), limit=10, max_bytes=1 << 30)
    assert [e.rows for e in found] == [2, 3, 1, 1]
    assert [e.payload.num_rows for e in found] == [2, 3, 1, 1]


def test_schemas_may_differ_from_event_to_event(
    store: LmdbStore, journal: LmdbJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pandas notes the index of each frame in its schema: there may be more schemas than there are numbers for."""
    monkeypatch.setattr("logline.store.payloads.STREAM", 5)
    for n in range(1, 10):
        batch = event(n).payload.replace_schema_metadata({"index": f"{n}"})
        journal.commit(Step(number=n, outputs=[event(n)._replace(payload=batch)]))
    found = store.read(ORDERS).events(OUT, Ssn(0), limit=100, max_bytes=1 << 30)
    assert [e.payload.schema.metadata for e in found] == [{b"index": b"%d" % n} for n in range(1, 10)]


class Named(pa.ExtensionType):  # type: ignore[misc]
    """An extension type over a dictionary."""

    def __init__(self) -> None:
        super().__init__(NAMES, "tests.named")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Named:
        return cls()


def test_an_extension_type_over_a_dictionary_comes_back(store: LmdbStore, journal: LmdbJournal) -> None:
    pa.register_extension_type(Named())
    try:
        values = pa.ExtensionArray.from_storage(Named(), pa.array(["a", "b", "a"]).dictionary_encode().cast(NAMES))
        batch = pa.record_batch({"v": values})
        journal.commit(Step(number=1, outputs=[Output(OUT, Ssn(1), batch, 3, 64, 64, Serial(1))]))
        (found,) = store.read(ORDERS).pick(OUT, [Ssn(1)])
        assert found.payload.equals(batch)
    finally:
        pa.unregister_extension_type("tests.named")
