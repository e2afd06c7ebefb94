"""Checkpoints of open sets over several runs (R22): what is taken in again, what is let go, what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.unit.runtime.taps import IDS, Bucket, Tap, shared, start
from tests.waiting import PATIENCE

import logline as ll
from logline.errors import OptionError, PipelineChanged, PipelineFailed, StateError
from logline.graph.eventual import Eventual
from logline.graph.model import Retry
from logline.graph.operator import Context, Emit, Event, Operator
from logline.names import InsetId, InstanceName, PortName, Serial
from logline.pipeline import Pipeline
from logline.runtime.control.run import Run

OFTEN = Eventual(replay=0, every="1ms", budget=1.0)


class Sums(msgspec.Struct):
    values: list[int] = []


class Summing(Operator[Sums, None]):
    """One set, which is generated at the end; tells of its updates."""

    outputs = {"out": IDS}  # noqa: RUF012

    def __init__(self, key: str, fails: int = 0) -> None:
        self.key = key
        self.fails = fails

    def assign(self, event: Event, ctx: Context[None]) -> list[InsetId]:
        return ["all"]

    def update(self, inset: InsetId, acc: Sums | None, event: Event) -> Sums:
        both = shared(self.key)
        with both.changed:
            both.calls.append(event.ssn)
            both.changed.notify_all()
        return Sums([*(acc.values if acc else ()), *event.batch["id"].to_pylist()])

    def generate(self, inset: InsetId, acc: Sums, ctx: Context[None]) -> Iterator[Emit]:
        both = shared(self.key)
        both.calls.append(ctx.id)
        if both.calls.count(ctx.id) <= self.fails:
            acc.values.clear()  # as code does that uses its state up
            raise ValueError("not yet")
        yield Emit(pa.record_batch([pa.array([sum(acc.values)], pa.int64())], schema=IDS))


class Wider(msgspec.Struct):
    values: list[int] = []
    more: int = 0


class Changed(Summing):
    """The same with another event state."""

    def update(self, inset: InsetId, acc: Wider | None, event: Event) -> Wider:  # type: ignore[override]
        return Wider([*(acc.values if acc else ()), *event.batch["id"].to_pylist()])


def pipeline(key: str, op: Operator[Any, Any] | None = None, **options: Any) -> tuple[Pipeline, Tap, Bucket]:
    tap, bucket = Tap(key), Bucket(key)
    p = Pipeline("summing")
    p.source("tap", tap).apply("sums", op or Summing(key), **options).sink("store", bucket)
    return p, tap, bucket


def covered(run: Run) -> int:
    rows = run.log.store.read(InstanceName("sums")).checkpoints()
    return max((row.covers for row in rows.values()), default=0)


def until_covered(run: Run, tap: Tap, count: int) -> None:
    """Rings until a checkpoint covers so many; each bell is a moment in which it may be written."""
    both = shared(tap.key)
    both.wait_for(lambda: len([c for c in both.calls if isinstance(c, int)]) >= count)
    with both.changed:
        while covered(run) < count:
            for instance in run.log.store.instances():
                run.log.store.ring(instance)
            both.changed.wait(0.01)


def fill(key: str, run: Run, tap: Tap, *ids: int) -> None:
    tap.put(*ids, run=run)
    until_covered(run, tap, len(shared(key).batches))


@pytest.mark.parametrize("log", ["memory:{key}", "lmdb:{tmp}"])
def test_a_later_run_takes_in_only_what_no_checkpoint_covers(key: str, tmp_path: Any, log: str) -> None:
    p, tap, bucket = pipeline(key, policy="eventual", eventual=OFTEN)
    url = log.format(key=key, tmp=tmp_path / "log")
    with start(p, url) as run:
        fill(key, run, tap, 1, 2, 4)
    assert shared(key).calls == [1, 2, 3]
    with start(p, url) as run:
        fill(key, run, tap, 8)
    tap.put(16)
    tap.close_it()
    assert start(p, url).wait(PATIENCE).phase == "finished"
    assert [c for c in shared(key).calls if isinstance(c, int)] == [1, 2, 3, 4, 5]
    assert bucket.written == [31]


def test_the_policy_may_change_from_run_to_run(key: str) -> None:
    log = f"memory:{key}"
    p, tap, bucket = pipeline(key)
    with start(p, log) as run:
        tap.put(1, 2, run=run)
        shared(key).wait_for(lambda: shared(key).calls == [1, 2])
    with start(pipeline(key, policy="eventual", eventual=OFTEN)[0], log) as run:
        shared(key).wait_for(lambda: shared(key).calls == [1, 2, 1, 2])  # there was no checkpoint yet
        fill(key, run, tap, 4)
    tap.put(8)
    tap.close_it()
    assert start(p, log).wait(PATIENCE).phase == "finished"
    assert [c for c in shared(key).calls if isinstance(c, int)] == [1, 2, 1, 2, 3, 4]
    assert bucket.written == [15]


def test_covered_events_are_collected_while_their_set_is_open(key: str) -> None:
    p, tap, _ = pipeline(key, policy="eventual", eventual=OFTEN)
    with start(p, f"memory:{key}") as run:
        store = run.log.store
        for n in range(3):
            fill(key, run, tap, *range(300 * n, 300 * (n + 1)))
        both = shared(key)
        with both.changed:
            while store.read(InstanceName("tap")).base(PortName("out")) < 500:
                for instance in store.instances():
                    store.ring(instance)
                both.changed.wait(0.01)
        image = store.read(InstanceName("sums")).image()
        assert [(opened.id, opened.count) for opened in image.sets.values()] == [("all", 900)]
        assert [m.ssn for m in store.read(InstanceName("sums")).covered(Serial(1))] == list(range(1, 901))


def test_the_log_says_what_recovery_would_have_to_do(key: str) -> None:
    p, tap, _ = pipeline(key, policy="eventual", eventual=OFTEN)
    with start(p, f"memory:{key}") as run:
        fill(key, run, tap, 1, 2, 4)
        status = run.status()
        sums = status.operators["sums"]
        assert (sums.checkpoints, sums.replay, sums.extent) == (1, 0, 1)
        said = "sums: recovery would read 1 record and take in 0 events again; 1 of 1 open sets have a checkpoint"
        assert said in str(status)
    assert run.log.sql("select state, covered from checkpoints").to_pylist() == [{"state": "check", "covered": 3}]
    (row,) = run.log.table("checkpoints").to_pylist()
    nbytes = row.pop("bytes")
    assert nbytes > 0
    known = {"inset_id": "all#1", "state": "check", "members": 3, "covered": 3, "extent": 1, "replay": 0}
    assert row == {"operator": "sums", **known}
    events = run.log.table("event_log").to_pylist()
    assert [(e["event_id"], e["inset_id"]) for e in events if e["rec_op"] == "sums"] != []


def test_another_try_begins_with_the_checkpoint_and_has_the_same_id(key: str) -> None:
    again = Retry(attempts=3, wait="1ms")
    p, tap, bucket = pipeline(key, Summing(key, fails=2), policy="eventual", eventual=OFTEN, retry=again)
    log = f"memory:{key}"
    with start(p, log) as run:
        fill(key, run, tap, 1, 2, 4)
    tap.put(8)
    tap.close_it()
    assert start(p, log).wait(PATIENCE).phase == "finished"
    calls = shared(key).calls
    ids = [c for c in calls if isinstance(c, str)]
    assert (len(ids), len(set(ids))) == (3, 1)
    assert {c for c in calls[3:] if isinstance(c, int)} == {4}  # each try takes in the rest, and nothing before it
    assert bucket.written == [15]


def test_a_parked_set_is_retried_from_its_checkpoint(key: str) -> None:
    p, tap, bucket = pipeline(key, Summing(key, fails=1), policy="eventual", eventual=OFTEN, on_error="divert")
    log = f"memory:{key}"
    with start(p, log) as run:
        fill(key, run, tap, 1, 2, 4)
    tap.close_it()
    run = start(p, log)
    assert run.wait(PATIENCE).phase == "finished"
    assert bucket.written == []
    (error,) = run.log.read("sums.errors").to_pylist()
    assert error["events"] == ["tap:1", "tap:2", "tap:3"]
    before = len(shared(key).calls)
    assert run.retry() == ["sums.errors:1"]
    assert start(p, log).wait(PATIENCE).phase == "finished"
    assert bucket.written == [7]
    assert [c for c in shared(key).calls[before:] if isinstance(c, int)] == []  # nothing was taken in again


def test_other_code_does_not_read_a_checkpoint(key: str) -> None:
    log = f"memory:{key}"
    p, tap, _ = pipeline(key, policy="eventual", eventual=OFTEN)
    with start(p, log) as run:
        fill(key, run, tap, 1, 2)
    changed, _, _ = pipeline(key, Changed(key), policy="eventual", eventual=OFTEN)
    said = r"operator 'sums': the event state .* was 'typed Sums\(.* and is now 'typed Wider\(.* not done: all; run"
    with pytest.raises(PipelineChanged, match=said):
        start(changed, log)
    assert re.search(said, str(changed.check(log)))
    tap.put(4)
    tap.close_it()
    run = start(changed, log, fresh=["sums"])  # from what the log still has
    assert run.wait(PATIENCE).phase == "finished"


ROWS = pa.schema([("item", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
OFTEN_INLINE = Eventual(replay=0, every="0s", budget=1.0)


def windowed(events: int, by: str = "item", schema: pa.Schema = ROWS, **more: Any) -> Pipeline:
    """A day with some events so far."""
    kinds = [field.type for field in schema]
    tables = [pa.table([["a"], pa.array([n], kinds[1]), pa.array([n], kinds[2])], schema) for n in range(events)]
    how: dict[str, Any] = {"agg": {"total": ("n", "sum")}, "policy": "eventual", "eventual": OFTEN_INLINE, **more}
    window = how.pop("window", ll.tumbling("1d", on="at"))
    if how["policy"] is None:
        how = {"agg": how["agg"]}
    p = Pipeline("days")
    rows = p.source("rows", ll.sources.batches(lambda: tables, schema=schema), rows=1)
    rows.window("daily", window, by=[by], **how).sink("store", ll.sinks.collect())
    return p


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"agg": {"total": ("n", "max")}},
            "was '.*n: sum' and is now '.*n: max': the log has checkpoints of",
        ),
        ({"by": "n", "agg": {"total": ("n", "sum")}}, r"was '.*by=\(item\).*' and is now '.*by=\(n\)"),
        ({"window": ll.tumbling("1d", on="at", updates="1h"), "policy": None}, "puts them out several times now"),
        (
            {"schema": ROWS.set(2, pa.field("n", pa.float64()))},
            "are in use: 'daily' has them in the sets",
        ),
    ],
)
def test_a_change_that_cannot_read_the_checkpoints_is_refused_before_anything_runs(
    tmp_path: Any, change: dict[str, Any], says: str
) -> None:
    log = f"lmdb:{tmp_path / 'log'}"
    run = windowed(3).run(log, engine="inline", until="now")
    daily = run.status().operators["daily"]
    assert (daily.replay, daily.extent) == (0, 1)
    changed = windowed(4, **change)
    refused = str(changed.check(log)).partition("changed, refused:")[2]
    assert re.search(f"operator '(daily|rows)': .*{says}", refused)
    assert 'fresh=["' in refused and "--close" in refused
    with pytest.raises(PipelineChanged, match=says):
        changed.run(log, engine="inline")
    assert windowed(4).run(log, engine="inline").result("store")["total"].to_pylist() == [6]  # nothing has happened
    windowed(5, **change).run(log, engine="inline")  # no set is open any more


class Opaque(Summing):
    """Has an event state that nothing can write."""

    def update(self, inset: InsetId, acc: Any, event: Event) -> Any:
        return object()


def test_a_state_that_cannot_be_written_stops_with_what_to_do(key: str) -> None:
    p, tap, _ = pipeline(key, Opaque(key), policy="eventual", eventual=OFTEN)
    tap.put(1)
    with pytest.raises(
        PipelineFailed, match=r"'sums': its event state can't be logged: .* define encode\(self, acc\)"
    ):
        start(p, f"memory:{key}").wait(PATIENCE)


class Declared(Summing):
    def update(self, inset: InsetId, acc: Any, event: Event) -> dict[str, Tap]:  # type: ignore[override]
        return {}


class Mixed(Summing):
    def update(self, inset: InsetId, acc: Any, event: Event) -> Tap | list[int]:  # type: ignore[override]
        return []


class Half(Summing):
    def encode(self, acc: Any) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("op", "what"),
    [
        (Declared, "its event state has a Tap, which can't be logged: declare its type"),
        (Mixed, r"its event state can't be logged \(Type unions .*: declare its type"),
        (Half, r"it defines encode\(\) and needs decode\(\) too"),
    ],
)
def test_what_is_known_beforehand_is_refused_when_it_is_defined(key: str, op: type[Summing], what: str) -> None:
    with pytest.raises(StateError, match=f"operator 'sums': {what}"):
        pipeline(key, op(key), policy="eventual")


def test_a_stateless_operator_a_source_and_a_sink_have_no_checkpoints(key: str) -> None:
    tap = Pipeline("p").source("tap", Tap(key))
    with pytest.raises(OptionError, match="'tap': the policy 'eventual' is refused: a source has no input sets"):
        Pipeline("p").source("tap", Tap(key), policy="eventual")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'s': the policy 'eventual' is refused: a sink takes each event by itself"):
        tap.sink("s", Bucket(key), policy="eventual")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="'m': the policy 'eventual' is refused: it takes each event by itself"):
        tap.map_rows("m", lambda row, ctx: row, schema="id long", policy="eventual")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"'f': the policy 'eventual' is refused: Filter defines no assign\(\)"):
        tap.filter("f", lambda batch: batch, policy="eventual")


def test_the_state_of_a_key_is_in_the_log_as_it_is(key: str) -> None:
    tap = Pipeline("p").source("tap", Tap(key))
    other = tap.pipeline.source("other", Tap(key))
    said = "the policy 'eventual' is refused: the state of each key is in the log as it is, so there is nothing to"
    with pytest.raises(OptionError, match=f"'s': {said}"):
        tap.stateful("s", lambda b, ctx: b, by=["id"], state=Sums, schema=IDS, policy="eventual")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=f"'d': {said}"):
        tap.dedup("d", by=["id"], policy="eventual")
    with pytest.raises(OptionError, match=f"'t': {said}"):
        tap.top("t", 3, by=["id"], order="id", policy="eventual")
    with pytest.raises(OptionError, match=f"'l': {said}"):
        tap.lookup("l", ll.table(other, key=["id"]), on=["id"], policy="eventual")


@pytest.mark.parametrize(
    "window",
    [
        ll.session_window("10m", on="at"),
        ll.tumbling("1h", on="at", updates="5m"),
        ll.tumbling("1h", on="at", early="1s"),
        ll.whole(every="1s"),
        ll.whole(events=10),
    ],
)
def test_windows_that_move_members_have_no_checkpoints(window: Any) -> None:
    batch = pa.record_batch({"id": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))})
    stream = Pipeline("p").source("clicks", ll.sources.batches([batch]))
    agg = {"n": ("id", "count")}
    with pytest.raises(OptionError, match=r"'w': the policy 'eventual' is refused: \w+ merges input sets or puts"):
        stream.window("w", window, agg=agg, policy="eventual")
    stream.window("v", window, agg=agg)


@pytest.mark.parametrize("window", [ll.tumbling("1h", on="at"), ll.whole()])
def test_windows_that_are_put_out_once_may_have_checkpoints(window: Any) -> None:
    batch = pa.record_batch({"id": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))})
    stream = Pipeline("p").source("clicks", ll.sources.batches([batch]))
    stream.window("w", window, agg={"n": ("id", "count")}, policy="eventual")
