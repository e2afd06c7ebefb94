"""Tumbling windows: LOG.io Examples 4 and 7, late records, every type of time column."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from tests.unit.operators.harness import Harness

from logline.connectors.sinks import collect
from logline.connectors.sources import batches
from logline.errors import OptionError, SchemaError
from logline.graph.digest import code_digest
from logline.graph.operator import Event
from logline.names import OUT, InstanceName, PortName, Ssn
from logline.operators import TumblingAggregate, WindowAggregate, tumbling
from logline.pipeline import Pipeline

TOTAL = {"total": ("amount", "sum")}
UTC_US = pa.timestamp("us", "UTC")


@pytest.fixture(params=[False, True], ids=["calm", "crashes"])
def crashes(request):
    return request.param


def at(hour, minute=0, day=1, tzinfo=UTC):
    return datetime(2026, 3, day, hour, minute, tzinfo=tzinfo)


def sales(*rows, type=UTC_US):
    times, items, amounts = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.record_batch(
        {
            "date": pa.array(times, type),
            "item": pa.array(items, pa.string()),
            "amount": pa.array(amounts, pa.int64()),
        }
    )


def hourly(crashes=False, type=UTC_US, by=("item",), size="1h", **more):
    op = WindowAggregate(tumbling(size, on="date", **more), by, TOTAL)
    return Harness(op, sales(type=type).schema, crashes=crashes)


def window(start, item, total, hours=1):
    return {
        "window_start": start,
        "window_end": start + timedelta(hours=hours),
        "item": item,
        "total": total,
    }


def test_example_7_a_2_belongs_to_both_hours_and_completes_the_first(crashes):
    op3 = hourly(crashes)
    op3.send(sales((at(9, 5), "x", 1), (at(9, 10), "y", 2)))
    assert op3.out() == []
    op3.send(sales((at(9, 50), "x", 4), (at(10, 1), "x", 8)))
    assert op3.out() == [[window(at(9), "x", 5), window(at(9), "y", 2)]]
    assert list(op3.sets) == [at(10)]
    op3.end()
    assert op3.out()[1:] == [[window(at(10), "x", 8)]]
    assert op3.generated == [at(9), at(10)]
    assert op3.out("late") == []


def test_an_event_may_span_many_hours(crashes):
    op3 = hourly(crashes).send(sales(*((at(hour, 30), "x", hour) for hour in (3, 1, 2, 1))))
    assert op3.out() == [[window(at(1), "x", 2)], [window(at(2), "x", 2)]]
    assert op3.end().out()[2:] == [[window(at(3), "x", 3)]]


def test_rows_of_many_hours_keep_their_order_within_each(crashes):
    """An event of many windows is sorted by window; what depends on the order of rows must not notice."""
    agg = {"all": ("amount", "collect_list"), "first": ("amount", "first")}
    op3 = Harness(WindowAggregate(tumbling("1h", on="date"), (), agg), sales().schema, crashes=crashes)
    hours = [5, 3, 9, 3, 5, 7, 3, 5]
    op3.send(sales(*((at(hour, 59 - n), "x", n) for n, hour in enumerate(hours)), (None, "x", 99)))
    op3.end()
    wanted = {hour: [n for n, found in enumerate(hours) if found == hour] for hour in sorted(set(hours))}
    assert [row["all"] for (row,) in op3.out()] == list(wanted.values())
    assert [row["first"] for (row,) in op3.out()] == [rows[0] for rows in wanted.values()]


def test_a_late_row_does_not_keep_its_event_in_memory():
    """Windows that share an event hold its rows together; a window with one row of thousands has a copy of that."""
    op = WindowAggregate(tumbling("1h", on="date"), (), TOTAL)
    event = sales(*((at(9 + n % 4), "x", n) for n in range(4000)), (at(1), "x", 1))
    held = op.update(at(1), None, Event(InstanceName("src"), OUT, Ssn(1), PortName("in"), event))
    (batch,) = held.parts.waiting.batches()
    assert batch.num_rows == 1
    assert batch.get_total_buffer_size() < event.get_total_buffer_size() / 100


def test_late_records_leave_on_their_port_and_are_counted(crashes):
    op3 = hourly(crashes).send(sales((at(9), "x", 1))).send(sales((at(11, 5), "x", 2)))
    late = sales((at(9, 59), "x", 7), (at(11, 6), "x", 3), (at(10, 30), "y", 8))
    op3.send(late).end()
    assert op3.out("late") == [late.take([0, 2]).to_pylist()]
    assert op3.ctx.counts == {"late": 2}
    assert op3.out() == [[window(at(9), "x", 1)], [window(at(11), "x", 5)]]
    assert ("late", "src:3") in op3.generated


def test_within_the_lateness_nothing_is_late(crashes):
    op3 = hourly(crashes, lateness="5m")
    op3.send(sales((at(9), "x", 1))).send(sales((at(10, 4), "x", 2)))
    assert op3.out() == []
    op3.send(sales((at(9, 59), "x", 4)))
    op3.send(sales((at(10, 5), "x", 8)))
    assert op3.out() == [[window(at(9), "x", 5)]]
    op3.send(sales((at(9, 59), "x", 16)))
    assert op3.out("late") == [[{"date": at(9, 59), "item": "x", "amount": 16}]]


def test_records_without_a_time_leave_on_the_late_port(crashes):
    batch = sales((None, "x", 1), (at(9), "x", 2))
    op3 = hourly(crashes).send(batch).end()
    assert op3.out("late") == [batch.slice(0, 1).to_pylist()]
    assert op3.ctx.counts == {"no_time": 1}
    assert op3.out() == [[window(at(9), "x", 2)]]


def test_late_and_timeless_in_one_event_are_counted_apart(crashes):
    op3 = hourly(crashes).send(sales((at(12), "x", 1)))
    op3.send(sales((at(9), "x", 2), (None, "x", 3), (at(12, 1), "x", 4)))
    assert op3.ctx.counts == {"late": 1, "no_time": 1}
    assert [len(rows) for rows in op3.out("late")] == [2]
    assert op3.end().out() == [[window(at(12), "x", 5)]]


def test_nothing_but_nulls_and_nothing_at_all(crashes):
    op3 = hourly(crashes).send(sales()).send(sales((None, "x", 1))).end()
    assert op3.out() == []
    assert op3.ctx.counts == {"no_time": 1}
    assert op3.generated == [("late", "src:2")]


def test_bounds_are_half_open(crashes):
    op3 = hourly(crashes).send(sales((at(9), "x", 1), (at(9, 59), "x", 2), (at(10), "x", 4))).end()
    assert op3.out() == [[window(at(9), "x", 3)], [window(at(10), "x", 4)]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("tz", [None, "UTC", "Europe/Berlin"])
def test_every_timestamp(unit, tz, crashes):
    def local(hour, minute=0):
        return at(hour, minute) if tz else at(hour, minute).replace(tzinfo=None)

    type = pa.timestamp(unit, tz)
    op3 = hourly(crashes, type)
    assert op3.outputs["out"].field("window_start").type == type
    op3.send(sales((local(9, 30), "x", 1), (local(10, 30), "x", 2), type=type)).end()
    assert op3.generated == [at(9), at(10)]
    assert op3.out() == [[window(local(9), "x", 1)], [window(local(10), "x", 2)]]


def test_a_zone_does_not_move_the_windows(crashes):
    type = pa.timestamp("us", "Asia/Kolkata")  # half an hour off
    zone = ZoneInfo("Asia/Kolkata")
    op3 = hourly(crashes, type).send(sales((datetime(2026, 3, 1, 15, 10, tzinfo=zone), "x", 1), type=type)).end()
    assert op3.generated == [at(9)]


def test_nanoseconds_below_a_microsecond_stay_in_their_window(crashes):
    nines = pa.array([3_600_000_000_000 - 1], pa.int64()).cast(pa.timestamp("ns"))
    batch = pa.record_batch({"date": nines, "item": ["x"], "amount": [1]})
    op3 = hourly(crashes, pa.timestamp("ns")).send(batch)
    assert op3.out() == []
    assert list(op3.sets) == [datetime(1970, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize("type", [pa.date32(), pa.date64()])
def test_dates(type, crashes):
    op3 = hourly(crashes, type, size="1d")
    op3.send(sales((date(2026, 3, 1), "x", 1), (None, "y", 9), type=type))
    op3.send(sales((date(2026, 3, 2), "x", 2), type=type))
    assert op3.outputs["out"].field("window_end").type == UTC_US
    assert op3.outputs["late"].field("date").type == type
    assert op3.out() == [[window(at(0), "x", 1, hours=24)]]
    assert op3.end().out()[1:] == [[window(at(0, day=2), "x", 2, hours=24)]]
    assert op3.out("late") == [[{"date": None, "item": "y", "amount": 9}]]


def test_before_1970(crashes):
    early = datetime(1969, 12, 31, 23, 30, tzinfo=UTC)
    op3 = hourly(crashes).send(sales((early, "x", 1), (early + timedelta(hours=1), "x", 2))).end()
    assert op3.generated == [early.replace(minute=0), datetime(1970, 1, 1, tzinfo=UTC)]


def test_without_groups(crashes):
    op3 = hourly(crashes, by=()).send(sales((at(9), "x", 1), (at(9), "y", 2))).end()
    row = {"window_start": at(9), "window_end": at(10), "total": 3}
    assert op3.out() == [[row]]


def test_many_events_of_one_window(crashes):
    op3 = hourly(crashes)
    for minute in range(50):
        op3.send(sales((at(9, minute), "x", minute), (at(9, minute), "y", 1)))
    assert op3.end().out() == [[window(at(9), "x", sum(range(50))), window(at(9), "y", 50)]]


def test_the_operator_declares_its_event_clock():
    op = WindowAggregate(tumbling("1h", on="date", lateness="5m", idle="1m"), (), TOTAL)
    assert isinstance(op, TumblingAggregate)
    assert (op.time, op.lateness, op.idle) == ({"in": "date"}, timedelta(minutes=5), timedelta(minutes=1))
    assert TumblingAggregate.time == {}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"size": "0s", "on": "t"}, "size must be positive"),
        ({"size": "1h", "on": ""}, "name of a column"),
        ({"size": "1h", "on": "t", "idle": "0s"}, "idle must be positive"),
        ({"size": "1h", "on": "t", "lateness": timedelta(-1)}, "negative"),
    ],
)
def test_windows_that_make_no_sense(args, message):
    with pytest.raises(OptionError, match=message):
        tumbling(args.pop("size"), **args)


def test_what_does_not_fit_the_input_is_said_before_the_run():
    with pytest.raises(SchemaError, match="no time column 'date'"):
        WindowAggregate(tumbling("1h", on="date"), (), TOTAL).schemas({"in": pa.schema({"amount": pa.int64()})})
    with pytest.raises(SchemaError, match="timestamp or a date, not string"):
        hourly(type=pa.string())
    with pytest.raises(SchemaError, match="use a finer unit"):
        hourly(type=pa.timestamp("s"), size="500ms")
    clash = WindowAggregate(tumbling("1h", on="date"), (), {"window_start": ("date", "min")})
    with pytest.raises(OptionError, match="adds the column 'window_start' itself"):
        clash.schemas({"in": sales().schema})
    with pytest.raises(OptionError, match="not a window"):
        WindowAggregate("1h", (), TOTAL)  # type: ignore[arg-type]


def test_an_operator_that_has_run_is_still_the_same_code():
    used, fresh = (WindowAggregate(tumbling("1h", on="date"), ("item",), TOTAL) for _ in range(2))
    Harness(used, sales().schema).send(sales((at(9), "x", 1)))
    assert code_digest(used) == code_digest(fresh)
    assert len(pickle.dumps(used)) == len(pickle.dumps(fresh))  # what it saw last is not shipped


@pytest.mark.parametrize("size", ["1d", "7d", "1h"])
def test_sentinel_dates_have_their_windows(size):
    """The year 1 and the year 9999, which stand for no date: Python has no instant before and after them."""
    times = [datetime(1, 1, 1, tzinfo=UTC), at(9), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)]
    p = Pipeline("sentinels")
    source = p.source("sales", batches([sales((when, "x", n)) for n, when in enumerate(times)]), rows=1)
    totals = source.window("w", tumbling(size, on="date", lateness="2d"), agg={"total": ("amount", "sum")})
    totals.sink("store", collect())
    made = p.run(engine="inline").result("store").to_pylist()
    assert [row["total"] for row in made] == [0, 1, 2]
    assert all(row["window_start"] <= when < row["window_end"] for row, when in zip(made, times, strict=True))
