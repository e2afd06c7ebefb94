"""select, with_columns, split, explode, flat_map_rows, check_rows: what they make, and what they refuse."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import logline as ll
from logline.errors import BadName, OptionError, PipelineFailed, SchemaError
from logline.graph.digest import code_digest
from logline.operators import CheckRows, Explode, FlatMapRows, Select, Split, WithColumns

ROWS = pa.record_batch(
    {
        "item": ["tea", "jam", None, "oil"],
        "amount": pa.array([4, 7, 1, None], pa.int64()),
        "sold": pa.array([datetime(2026, 3, 1, 9, 15, tzinfo=UTC)] * 4, pa.timestamp("us", "UTC")),
        "tags": pa.array([["a", "b"], [], None, ["c"]], pa.list_(pa.string())),
    }
)


def drive(op, *batches, crashes=True):
    driven = ll.testing.drive(op, crashes=crashes)
    for batch in batches or (ROWS,):
        driven.send(batch)
    return driven.end()


def depends(op):
    return [(one.out, one.into) for one in op.dependencies({"in": ROWS.schema})]


def stream(rows=ROWS):
    return ll.Pipeline("shop").source("orders", ll.sources.batches([pa.Table.from_batches([rows])]))


# ---- select -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "item, amount * 2 as twice where amount > 3",
        "select item, amount * 2 as twice from input where amount > 3",
        "FROM input SELECT item, amount * 2 AS twice WHERE amount > 3",
        "with large as (from input where amount > 3) select item, amount * 2 as twice from large",
    ],
)
def test_select_takes_columns_or_a_whole_query(sql):
    assert drive(Select(sql)).out().to_pylist() == [{"item": "tea", "twice": 8}, {"item": "jam", "twice": 14}]


def test_select_knows_its_schema_and_keeps_order_and_types():
    many = pa.record_batch({"n": pa.array(range(200_000), pa.int64())})
    assert Select("n where n % 2 = 0").query.run(many)["n"].to_pylist() == list(range(0, 200_000, 2))
    made = stream().select("s", "*, hour(sold) as h")
    assert made.schema.names == [*ROWS.schema.names, "h"]
    assert made.schema.remove(4) == ROWS.schema
    assert made.preview()["h"].to_pylist() == [9] * 4  # UTC, whatever the machine's zone


def test_spans_that_sql_can_not_hold_are_refused_not_cut():
    rows = pa.record_batch({"n": [1, 2], "took": pa.array([2000, 1001], pa.duration("ns"))})
    assert Select("took where n = 1").query.run(rows.slice(0, 1))["took"][0].as_py().nanoseconds == 2000
    assert Select("n + 1 as m").query.run(rows)["m"].to_pylist() == [2, 3]  # it is not asked for
    for sql in ("Took", "*", "n where input.took > interval 1 second", "from input select n, took"):
        with pytest.raises(ValueError, match=r"column 'took' is duration.*between two microseconds"):
            Select(sql).query.run(rows)


SPAN = pa.duration("ns")


@pytest.mark.parametrize(
    ("kind", "whole", "between"),
    [
        (pa.struct([("a", SPAN), ("b", pa.int64())]), {"a": 2000, "b": 1}, {"a": 1001, "b": 1}),
        (pa.list_(SPAN), [2000, None], [2000, 1001]),
        (pa.list_(SPAN, 2), [2000, 3000], [2000, 1001]),
        (pa.map_(pa.string(), SPAN), [("a", 2000)], [("a", 1001)]),
        (pa.list_(pa.struct([("a", SPAN)])), [{"a": 2000}], [{"a": 1001}]),
        (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3000]), pa.MonthDayNano([1, 2, 3001])),
        (pa.list_(pa.month_day_nano_interval()), [pa.MonthDayNano([1, 2, 3000])], [pa.MonthDayNano([1, 2, 3001])]),
    ],
)
def test_spans_within_a_value_are_refused_not_cut(kind, whole, between):
    rows = pa.record_batch({"n": [1, 2], "took": pa.array([whole, between], kind)})
    assert Select("n + 1 as m").query.run(rows)["m"].to_pylist() == [2, 3]
    assert Select("*").query.run(rows.slice(0, 1)).num_rows == 1
    with pytest.raises(ValueError, match=r"column 'took' is .*between two microseconds"):
        Select("took").query.run(rows)


def test_an_event_without_rows_left_is_not_put_out():
    assert drive(Select("* where amount > 100")).out().num_rows == 0


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("item as name, amount * 2 as twice, sold where amount > 3", [("name", "item"), ("sold", "sold")]),
        ("* exclude (tags)", [("item", "item"), ("amount", "amount"), ("sold", "sold")]),
        ("item, sum(amount) as total group by item", []),
        ("item, sum(amount) over () as total", []),
        ("sum(amount) as total", []),
        ("item limit 1", []),
        ("item where amount > (select avg(amount) from input)", []),
        ("item, item || 'x' as item2", [("item", "item")]),
    ],
)
def test_select_knows_which_columns_pass(sql, columns):
    assert depends(Select(sql)) == columns


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("buyer.id", []),
        ("id as k, buyer.id as id", [("k", "id")]),
        ("buyer.*", []),
        ("Input.*", [("id", "id"), ("buyer", "buyer")]),
        ("select o.id, o.buyer.id as b from input as o", [("id", "id")]),
    ],
)
def test_a_field_of_a_struct_is_not_the_column_of_its_name(sql, columns):
    rows = pa.record_batch({"id": [1, 2], "buyer": pa.array([{"id": 2}, {"id": 1}])})
    passed = Select(sql).dependencies({"in": rows.schema})
    assert [(one.out, one.into) for one in passed] == columns


def test_records_of_a_select_are_found_by_columns_not_by_fields():
    rows = pa.table({"id": [1, 2], "buyer": pa.array([{"id": 2}, {"id": 1}])})
    p = ll.Pipeline("fields")
    made = p.source("orders", ll.sources.batches([rows])).select("s", "buyer.id, id as number")
    made.sink("store", ll.sinks.collect())
    p.lineage()
    log = p.run(engine="inline").log
    found = log.backward("s", where="id = 1", to="orders", records=True)
    assert [json.loads(record)["id"] for record in found["record"].to_pylist()] == [2]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "is no SQL"),
        ("item,, amount", "can't be read"),
        ("select 1; select 2", "has 2 statements"),
        ("random() as r", r"calls random\(\), which gives something else each time"),
        ("now() as t", "something else each time"),
        ("current_date as t", "something else each time"),
        ("select * from read_csv('/etc/passwd')", "it may read 'input' only"),
        ("select * from input using sample 2 rows", "takes a sample"),
    ],
)
def test_select_refuses_what_is_not_one_steady_query(sql, message):
    with pytest.raises(OptionError, match=message):
        Select(sql)
    with pytest.raises(OptionError, match="operator 's': "):
        stream().select("s", sql)


@pytest.mark.parametrize("sql", ["price", "select * from '/etc/passwd'", "amount + item"])
def test_select_refuses_what_does_not_fit_the_input(sql):
    with pytest.raises(SchemaError, match=r"operator 's': the SQL can't be applied to item string, amount int64"):
        stream().select("s", sql)


def test_select_refuses_columns_that_sql_does_not_know():
    rows = pa.record_batch({"n": pa.array([1], pa.decimal256(70, 2))})
    with pytest.raises(SchemaError, match="operator 's': the SQL can't be applied to n decimal256"):
        stream(rows).select("s", "n")


def test_sql_does_not_tell_names_by_case():
    with pytest.raises(SchemaError, match="'id' and 'ID' are one to SQL"):
        Select("id").schemas({"in": pa.schema({"id": pa.int64(), "ID": pa.int64()})})


def test_an_operator_that_has_run_is_still_the_same_code():
    used, fresh = Select("item"), Select("item")
    drive(used)
    assert code_digest(used) == code_digest(fresh)
    assert len(pickle.dumps(used)) == len(pickle.dumps(fresh))
    assert cloudpickle.loads(cloudpickle.dumps(used)).query.run(ROWS)["item"].to_pylist() == ROWS["item"].to_pylist()


# ---- with_columns -----------------------------------------------------------------------------------------------


def test_with_columns_takes_expressions_sql_and_functions():
    op = WithColumns(
        {
            "twice": pc.field("amount") * 2,
            "upper": "upper(item) -- a comment",
            "amount": lambda batch: pc.add(batch["amount"], 1),
            "one": lambda batch: pa.scalar(1, pa.int8()),
        }
    )
    made = drive(op).out()
    assert made.schema.names == [*ROWS.schema.names, "twice", "upper", "one"]
    assert made.select(["amount", "twice", "upper", "one"]).to_pylist()[1:3] == [
        {"amount": 8, "twice": 14, "upper": "JAM", "one": 1},
        {"amount": 2, "twice": 2, "upper": None, "one": 1},
    ]
    assert depends(op) == [(name, name) for name in ("item", "sold", "tags")]


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({}, OptionError, "needs at least one"),
        ({"x": 3}, OptionError, "x= is an int: give an Arrow expression, SQL, or a function"),
        ({"x": lambda: 1}, OptionError, "can't be called so"),
        ({"x": pc.field("price")}, SchemaError, "x= can't be computed of item string"),
        ({"x": "sum(amount)"}, SchemaError, "must give one value for each row"),
        ({"x": "price"}, SchemaError, "the SQL can't be applied"),
        ({"x": lambda batch: []}, SchemaError, "x= has no type when there are no rows"),
        ({"x": lambda batch: pa.array([1])}, SchemaError, "gave 1 values for 0 rows"),
    ],
)
def test_with_columns_refuses_what_gives_no_column(columns, error, message):
    with pytest.raises(error, match=message):
        stream().with_columns("w", **columns)


# ---- split ------------------------------------------------------------------------------------------------------


def test_a_row_leaves_on_the_port_of_the_first_condition_that_is_true():
    op = Split({"large": pc.field("amount") > 5, "known": "item is not null"})
    made = drive(op)
    assert [made.out(port)["amount"].to_pylist() for port in ("large", "known", "rest")] == [[7], [4, None], [1]]
    assert depends(op) == [(name, name) for name in ROWS.schema.names]


def test_split_returns_its_ports():
    ports = stream().split("by", large="amount > 5", options={"version": "1"})
    assert list(ports) == ["large", "rest"]
    assert ports["rest"].name == "by.rest"
    assert ports["rest"].preview()["amount"].to_pylist() == [4, 1, None]


@pytest.mark.parametrize("port", ["rest", "errors"])
def test_split_keeps_two_names_for_itself(port):
    with pytest.raises(BadName, match="'rest' and 'errors' are taken"):
        stream().split("by", **{port: "amount > 5"})


def test_a_condition_is_true_or_false():
    with pytest.raises(SchemaError, match="large= gives int64, not true or false"):
        stream().split("by", large="amount")


# ---- explode ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.large_list(pa.string())])
def test_explode_makes_a_row_for_each_element(kind):
    rows = ROWS.set_column(3, "tags", ROWS["tags"].cast(kind))
    made = [ll.testing.drive(Explode("tags", outer), crashes=True).send(rows).out() for outer in (False, True)]
    assert [(r["item"], r["tags"]) for r in made[0].to_pylist()] == [("tea", "a"), ("tea", "b"), ("oil", "c")]
    assert [(r["item"], r["tags"]) for r in made[1].to_pylist()] == [
        ("tea", "a"),
        ("tea", "b"),
        ("jam", None),
        (None, None),
        ("oil", "c"),
    ]
    assert depends(Explode("tags")) == [(name, name) for name in ("item", "amount", "sold")]


@pytest.mark.parametrize("skip", [0, 1])
def test_explode_makes_no_row_of_what_lies_under_a_null(skip):
    """Arrow may keep values under a list that is null: a mask was laid over it."""
    lists = pa.ListArray.from_arrays([0, 2, 4, 5], pa.array([1, 2, 9, 9, 3]), mask=pa.array([False, True, False]))
    rows = pa.record_batch({"id": [1, 2, 3], "tag": lists}).slice(skip)
    made = [(row["id"], row["tag"]) for row in drive(Explode("tag"), rows).out().to_pylist()]
    assert made == [(1, 1), (1, 2), (3, 3)][2 * skip :]
    made = [(row["id"], row["tag"]) for row in drive(Explode("tag", outer=True), rows).out().to_pylist()]
    assert made == [(1, 1), (1, 2), (2, None), (3, 3)][2 * skip :]


def test_explode_takes_a_column_of_lists():
    with pytest.raises(SchemaError, match="takes a column of lists, and 'item' is string"):
        stream().explode("e", "item")
    with pytest.raises(SchemaError, match="no column 'tag'"):
        stream().explode("e", "tag")


# ---- flat_map_rows ----------------------------------------------------------------------------------------------

OUT = pa.schema({"item": pa.string(), "n": pa.int64()})


def units(row):
    for n in range(1 // (row["amount"] - 1) if row["amount"] == 1 else row["amount"] or 0):
        yield {"item": row["item"], "n": n}


def test_flat_map_rows_makes_any_number_of_rows():
    op = FlatMapRows(units, OUT, "divert")
    made = drive(op)
    assert made.out()["n"].to_pylist() == [*range(4), *range(7)]
    (error,) = made.out("errors").to_pylist()
    assert "ZeroDivisionError" in error["reason"]


def test_flat_map_rows_drops_or_stops_too():
    assert drive(FlatMapRows(units, OUT, "drop"), crashes=False).counters == {"dropped": 1}
    with pytest.raises(PipelineFailed, match=r"(?s)ZeroDivisionError.*in row 2 of its event"):
        drive(FlatMapRows(units, OUT), crashes=False)


def test_flat_map_rows_refuses_what_is_no_rows():
    with pytest.raises(PipelineFailed, match="it must return several rows, as a list of dicts"):
        drive(FlatMapRows(dict, OUT), crashes=False)  # type: ignore[arg-type]

    async def rows(row):
        return []

    with pytest.raises(OptionError, match="takes a plain function"):
        FlatMapRows(rows, OUT)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="option retry: rows are set aside one by one"):
        stream().flat_map_rows("f", units, schema=OUT, retry=ll.Retry(attempts=3), on_error="divert")


# ---- check_rows -------------------------------------------------------------------------------------------------

RULES = {"cheap": pc.field("amount") < 7, "known": "item is not null", "small": lambda b: pc.less(b["amount"], 5)}


def test_rows_that_break_a_rule_are_diverted_with_its_name():
    made = drive(CheckRows(RULES), crashes=False)
    assert made.out()["item"].to_pylist() == ["tea"]
    assert made.out("errors")["reason"].to_pylist() == ["cheap, small", "known"]
    assert made.counters == {"failed_cheap": 2, "failed_known": 1, "failed_small": 2}  # null is not true


@pytest.mark.parametrize(("on_fail", "items"), [("drop", ["tea"]), ("count", ["tea", "jam", None, "oil"])])
def test_rows_that_break_a_rule_are_dropped_or_counted(on_fail, items):
    made = drive(CheckRows(RULES, on_fail), crashes=False)
    assert made.out()["item"].to_pylist() == items
    assert made.out("errors").num_rows == 0
    assert made.counters["failed_cheap"] == 2
    assert drive(CheckRows(RULES, on_fail)).out()["item"].to_pylist() == items


def test_a_row_that_breaks_a_rule_stops_the_run():
    with pytest.raises(PipelineFailed, match=r"RuleBroken: row 1 of its event breaks the rule cheap, small: \{'i"):
        drive(CheckRows(RULES, "stop"), crashes=False)


def test_check_rows_refuses_what_it_does_not_know():
    with pytest.raises(OptionError, match="on_fail='stopp': use divert, drop, count, stop"):
        stream().check_rows("c", on_fail="stopp", cheap="amount < 7")
    with pytest.raises(OptionError, match="check_rows needs at least one"):
        stream().check_rows("c")


def test_the_log_has_the_diverted_rows():
    p = ll.Pipeline("fix")
    rows = p.source("orders", ll.sources.batches([pa.table({"n": [1, -2]})]))
    rows.check_rows("checked", positive="n > 0").sink("store", ll.sinks.collect())
    run = p.run(engine="inline")
    assert run.result("store")["n"].to_pylist() == [1]
    assert run.log.errors()["reason"].to_pylist() == ["positive"]
    assert run.log.errors(rows=True)["n"].to_pylist() == [-2]
    assert run.status().operators["checked"].counters == {"failed_positive": 1}
