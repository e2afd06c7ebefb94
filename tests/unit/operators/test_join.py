"""Joins against DuckDB on the same rows: every kind, with nulls, duplicates, disorder, late rows and crashes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.harness import FakeContext

import logline as ll
from logline.errors import GraphError, LoglineError
from logline.graph.digest import code_digest
from logline.graph.operator import Event
from logline.operators import StreamJoin, sliding, tumbling, whole
from logline.testing import drive

HOWS: tuple[Any, ...] = ("inner", "left", "right", "outer", "semi", "anti")
TIME = pa.timestamp("s", "UTC")
LEFT = pa.schema([("key", pa.int64()), ("at", TIME), ("n", pa.int64())])
RIGHT = pa.schema([("key", pa.int64()), ("paid", TIME), ("n", pa.int64())])
SCHEMAS = {"left": LEFT, "right": RIGHT}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch(side, rows):
    keys, times, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    columns = [pa.array(keys, pa.int64()), pa.array(times, pa.int64()).cast(TIME), pa.array(numbers, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[side])


def join(within, **more):
    return StreamJoin(LEFT, RIGHT, within, **{"on": ["key"], "time": ("at", "paid"), **more})


def driven(op, events, crashes=True, **options):
    """Rows of all output ports, and the watermark as it was when each event came."""
    seen: dict[str, Any] = {"left": None, "right": None}
    marks = []
    with drive(op, crashes=crashes, **options) as it:
        for side in SCHEMAS:  # both schemas are known from the start
            it.send(batch(side, []), side)
        for side, rows in events:
            marks.append(None if None in seen.values() else min(seen.values()))
            it.send(batch(side, rows), side)
            times = [t for _, t, _ in rows if t is not None]
            seen[side] = max([*times, *([] if seen[side] is None else [seen[side]])], default=None)
        it.end()
        return {port: it.out(port) for port in op.schemas(SCHEMAS)}, marks


def event(side, rows):
    make: Any = Event
    return make("sender", "out", 1, side, rows)


def rows_of(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def oracle(how, left, right, condition, bounds=""):
    """The same by DuckDB, of whole tables."""
    with duckdb.connect(":memory:", config={"threads": "1"}) as db:
        db.execute("set TimeZone = 'UTC'")
        db.register("l", left)
        db.register("r", right)
        sides = {"outer": "full"}.get(how, how)
        made = (
            "l.*" if how in ("semi", "anti") else "coalesce(l.key, r.key) as key, l.at, l.n, r.paid, r.n as n_right"
        )
        on = f"l.key = r.key and {condition}"
        return db.sql(f"select {bounds}{made} from l {sides} join r on {on}").to_arrow_table()


TIMES = st.one_of(st.none(), st.integers(0, 40), st.integers(0, 40))
ROWS = st.lists(st.tuples(st.sampled_from([None, 1, 2, 3]), TIMES), max_size=5)
EVENTS = st.lists(st.tuples(st.sampled_from(["left", "right"]), ROWS), max_size=8)


def numbered(events):
    """Every row with a number of its own; duplicates are rows that are the same apart from it."""
    count = iter(range(1000))
    return [(side, [(key, time, next(count)) for key, time in rows]) for side, rows in events]


def accepted(side, events, late):
    """The rows of a side that are not late."""
    gone = set(late["n"].to_pylist())
    rows = [row for at, some in events if at == side for row in some]
    assert gone <= {n for _, _, n in rows} and {n for _, t, n in rows if t is None} <= gone
    return pa.Table.from_batches([batch(side, [row for row in rows if row[2] not in gone])])


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=15, deadline=None)
@given(
    events=EVENTS,
    bounds=st.tuples(st.integers(-12, 12), st.integers(-12, 12)),
    every=st.sampled_from([None, 1, 3, 10, 100]),
    lateness=st.sampled_from([0, 0, 5, 1000]),
)
def test_rows_near_in_time_are_joined_as_by_sql(how, events, bounds, every, lateness):
    low, high = sorted(bounds)
    events = numbered(events)
    spans = (timedelta(seconds=low), timedelta(seconds=high))
    length = None if every is None else timedelta(seconds=every)
    op = join(spans, how=how, every=length, lateness=timedelta(seconds=lateness))
    out, marks = driven(op, events)
    left, right = accepted("left", events, out["late"]), accepted("right", events, out["late_right"])
    condition = f"epoch(r.paid) - epoch(l.at) between {low} and {high}"
    assert rows_of(out["out"]) == rows_of(oracle(how, left, right, condition))
    for (side, rows), mark in zip(events, marks, strict=True):  # what is not behind the watermark is never late
        late = set(out["late" if side == "left" else "late_right"]["n"].to_pylist())
        on_time = {n for _, t, n in rows if t is not None and (mark is None or t >= mark - lateness)}
        assert not on_time & late


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=8, deadline=None)
@given(events=EVENTS, size=st.integers(1, 20), offset=st.integers(0, 3))
def test_rows_of_a_tumbling_window_are_joined_as_by_sql(how, events, size, offset):
    events = numbered(events)
    window = tumbling(timedelta(seconds=size), on="at", offset=timedelta(seconds=min(offset, size - 1)))
    out, _ = driven(join(window, how=how), events)
    left, right = accepted("left", events, out["late"]), accepted("right", events, out["late_right"])

    def start(column):
        return f"floor((epoch({column}) - {min(offset, size - 1)}) / {size})"

    expected = oracle(how, left, right, f"{start('l.at')} = {start('r.paid')}")
    assert rows_of(out["out"].drop_columns(["window_start", "window_end"])) == rows_of(expected)
    for row in out["out"].to_pylist():
        for time in (row["at"], row.get("paid")):
            assert time is None or row["window_start"] <= time < row["window_end"]
        assert row["window_end"] - row["window_start"] == timedelta(seconds=size)


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=8, deadline=None)
@given(events=EVENTS, step=st.integers(1, 6), more=st.integers(0, 9))
def test_rows_of_a_sliding_window_are_joined_as_by_sql(how, events, step, more):
    events = numbered(events)
    size = step + more
    window = sliding(*(timedelta(seconds=n) for n in (size, step)), on="at", lateness="1h")
    out, _ = driven(join(window, how=how), events)
    assert rows_of(out["out"]) == expected_windows(how, events, size, step)


def expected_windows(how, events, size, step):
    """Window by window in plain Python: two loops over the rows."""
    found: Counter[Any] = Counter()
    for start in range(-(size // step + 1) * step, 60, step):
        bounds = (EPOCH + timedelta(seconds=start), EPOCH + timedelta(seconds=start + size))
        left, right = (
            [
                (k, EPOCH + timedelta(seconds=t), n)
                for at, rows in events
                if at == side
                for k, t, n in rows
                if t is not None
            ]
            for side in SCHEMAS
        )
        left, right = ([row for row in rows if bounds[0] <= row[1] < bounds[1]] for rows in (left, right))
        pairs = [(a, b) for a in left for b in right if a[0] is not None and a[0] == b[0]]
        alone = [a for a in left if a not in [pair[0] for pair in pairs]]
        lonely = [b for b in right if b not in [pair[1] for pair in pairs]]
        rows: list[Any] = [] if how in ("semi", "anti") else [(*a, *b[1:]) for a, b in pairs]
        rows += [(*a, None, None) for a in alone if how in ("left", "outer")]
        rows += [(b[0], None, None, *b[1:]) for b in lonely if how in ("right", "outer")]
        rows += [a for a in left if how == "semi" and a not in alone] + [a for a in alone if how == "anti"]
        found.update((*bounds, *row) for row in rows)
    return found


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=5, deadline=None)
@given(events=EVENTS)
def test_all_rows_are_joined_as_by_sql(how, events):
    events = numbered(events)
    out, _ = driven(join(whole(), how=how, time=None), events)
    left, right = (
        pa.Table.from_batches([batch(side, [row for at, rows in events if at == side for row in rows])])
        for side in SCHEMAS
    )
    assert rows_of(out["out"]) == rows_of(oracle(how, left, right, "true"))


def test_a_match_comes_out_when_its_bucket_closes_and_an_unmatched_row_when_none_can_come():
    with drive(join(("0s", "10s"), how="left", every="5s")) as op:
        op.send(batch("left", [(1, 2, 1), (2, 3, 2)]), "left").send(batch("right", [(1, 12, 3)]), "right")
        op.send(batch("left", [(1, 14, 4)]), "left")
        assert op.out().num_rows == 0  # a match for the left row at 4 may come until 14
        op.send(batch("right", [(3, 15, 5)]), "right")
        assert op.out().num_rows == 0  # left rows have come to 14: one at 4 is not behind the watermark by its bucket
        op.send(batch("left", [(1, 15, 6)]), "left")
        assert op.out()["n_right"].to_pylist() == [3, None]


def test_an_unmatched_row_of_the_right_side_comes_out_when_no_left_row_can_come():
    with drive(join(("-5s", "0s"), how="right", every="5s")) as op:
        op.send(batch("right", [(1, 2, 1)]), "right").send(batch("left", [(9, 9, 2)]), "left")
        op.send(batch("right", [(9, 30, 3)]), "right")
        assert op.out().num_rows == 0  # the left row may be five seconds later than the last row of the bucket
        op.send(batch("left", [(9, 10, 4)]), "left")
        assert op.out()["n_right"].to_pylist() == [1]


def test_rows_are_in_the_order_of_the_left_side_then_of_the_right_side():
    with drive(join(("0s", "9s"))) as op:
        op.send(batch("right", [(1, 5, 1), (1, 3, 2), (2, 4, 3)]), "right")
        op.send(batch("left", [(2, 2, 4), (1, 1, 5)]), "left").send(batch("left", [(1, 0, 6)]), "left").end()
        pairs = zip(op.out()["n"].to_pylist(), op.out()["n_right"].to_pylist(), strict=True)
        assert list(pairs) == [(4, 3), (5, 1), (5, 2), (6, 1), (6, 2)]


def test_a_row_that_misses_one_of_its_sets_is_late_as_a_whole_and_counted():
    with drive(join(("-10s", "10s"), how="outer", every="10s")) as op:
        op.send(batch("left", [(1, 5, 1)]), "left").send(batch("right", [(2, 45, 2)]), "right")
        op.send(batch("left", [(3, 25, 3)]), "left")  # closes what waited for 20 and before
        op.send(batch("right", [(3, 16, 4), (3, 24, 5)]), "right").end()
        assert op.out("late_right")["n"].to_pylist() == [4]  # it could match 25, and has missed 6 to 9
        assert sorted(op.out()["n_right"].to_pylist(), key=str) == [2, 5, None]
        assert op.counters["late_right"] == 1


def test_rows_that_miss_some_windows_are_in_the_others_and_counted():
    with drive(join(sliding("10s", "5s", on="at"), how="inner")) as op:
        for side in ("left", "right"):
            op.send(batch(side, [(1, 20, 1)]), side)
        op.send(batch("left", [(1, 18, 2), (1, 4, 3)]), "left").end()  # 10..20 is out, 15..25 is not
        assert op.out("late")["n"].to_pylist() == [3]
        assert rows_of(op.out().select(["n", "n_right"])) == {(1, 1): 2, (2, 1): 1}
        assert op.counters["late_in_part"] == 1


def test_only_what_a_set_needs_is_kept():
    op = join(("0s", "5s"), how="semi")
    one = event("right", batch("right", [(1, 2, 3), (1, 50, 4)]))
    held: Any = op.update(EPOCH, None, one)
    assert held.right.table().to_pydict() == {"key": [1], "paid": [EPOCH + timedelta(seconds=2)]}


def test_a_joined_event_has_so_many_rows_at_most(monkeypatch):
    monkeypatch.setattr("logline.operators.join.ROWS", 4)
    with drive(join(("0s", "9s")), crashes=False) as op:
        for side in ("left", "right"):
            op.send(batch(side, [(1, 1, n) for n in range(3)]), side)
        op.end()
        assert op.out().num_rows == 9
        assert [len(chunk) for chunk in op.out()["n"].chunks] == [4, 4, 1]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.large_string(), ["a", "b", None]),
        (pa.dictionary(pa.int32(), pa.string()), ["x", "y", None]),
        (pa.date32(), [datetime(2026, 1, 1).date(), datetime(2026, 1, 2).date(), None]),
        (pa.timestamp("ns", "Europe/Paris"), [EPOCH, EPOCH + timedelta(days=1), None]),
        (pa.decimal128(10, 2), [1, 3, None]),
        (pa.float64(), [float("nan"), -0.0, None]),
        (pa.bool_(), [True, False, None]),
        (pa.binary(4), [b"aaaa", b"bbbb", None]),
    ],
    ids=str,
)
def test_keys_and_other_columns_may_be_of_many_types(kind, values):
    left = pa.table({"key": pa.array(values, kind), "list": [[1], None, [2]], "struct": [{"a": 1}, None, {"a": 2}]})
    right = left.rename_columns(["key", "list_2", "struct_2"]).take([1, 2, 0])
    op = StreamJoin(left.schema, right.schema, whole(), on=["key"], how="outer")
    with drive(op, crashes=not pa.types.is_floating(kind)) as it:  # NaN is not equal to itself
        found = it.send(left, "left").send(right.slice(0, 1), "right").send(right.slice(1), "right").end().out()
    assert found["list"].to_pylist() == [[1], None, [2], None]
    assert found["struct_2"].to_pylist() == [{"a": 1}, None, None, {"a": 2}]
    assert repr(found["key"].to_pylist()) == repr(pa.array([*values, None], kind).to_pylist())


def test_the_bounds_of_time_are_no_trouble():
    first, last = ((t.replace(tzinfo=UTC) - EPOCH) // timedelta(seconds=1) for t in (datetime.min, datetime.max))
    rows = [(1, first, 1), (1, last, 2)]
    for how in HOWS:
        with drive(join(("-3h", "3h"), how=how)) as op:
            found = op.send(batch("left", rows), "left").send(batch("right", rows), "right").end().out()
        assert found["n"].to_pylist() == ([] if how == "anti" else [1, 2])


def test_a_copy_knows_nothing_of_what_was_worked_out():
    op = join(("0s", "5s"))
    before = code_digest(op)
    op.update(EPOCH, None, event("left", batch("left", [(1, 1, 1)])))
    assert code_digest(op) == before


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=25, deadline=None)
@given(events=EVENTS, bounds=st.tuples(st.integers(-12, 12), st.integers(-12, 12)), size=st.sampled_from([1, 3, 10]))
def test_a_set_puts_nothing_out_that_is_earlier_than_it_says(how, events, bounds, size):
    low, high = (timedelta(seconds=bound) for bound in sorted(bounds))
    length = timedelta(seconds=size)
    for op in (join((low, high), how=how, every=length), join(tumbling(length, on="at"), how=how)):
        sets: dict[Any, Any] = {}
        for side, rows in numbered(events):
            one = event(side, batch(side, rows))
            for inset, note in op.assign(one, FakeContext()).items():
                sets[inset] = op.update(inset, sets.get(inset), one.with_note(note))
        for inset, acc in sets.items():
            says: Any = op.earliest(inset, acc)
            made: Any = op.generate(inset, acc, FakeContext())
            if isinstance(acc, pa.RecordBatch):
                assert says is None  # late rows: their port says nothing of time
                continue
            times = [row[name] for emit in made for row in emit.data.to_pylist() for name in row if name in TIMES_IN]
            assert all(time >= says for time in times if time is not None)


TIMES_IN = ("at", "paid", "window_start", "window_end")
EVENTUAL: dict[str, Any] = {"policy": "eventual", "eventual": ll.Eventual(replay=0, every="0s", budget=1.0)}


@pytest.mark.parametrize("within", [("-2s", "3s"), tumbling("10s", on="at"), sliding("10s", "5s", on="at"), whole()])
@pytest.mark.parametrize("how", HOWS)
def test_a_join_that_crashes_goes_on_from_its_checkpoints(how, within):
    events = [
        ("left", [(1, 1, 1), (2, 3, 2)]),
        ("right", [(1, 2, 3), (9, 2, 4), (1, None, 5)]),
        ("left", [(1, 4, 6), (2, 21, 7)]),
        ("right", [(2, 20, 8), (1, 22, 9)]),
        ("right", [(1, 1, 10), (2, 24, 11)]),  # the first one is late
        ("left", [(2, 23, 12)]),
    ]
    op = StreamJoin(LEFT, RIGHT, within, on=["key"], how=how, time=None if within == whole() else ("at", "paid"))
    with_checkpoints, _ = driven(op, events, **EVENTUAL)
    without, _ = driven(op, events)
    assert with_checkpoints == without


def test_a_join_that_crashes_takes_in_only_what_its_checkpoint_does_not_cover(monkeypatch):
    taken = []
    op = StreamJoin(LEFT, RIGHT, whole(), on=["key"])
    update = type(op).update

    def counted(self, inset, acc, event):
        taken.append(event)
        return update(self, inset, acc, event)

    monkeypatch.setattr(type(op), "update", counted)
    events = [("left", [(n, n, n)]) for n in range(20)] + [("right", [(n, n, n)]) for n in range(20)]
    driven(op, events, **EVENTUAL)
    often = len(taken)
    taken.clear()
    driven(op, events)
    assert often < 4 * len(events) < len(taken)  # two of them are driven, and one crashes after every event


# ---- definition -------------------------------------------------------------------------------------------------


@pytest.fixture
def streams():
    p = ll.Pipeline("joins")
    left = p.source("orders", ll.sources.batches([LEFT.empty_table()]))
    right = p.source("payments", ll.sources.batches([RIGHT.empty_table()]))
    return left, right


NEAR = ("0s", "5s")
TIMES_OF = ("at", "paid")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"within": NEAR}, "time: name the event-time columns"),
        ({"within": NEAR, "time": "at"}, "the right side has no column 'at': it has key int64, paid"),
        ({"within": NEAR, "time": ("at", "paid", "n")}, "write one column, or"),
        ({"within": NEAR, "time": ("n", "paid")}, "a time column is a timestamp or a date, not int64"),
        ({"within": "5s", "time": TIMES_OF}, "write how far apart rows may be"),
        ({"within": ("5s", "0s"), "time": TIMES_OF}, "the first bound is after the second one"),
        ({"within": ("5", "0s"), "time": TIMES_OF}, "'5' is not a duration"),
        ({"within": ("0s", "500ms"), "time": TIMES_OF}, "use a finer unit"),
        ({"within": NEAR, "time": TIMES_OF, "how": "cross"}, "take one of inner, left, right"),
        ({"within": NEAR, "time": TIMES_OF, "on": []}, "name at least one column"),
        ({"within": NEAR, "time": TIMES_OF, "on": "key"}, "write columns of both sides"),
        ({"within": NEAR, "time": TIMES_OF, "on": ["id"]}, "the left side has no column 'id'"),
        ({"within": NEAR, "time": TIMES_OF, "on": {"key": "at"}}, "the right side has no column 'at'"),
        ({"within": NEAR, "time": TIMES_OF, "on": {"key": "paid"}}, "is int64 and 'paid' of the right side is time"),
        ({"within": NEAR, "time": TIMES_OF, "on": {"key": "n", "n": "n"}}, "is there twice"),
        ({"within": NEAR, "time": TIMES_OF, "suffix": ""}, "it would be 'n', which is taken"),
        ({"within": NEAR, "time": TIMES_OF, "every": "0s"}, "must be longer"),
        ({"within": NEAR, "time": TIMES_OF, "idle": "0s"}, "idle must be positive"),
        ({"within": ll.tumbling("1h", on="at")}, "the right side has no column 'at'"),
        ({"within": ll.tumbling("1h", on="at"), "time": ("paid", "at")}, "the window names 'at'"),
        ({"within": ll.tumbling("1h", on="at"), "time": TIMES_OF, "lateness": "5s"}, "say it in the window"),
        ({"within": ll.tumbling("1h", on="at"), "time": TIMES_OF, "every": "5s"}, "the window says it"),
        (
            {"within": ll.tumbling("1h", on="at", updates="1m"), "time": TIMES_OF},
            "updates='60s' of the window: a join puts each window out once, when no more rows of it can come; leave",
        ),
        ({"within": ll.sliding("1h", "1m", on="at", early="1s"), "time": TIMES_OF}, "leave early= out, and give"),
        ({"within": ll.whole(every="1m")}, "within: every='60s' of the window: a join puts each window out once"),
        ({"within": ll.whole(events=5)}, "leave events= out, and join within ll.tumbling(...) or an interval"),
        ({"within": ll.events(3)}, "ll.tumbling, ll.sliding or ll.whole"),
        ({"within": ll.whole(), "time": "at"}, "goes by no time"),
        ({"within": ll.whole(), "rate": "3/s"}, "option rate is not honoured here"),
    ],
)
def test_what_is_wrong_is_said_at_definition(streams, given, says):
    left, right = streams
    with pytest.raises(LoglineError, match="operator 'j': ") as info:
        left.join("j", right, **{"on": ["key"], **given})
    assert says in str(info.value)
    assert "j" not in left.pipeline.graph().nodes


def test_more_that_is_wrong_is_said_at_definition(streams):
    left, _ = streams
    with pytest.raises(GraphError, match="a stream is joined with a stream, not with 3"):
        left.join("j", 3, on=["key"], within=ll.whole())
    other = ll.Pipeline("other").source("rows", ll.sources.batches([RIGHT.empty_table()]))
    with pytest.raises(LoglineError, match=r"operator 'j'.*a stream can't cross pipelines"):
        left.join("j", other, on=["key"], within=ll.whole())
    ms = pa.schema([("key", pa.int64()), ("at", pa.timestamp("ms"))])
    with pytest.raises(LoglineError, match=r"'at' of the right side is timestamp.ms.: give both one unit"):
        StreamJoin(LEFT, ms, NEAR, on=["key"], time="at")
    named = pa.schema([*LEFT, ("window_end", pa.int64())])
    with pytest.raises(LoglineError, match="the window adds the column 'window_end' itself"):
        StreamJoin(named, RIGHT, tumbling("1h", on="at"), on=["key"], time=("at", "paid"))
    with pytest.raises(LoglineError, match="'key' of the left side is list"):
        StreamJoin(pa.schema([("key", pa.list_(pa.int64()))]), RIGHT, whole(), on=["key"])
    with pytest.raises(LoglineError, match="several columns 'a'"):
        StreamJoin(pa.schema([("a", pa.int64())] * 2), RIGHT, whole(), on={"a": "key"})


def test_the_columns_of_what_comes_out(streams):
    left, right = streams
    joined = left.join("j", right, on={"n": "key"}, within=NEAR, time=TIMES_OF, suffix="_2")
    assert joined.schema.names == ["key", "at", "n", "paid", "n_2"]
    assert joined["late"].schema == LEFT and joined["late_right"].schema == RIGHT
    windows = left.join("w", right, on=["key"], within=ll.tumbling("1h", on="at"), time=TIMES_OF, how="semi")
    assert windows.schema.names == ["window_start", "window_end", "key", "at", "n"]
    strict = pa.schema([field.with_nullable(False) for field in LEFT])
    for how in HOWS:
        made: Any = StreamJoin(strict, RIGHT, whole(), on=["key"], how=how).schemas(SCHEMAS)["out"]
        assert made.field("at").nullable == (how in ("right", "outer"))


def test_a_stream_can_be_joined_with_itself():
    p = ll.Pipeline("self")
    rows = p.source("orders", ll.sources.batches([batch("left", [(1, 1, 1), (1, 3, 2), (2, 4, 3), (None, 2, 4)])]))
    pairs = rows.join("pairs", rows, on=["key"], within=("1s", "5s"), time="at")
    pairs.sink("store", ll.sinks.collect())
    found = p.run(engine="inline").result("store").to_pylist()
    assert [(row["n"], row["n_right"]) for row in found] == [(1, 2)]


def test_a_changed_interval_is_refused_while_sets_are_open():
    def defined(**changed):
        p = ll.Pipeline("changed")
        left, right = (p.source(side, ll.sources.batches([batch(side, [(1, 1, 1)])])) for side in ("left", "right"))
        given = {"within": ("-5s", "10s"), "time": TIMES_OF, "on": ["key"], **changed}
        left.join("j", right, **given).sink("store", ll.sinks.collect())
        return p

    log = "memory:changed-join"
    defined().run(log, engine="inline", until="now")
    for changed in ({"within": ("-6s", "10s")}, {"every": "3s"}, {"how": "left"}):
        with pytest.raises(LoglineError, match="operator 'j': it had on: key, how: inner"):
            defined(**changed).run(log, engine="inline", until="now")
    run = defined(suffix="_2").run(log, engine="inline")
    assert run.result("store").num_rows == 1
