"""map_batches, filter, union, sink."""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.operators.harness import Harness

from logline.errors import OptionError, SchemaError
from logline.operators import Filter, MapBatches, SinkOperator, Union

BATCH = pa.record_batch({"id": [1, 2, 3, 4], "amount": [10.0, None, 30.0, 5.0]})
IDS = pa.schema({"id": pa.int64()})


def made(op, batch=BATCH):
    return Harness(op, batch.schema).send(batch).out()


def rows(*ids):
    return [{"id": i} for i in ids]


def test_map_batches_emits_what_the_function_gives():
    assert made(MapBatches(lambda b: b.select(["id"]), IDS)) == [rows(1, 2, 3, 4)]


def test_each_table_of_an_iterable_is_an_event():
    def split(batch):
        yield batch.slice(0, 1).select(["id"])
        yield pa.Table.from_batches([batch.slice(1)]).select(["id"])

    assert made(MapBatches(split, IDS)) == [rows(1), rows(2, 3, 4)]


def test_a_table_of_several_chunks_is_one_event():
    chunked = pa.concat_tables([pa.table({"id": [1]}), pa.table({"id": [2]})])
    assert made(MapBatches(lambda b: chunked, IDS)) == [rows(1, 2)]


def test_none_emits_nothing():
    assert made(MapBatches(lambda b: None, IDS)) == []


def test_what_is_no_table_is_refused_by_type():
    for given in (1, [1]):
        with pytest.raises(TypeError, match="map_batches gave an int; it must return a table"):
            made(MapBatches(lambda b, given=given: given, IDS))  # type: ignore[misc]


def test_a_function_of_other_arguments_is_refused_at_definition():
    with pytest.raises(OptionError, match=r"map_batches calls its function with \(batch\), and <lambda>\(a, b\)"):
        MapBatches(lambda a, b: a, IDS)  # type: ignore[arg-type, misc]
    with pytest.raises(OptionError, match=r"filter calls its function with \(batch\).*missing a required argument"):
        Filter(lambda a, b: a)  # type: ignore[misc]
    with pytest.raises(OptionError, match=r"map_batches takes a function of \(batch\), not None"):
        MapBatches(None, IDS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "where",
    [
        pc.field("amount") > 6,
        lambda b: pc.greater(b["amount"], 6),
        lambda b: pa.chunked_array([[True], [None, True, False]]),
        lambda b: [True, None, True, False],
    ],
    ids=["expression", "array", "chunked", "list"],
)
def test_filter_keeps_true_rows_and_null_is_not_true(where):
    assert made(Filter(where)) == [BATCH.take([0, 2]).to_pylist()]


@pytest.mark.parametrize("where", [pc.field("id") > 9, lambda b: [False] * len(b), lambda b: [None] * len(b)])
def test_filter_emits_nothing_when_no_row_is_left(where):
    assert made(Filter(where)) == []


@pytest.mark.parametrize("where", [pc.field("id") > 0, lambda b: []])
def test_filter_of_an_empty_batch(where):
    assert made(Filter(where), BATCH.slice(0, 0)) == []


def test_filter_keeps_the_schema():
    assert Filter(lambda b: []).schemas({"in": BATCH.schema}) == {"out": BATCH.schema}


def test_filter_refuses_an_unknown_column_before_the_run():
    with pytest.raises(SchemaError, match=r"amuont.*id int64, amount double"):
        Filter(pc.field("amuont") > 6).schemas({"in": BATCH.schema})


def test_filter_refuses_an_expression_that_is_no_condition():
    with pytest.raises(SchemaError, match="can't be applied"):
        Filter(pc.field("id")).schemas({"in": BATCH.schema})


def test_filter_refuses_a_mask_of_another_length_or_type():
    with pytest.raises(ValueError, match="1 values for 4 rows"):
        made(Filter(lambda b: [True]))
    with pytest.raises(TypeError, match="int64 values"):
        made(Filter(lambda b: [1, 0, 1, 0]))
    with pytest.raises(TypeError, match="filter gave None; it must return one bool per row"):
        made(Filter(lambda b: None))
    with pytest.raises(TypeError, match="filter gave a bool; it must return one bool per row"):
        made(Filter(lambda b: True))
    with pytest.raises(OptionError, match="not str"):
        Filter("amount > 6")


def test_union_passes_on_and_needs_one_schema():
    assert made(Union()) == [BATCH.to_pylist()]
    with pytest.raises(SchemaError, match="same schema everywhere"):
        Union().schemas({"in": BATCH.schema, "more": IDS})


def test_the_sink_writes_each_event_and_has_no_outputs():
    harness = Harness(SinkOperator(), BATCH.schema).send(BATCH)
    assert harness.outputs == {}
    assert [(w.to, w.data) for w in harness.writes] == [("out", BATCH)]


def test_the_signature_of_a_wrapper_counts_and_not_that_of_what_it_wraps():
    def with_factor(fn):
        @functools.wraps(fn)
        def wrapped(batch):
            return fn(batch, 2)

        return wrapped

    @with_factor
    def times(batch, factor):
        return batch

    MapBatches(times, pa.schema([("n", pa.int64())]))
