"""Partials merge into the same result as one pass, whatever the types."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logline.errors import OptionError, SchemaError
from logline.operators.aggregates import Aggregates

ALL = {fn: ("v", fn) for fn in ("sum", "count", "min", "max", "mean")}


def rows(aggregates, *batches):
    parts = None
    for batch in batches:
        parts = aggregates.add(parts, batch)
    return aggregates.result(parts).to_pylist()


def batch(values, keys=None, type=None):
    columns = {"v": pa.array(values, type)}
    if keys is not None:
        columns["k"] = pa.array(keys, pa.string())
    return pa.record_batch(columns)


def test_groups_are_sorted_with_null_last():
    made = rows(Aggregates(["k"], {"n": ("v", "sum")}), batch([1, 2, 3, 4], ["b", None, "a", "b"]))
    assert made == [{"k": "a", "n": 3}, {"k": "b", "n": 5}, {"k": None, "n": 2}]


def test_nulls_count_for_nothing():
    made = rows(Aggregates(["k"], ALL), batch([None, 4, None], ["a", "a", "b"], pa.int64()))
    assert made == [
        {"k": "a", "sum": 4, "count": 1, "min": 4, "max": 4, "mean": 4.0},
        {"k": "b", "sum": None, "count": 0, "min": None, "max": None, "mean": None},
    ]


def test_without_groups_there_is_one_row():
    assert rows(Aggregates([], ALL), batch([1, 2]), batch([6])) == [
        {"sum": 9, "count": 3, "min": 1, "max": 6, "mean": 3.0}
    ]


def test_empty_batches():
    empty = batch([], [], pa.int64())
    assert rows(Aggregates(["k"], ALL), empty, empty) == []
    assert rows(Aggregates([], {"n": ("v", "count"), "total": ("v", "sum")}), empty) == [{"n": 0, "total": None}]


@pytest.mark.parametrize(
    ("type", "total"),
    [
        (pa.int8(), pa.int64()),
        (pa.int64(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(38, 2)),
    ],
)
def test_sums_keep_their_kind_of_number(type, total):
    aggregates = Aggregates([], {"total": ("v", "sum")})
    data = pa.record_batch({"v": pa.array([1, 2], type)})
    made = aggregates.final(aggregates.merge([aggregates.partial(data)] * 2))
    assert made.schema == aggregates.output(data.schema) == pa.schema({"total": total})
    assert made["total"].to_pylist() == [6]


def test_decimals_are_exact():
    cents = batch([Decimal("0.10"), Decimal("0.20")], ["a", "a"], pa.decimal128(5, 2))
    made = rows(Aggregates(["k"], ALL), cents, cents)
    assert made == [
        {
            "k": "a",
            "sum": Decimal("0.60"),
            "count": 4,
            "min": Decimal("0.10"),
            "max": Decimal("0.20"),
            "mean": pytest.approx(0.15),
        }
    ]


@pytest.mark.parametrize("values", [["x", "b"], [date(2026, 1, 2), date(2025, 1, 1)], [True, False]])
def test_min_and_max_of_what_can_be_ordered(values):
    made = rows(Aggregates([], {"lo": ("v", "min"), "hi": ("v", "max")}), batch(values[:1]), batch(values[1:]))
    assert made == [{"lo": min(values), "hi": max(values)}]


def test_the_same_part_is_kept_once():
    aggregates = Aggregates([], {"a": ("v", "sum"), "b": ("v", "mean"), "c": ("v", "count")})
    assert aggregates.partial(batch([1])).num_columns == 2


def test_columns_that_look_like_ours_do_not_collide():
    data = pa.record_batch({"v0": ["a", "a"], "k0": [1, 2], "v0_sum": [5, 6]})
    aggregates = Aggregates(["v0"], {"k0_sum": ("k0", "sum"), "k0": ("v0_sum", "max")})
    assert rows(aggregates, data, data) == [{"v0": "a", "k0_sum": 6, "k0": 6}]


def test_adding_leaves_the_given_parts_alone():
    aggregates = Aggregates(["k"], {"n": ("v", "sum")})
    states = [aggregates.add(None, batch([0], ["a"]))]
    for number in range(1, 200):
        states.append(aggregates.add(states[-1], batch([number], ["a"])))
    for number, parts in enumerate(states):
        assert aggregates.result(parts).to_pylist() == [{"k": "a", "n": sum(range(number + 1))}]


def test_what_waits_and_the_partials_of_a_set_are_bounded():
    aggregates = Aggregates(["k"], {"n": ("v", "sum")})
    parts, waiting, partials = None, [], []
    for number in range(5_000):
        parts = aggregates.add(parts, batch([number], ["a"]))
        waiting.append(parts.waiting.many if parts.waiting else 0)
        partials.append(len(parts.partials))
    assert max(waiting) < 64
    assert max(partials) == 16
    large = batch(list(range(50_000)), ["b"] * 50_000)
    assert aggregates.add(parts, large).waiting is None  # it is not kept for company
    assert parts is not None
    assert aggregates.result(parts).to_pylist() == [{"k": "a", "n": sum(range(5_000))}]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(-(10**6), 10**6) | st.none()), max_size=4),
        min_size=1,
        max_size=150,  # more than wait for one partial
    )
)
def test_any_cut_gives_what_one_batch_gives(cut):
    def of(pairs):
        return batch([v for _, v in pairs], [k for k, _ in pairs], pa.int64())

    aggregates = Aggregates(["k"], ALL)
    whole = of([pair for part in cut for pair in part])
    assert rows(aggregates, *map(of, cut)) == rows(aggregates, whole)


def test_what_is_wrong_is_said_at_definition():
    with pytest.raises(OptionError, match="no function 'mode'; use sum, count, min, max, mean, first, last,"):
        Aggregates([], {"m": ("v", "mode")})
    with pytest.raises(OptionError, match=r"write \(column, function\)"):
        Aggregates([], {"m": "sum"})  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="at least one aggregate"):
        Aggregates(["k"], {})
    with pytest.raises(OptionError, match="same output column twice: k"):
        Aggregates(["k"], {"k": ("v", "sum")})


@pytest.mark.parametrize(
    ("by", "agg", "message"),
    [
        (["kk"], ("v", "sum"), "no column 'kk': the input has v int64, k string, d dict"),
        ([], ("w", "sum"), "no column 'w'"),
        ([], ("k", "sum"), "can't compute the sum of column 'k'"),
        ([], ("k", "mean"), "can't compute the mean of column 'k'"),
        (["l"], ("v", "sum"), "can't group by column 'l'"),
        (["d"], ("v", "sum"), r"can't group by column 'd'.*cast it before.*d=pc.field\('d'\).cast\('string'\)"),
        ([], ("d", "max"), r"can't compute the max of column 'd'.*cast it before"),
    ],
)
def test_columns_that_will_not_do(by, agg, message):
    coded = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema({"v": pa.int64(), "k": pa.string(), "d": coded, "l": pa.list_(pa.int64())})
    with pytest.raises(SchemaError, match=message):
        Aggregates(by, {"x": agg}).output(schema)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.int64(), 2**62),
        (pa.int64(), -(2**62)),
        (pa.uint64(), 2**63),
        (pa.decimal128(38, 2), Decimal("9" * 36 + ".99")),
    ],
)
@pytest.mark.parametrize("many", [3, 200])  # in one partial, and over several
def test_a_sum_that_does_not_fit_is_an_error(type, value, many):
    with pytest.raises(OverflowError, match="the sum of column 'v' does not fit"):
        rows(Aggregates([], {"t": ("v", "sum")}), *[batch([value], type=type)] * many)
    (row,) = rows(Aggregates([], {"m": ("v", "mean")}), *[batch([value], type=type)] * many)
    assert row["m"] == pytest.approx(float(value))


def test_a_sum_may_be_too_large_on_its_way():
    values = [2**62, 2**62, 2**62, -(2**62), -(2**62), -(2**62), 7]
    assert rows(Aggregates([], {"t": ("v", "sum")}), *(batch([v]) for v in values)) == [{"t": 7}]
    assert rows(Aggregates([], {"t": ("v", "sum")}), *(batch([v]) for v in values * 40)) == [{"t": 280}]
