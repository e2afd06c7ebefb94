"""The functions of `agg=` against DuckDB, on random rows in random cuts: nulls, duplicates, NaN, empty groups."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logline as ll
from logline.errors import OptionError, SchemaError
from logline.operators.aggregates import Aggregates

FUNCTIONS = {
    "sum": ("v", "sum"),
    "count": ("v", "count"),
    "min": ("v", "min"),
    "max": ("v", "max"),
    "mean": ("v", "mean"),
    "first": ("v", "first"),
    "last": ("v", "last"),
    "different": ("v", "count_distinct"),
    "variance": ("v", "variance"),
    "stddev": ("v", "stddev"),
    "median": ("v", "median"),
    "q": ("v", "quantile", 0.9),
    "list": ("v", "collect_list"),
    "set": ("v", "collect_set"),
    "top": ("v", "top", 2),
}
SQL = """
    select k,
        sum(v) as sum, count(v) as count, min(v) as min, max(v) as max, avg(v) as mean,
        first(v order by i) filter (v is not null) as first,
        last(v order by i) filter (v is not null) as last,
        count(distinct v) as different,
        {variance} as variance, sqrt({variance}) as stddev,
        quantile_cont(v, 0.5) as median, quantile_cont(v, 0.9) as q,
        coalesce(list(v order by i) filter (v is not null), []) as list,
        coalesce(list_sort(list_distinct(list(v))), []) as set,
        coalesce(list_sort(list(v) filter (v is not null), 'desc')[:2], []) as top
    from data group by k order by k nulls last
"""
WITHOUT_NAN = "var_samp(v)"
NUMBERS = "case when isnan(v) then null else v end"
WITH_NAN = f"case when bool_or(isnan(v)) then if(count(v) > 1, 'nan'::double, null) else var_samp({NUMBERS}) end"
GATHERED = ("first", "last", "list", "set", "top", "different")

KEYS = st.sampled_from(["a", "b", None])
INTEGERS = st.integers(-5, 5) | st.integers(-(10**6), 10**6) | st.none()
FLOATS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, math.nan, None])


def cuts(values):
    return st.lists(st.lists(st.tuples(KEYS, values), max_size=6), min_size=1, max_size=90)


def batch(pairs, type):
    return pa.record_batch(
        {"k": pa.array([k for k, _ in pairs], pa.string()), "v": pa.array([v for _, v in pairs], type)}
    )


def ours(cut, type, agg=FUNCTIONS, by=("k",)):
    aggregates = Aggregates(by, agg)
    parts = None
    for pairs in cut:
        parts = aggregates.add(parts, batch(pairs, type))
    assert parts is not None
    made = aggregates.result(parts)
    assert made.schema == aggregates.output(batch([], type).schema)
    return made.to_pylist()


def ducks(cut, type, variance):
    pairs = [pair for part in cut for pair in part]
    data = pa.Table.from_batches([batch(pairs, type)]).append_column("i", pa.array(range(len(pairs)), pa.int64()))
    with duckdb.connect() as db:
        db.register("data", data)
        return db.sql(SQL.format(variance=variance)).to_arrow_table().to_pylist()


def alike(ours, theirs):
    """Equal, with NaN equal to itself; doubles that were computed in another order are close."""
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, float) and theirs is not None:
        both = math.isnan(ours), math.isnan(theirs)
        return both[0] if any(both) else ours == pytest.approx(theirs, rel=1e-6, abs=1e-3)
    return ours == theirs


def compare(ours, theirs):
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        wrong = {name: (mine[name], other[name]) for name in mine if not alike(mine[name], other[name])}
        assert not wrong, mine["k"]


@settings(max_examples=40)
@given(cuts(INTEGERS))
def test_integers_as_duckdb_has_them(cut):
    compare(ours(cut, pa.int64()), ducks(cut, pa.int64(), WITHOUT_NAN))


@settings(max_examples=40)
@given(cuts(FLOATS))
def test_floats_with_nan_as_duckdb_has_them(cut):
    compare(ours(cut, pa.float64()), ducks(cut, pa.float64(), WITH_NAN))


@settings(max_examples=40)
@given(cuts(INTEGERS))
def test_any_cut_gives_what_one_batch_gives(cut):
    agg = {name: FUNCTIONS[name] for name in GATHERED}
    whole = [pair for part in cut for pair in part]
    assert ours(cut, pa.int64(), agg) == ours([whole], pa.int64(), agg)


@pytest.mark.parametrize("value", [True, "x", b"x", Decimal("1.50"), 2.5])
def test_what_is_only_gathered_may_be_of_any_type(value):
    agg = {name: FUNCTIONS[name] for name in GATHERED}
    type = pa.scalar(value).type
    assert ours([[("a", value)], [("a", None)], [("a", value)]], type, agg, ()) == [
        {"first": value, "last": value, "different": 1, "list": [value] * 2, "set": [value], "top": [value] * 2}
    ]


def test_without_groups_and_rows_there_is_one_row():
    (row,) = ours([[]], pa.int64(), by=())
    assert {name for name, value in row.items() if value not in (None, 0, [])} == set()


def test_groups_of_floats_have_one_nan_and_one_zero():
    data = pa.record_batch({"k": [0.0, -0.0, math.nan, -math.nan], "v": [1, 2, 4, 8]})
    aggregates = Aggregates(["k"], {"total": ("v", "sum")})
    assert aggregates.result(aggregates.add(None, data))["total"].to_pylist() == [3, 12]


@pytest.mark.parametrize("q", [0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("shape", ["even", "skewed", "few"])
def test_a_quantile_of_many_values_is_off_by_less_than_one_in_two_hundred(q, shape):
    n = 60_000
    numbers = [(i * 7919) % n for i in range(n)]  # all of them, out of order
    make = {"even": float, "skewed": lambda i: math.exp(i / n * 20), "few": lambda i: float(i % 7)}[shape]
    values = [make(i) for i in numbers]
    cut = [[("a", value) for value in values[at : at + 500]] for at in range(0, n, 500)]
    ((row),) = ours(cut, pa.float64(), {"q": ("v", "quantile", q)}, ())
    if q in (0.0, 1.0):
        assert row["q"] == (min(values) if q == 0.0 else max(values))
    below = sum(value < row["q"] for value in values) / n
    upto = sum(value <= row["q"] for value in values) / n
    assert below - 0.005 <= q <= upto + 0.005


def test_variance_survives_a_great_mean():
    cut = [[("a", 1e9 + i % 3)] * 50 for i in range(99)]
    (row,) = ours(cut, pa.float64(), {"v": ("v", "variance")}, ())
    assert row["v"] == pytest.approx(2 / 3 * 4950 / 4949)


class Weighted(ll.Aggregate[list[float]]):
    """The product of one more than each value; changes its accumulator in place, as authors do."""

    type = "double"

    def init(self):
        return [1.0]

    def add(self, acc, values):
        assert len(values) and not values.null_count
        for value in values.to_pylist():
            acc[0] *= 1 + value
        return acc

    def merge(self, acc, other):
        acc[0] *= other[0]
        return acc

    def result(self, acc):
        return acc[0]


@given(cuts(st.integers(0, 1) | st.none()))
def test_an_aggregate_of_ones_own(cut):
    expected: dict[str | None, float] = {}
    for k, v in (pair for part in cut for pair in part):
        expected[k] = expected.get(k, 1.0) * (1 + (v or 0))
    made = ours(cut, pa.int64(), {"product": ("v", Weighted())})
    assert {row["k"]: row["product"] for row in made} == expected


def test_an_aggregate_of_ones_own_that_fails_names_the_column():
    class Broken(Weighted):
        def add(self, acc, values):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no") as info:
        ours([[("a", 1)]], pa.int64(), {"x": ("v", Broken())})
    assert info.value.__notes__ == ["in the aggregate Broken of column 'v'"]


class Typeless(Weighted):
    type = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("v", "quantile"), r'quantile takes an argument, as in \("ms", "quantile", 0.9\)'),
        (("v", "quantile", 90), "the quantile 90 is not a number from 0 to 1"),
        (("v", "top", 0), "must be a whole number, at least 1"),
        (("v", "sum", 3), "sum takes no argument"),
        (("v", "mode", 3), "there is no function 'mode'"),
        (("v", Weighted), r"Weighted is a class: give an object, Weighted\(\)"),
        (("v", Typeless()), 'needs the type of its result, as in type = "double"'),
        ("v", r"write \(column, function\)"),
    ],
)
def test_what_is_wrong_is_said_at_definition(given, message):
    with pytest.raises(OptionError, match=message):
        Aggregates([], {"x": given})


@pytest.mark.parametrize("function", [("v", "stddev"), ("v", "median"), ("v", "quantile", 0.1)])
def test_functions_of_numbers_refuse_texts_before_the_run(function):
    with pytest.raises(SchemaError, match=f"can't compute the {function[1]} of column 'v'"):
        Aggregates([], {"x": function}).output(pa.schema({"v": pa.list_(pa.string())}))
