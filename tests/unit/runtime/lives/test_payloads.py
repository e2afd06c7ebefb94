"""The size of an event, which back-pressure counts (R13): near to what its rows take, whatever buffers they share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import logline as ll
from logline.engine.results import Failure
from logline.names import IN, OperatorName
from logline.runtime.lives import payloads as module
from logline.runtime.lives.payloads import HEADER, ArrowPayloads, row_bytes


def payloads(schema: pa.Schema) -> ArrowPayloads:
    p = ll.Pipeline("sizes")
    p.source("numbers", ll.sources.batches([pa.RecordBatch.from_pylist([], schema)]))
    return ArrowPayloads(p.graph().nodes[OperatorName("numbers")])


FIXED = pa.schema([("n", pa.int64()), ("x", pa.float32()), ("at", pa.timestamp("us", "UTC")), ("b", pa.bool_())])


@given(st.integers(0, 5000), st.integers(0, 5000))
def test_a_slice_counts_for_its_rows(first: int, rows: int) -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(5000, field.type) for field in FIXED], schema=FIXED)
    part = batch.slice(first, rows)
    size = payloads(FIXED).read(part).nbytes
    assert HEADER + part.num_rows * 20 <= size <= HEADER + part.num_rows * 22


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string()), pa.struct([("a", pa.int8())])]
)
def test_rows_of_varying_size_are_measured(kind: pa.DataType) -> None:
    assert row_bytes(pa.schema([("n", pa.int64()), ("v", kind)])) is None


def test_long_strings_count() -> None:
    batch = pa.record_batch({"s": ["x" * 100_000]})
    assert 100_000 < payloads(batch.schema).read(batch).nbytes < 101_000


@pytest.mark.parametrize("rows", [0, 3])
def test_rows_that_were_set_aside_come_back_also_when_there_are_none(rows: int) -> None:
    kept = payloads(FIXED)
    batch = pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in FIXED], schema=FIXED)
    error = kept.diverted("set", [batch], ["rows:1"], Failure("ValueError", "bad rows", ""))
    assert kept.rejected(error.payload).equals(batch)


def test_more_than_a_batch_can_hold_is_read_in_several() -> None:
    """Two texts of 1.2 GiB that share one buffer, which nobody touches: it takes no memory."""
    size = 1200 << 20
    offsets = pa.py_buffer(size.to_bytes(8, "little")[:4].rjust(8, b"\0"))
    text = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.allocate_buffer(size)])
    schema = pa.schema({"n": pa.int64(), "blob": pa.binary()})
    batches = [pa.record_batch([pa.array([n]), text], schema=schema) for n in range(3)]
    found = payloads(schema).chunk(batches, 1000)
    assert [n for batch in found for n in batch["n"].to_pylist()] == [0, 1, 2]
    assert len(found) == 3


def test_slices_of_a_large_batch_are_joined() -> None:
    size = 1200 << 20
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 10, 20, size)))
    texts = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.allocate_buffer(size)])
    batch = pa.record_batch({"blob": texts})
    (found,) = payloads(batch.schema).chunk([batch.slice(0, 1), batch.slice(1, 1)], 1000)
    assert found.num_rows == 2


@pytest.mark.parametrize("kind", [pa.int64(), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.string())])
def test_a_copy_is_equal(kind: pa.DataType) -> None:
    class Own(ll.Operator[pa.RecordBatch, None]):
        outputs = {"out": pa.schema([pa.field("v", kind)])}  # noqa: RUF012

        def generate(self, inset: object, acc: pa.RecordBatch, ctx: object) -> Iterator[pa.RecordBatch]:
            yield acc

    batch = pa.record_batch({"v": pa.array([None, None], kind)})
    p = ll.Pipeline("copies")
    p.source("source", ll.sources.batches([batch])).apply("own", Own())
    made = ArrowPayloads(p.graph().nodes[OperatorName("own")]).made("set", batch, ())
    assert made is not None
    assert made.payload.equals(batch)
    assert made.payload is not batch


def test_a_slice_of_texts_counts_for_its_own() -> None:
    batch = pa.record_batch({"s": ["x" * 1000] * 100})
    assert payloads(batch.schema).read(batch.slice(50, 1)).nbytes < 2000


def test_no_more_than_a_batch_holds_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JOINED", 2500)
    batches = [pa.record_batch({"s": [text * 1000]}) for text in "abcde"]
    found = payloads(batches[0].schema).chunk(batches, 1000)
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    assert [text[0] for batch in found for text in batch["s"].to_pylist()] == list("abcde")


class Reusing(ll.Operator[pa.RecordBatch, None]):
    """Its memory may be filled again."""

    time = {"in": "at"}  # noqa: RUF012

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, ll.SchemaLike]:
        return {"out": self.schema}

    def generate(self, inset: object, acc: pa.RecordBatch, ctx: object) -> Iterator[pa.RecordBatch]:
        yield acc


def reusing(schema: pa.Schema) -> ArrowPayloads:
    p = ll.Pipeline("reusing")
    at = pa.RecordBatch.from_pylist([], pa.schema({"at": pa.timestamp("ns")}))
    p.source("times", ll.sources.batches([at])).apply("reuse", Reusing(schema))
    return ArrowPayloads(p.graph().nodes[OperatorName("reuse")])


@pytest.mark.parametrize("rows", [3, 1000])
@pytest.mark.parametrize("dictionary", [False, True])
def test_what_was_put_out_does_not_change_with_the_authors_memory(rows: int, dictionary: bool) -> None:
    memory = np.arange(rows, dtype="int64")
    column = pa.array(memory)
    if dictionary:
        column = pa.DictionaryArray.from_arrays(pa.array(range(rows), pa.int32()), column)
    batch = pa.record_batch({"v": column})
    made = reusing(batch.schema).made("set", batch, ())
    assert made is not None
    memory[:] = -1
    assert made.payload["v"].to_pylist() == list(range(rows))


@pytest.mark.parametrize(("nanoseconds", "micros"), [(1999, 1), (2000, 2), (-1, -1), (-1000, -1)])
def test_a_time_is_never_later_than_its_record(nanoseconds: int, micros: int) -> None:
    """A window must not close early."""
    batch = pa.record_batch({"at": pa.array([nanoseconds, None], pa.timestamp("ns"))})
    assert reusing(batch.schema).greatest_time(IN, batch) == micros
