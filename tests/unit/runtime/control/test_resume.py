"""A second run on the same log (R14): going on, refusing, taking over."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.runtime.taps import IDS, Bucket, Tap, Threes, piped, shared, start
from tests.waiting import PATIENCE

from logline.connectors import sinks, sources
from logline.errors import LogError, LogInUse, PipelineChanged, PipelineFailed, TakenOver
from logline.names import InstanceName, PortName
from logline.pipeline import Pipeline
from logline.runtime.control.evolution import changes
from logline.store.memory import open_memory
from logline.store.seam import Meta


def test_another_run_goes_on_where_the_last_one_stopped(key: str) -> None:
    tap, bucket = Tap(key), Bucket(key)
    p = Pipeline("threes")
    p.source("tap", tap).apply("threes", Threes(key)).sink("store", bucket)
    log = f"memory:{key}"
    with start(p, log) as run:
        tap.put(1, 2, run=run)
        shared(key).wait_for(lambda: len(shared(key).calls) == 2)
    with start(p, log) as run:
        tap.put(4, 8, run=run)
        bucket.wait_for(1 + 2 + 4)
    tap.put(16, 32)
    tap.close_it()
    run = start(p, log)
    assert run.wait(PATIENCE).phase == "finished"
    assert bucket.written == [7, 56]
    status = run.status()
    assert (status.operators["tap"].out, status.operators["threes"].taken) == (6, 6)
    assert status.operators["threes"].restarts == 0  # of this run


def test_a_finished_log_says_so_and_runs_nothing_twice(key: str, caplog: pytest.LogCaptureFixture) -> None:
    p, tap, bucket = piped(key)
    tap.put(1, 2)
    tap.close_it()
    log = f"memory:{key}"
    first = start(p, log).wait(PATIENCE)
    with caplog.at_level(logging.INFO, "logline"):
        again = start(p, log)
    assert "has finished on this log: nothing is run twice" in caplog.text
    assert again.wait(0) == first  # numbers and all
    assert again.stop().phase == "finished"
    assert bucket.written == [1, 2]
    start(p, log).wait(PATIENCE)  # the lease is free


def test_resume_never_wants_a_fresh_log_and_must_a_used_one(key: str) -> None:
    p, tap, _ = piped(key)
    log = f"memory:{key}"
    with pytest.raises(LogError, match="resume='must': the log has not been used"):
        start(p, log, resume="must").stop()
    with start(p, log, resume="never"):
        pass
    with pytest.raises(LogError, match="resume='never': the log has been used by pipeline 'piped'"):
        start(p, log, resume="never").stop()
    tap.close_it()
    assert start(p, log, resume="must").wait(PATIENCE).phase == "finished"


def test_after_a_failure_the_fixed_code_goes_on(key: str, caplog: pytest.LogCaptureFixture) -> None:
    kept = sinks.collect()

    def pipeline(fn: Any) -> Pipeline:
        p = Pipeline("fixed")
        orders = p.source("orders", sources.batches([pa.table({"id": [n]}) for n in range(4)]), rows=1)
        orders.map_batches("invert", fn, schema=IDS).sink("store", kept)
        return p

    def wrong(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"id": [12 // n for n in batch["id"].to_pylist()]})

    def right(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"id": [12 // n if n else 0 for n in batch["id"].to_pylist()]})

    with pytest.raises(PipelineFailed, match="ZeroDivisionError"):
        start(pipeline(wrong), f"memory:{key}").wait(PATIENCE)
    with caplog.at_level(logging.INFO, "logline"):
        assert start(pipeline(right), f"memory:{key}").wait(PATIENCE).phase == "finished"
    assert "operator 'invert': its code changed" in caplog.text
    assert kept.table()["id"].to_pylist() == [0, 12, 6, 4]


# ---- a changed pipeline -----------------------------------------------------------------------------------


def test_a_pipeline_that_changed_too_much_is_refused_and_the_log_left_alone(key: str) -> None:
    p, tap, bucket = piped(key)
    log = f"memory:{key}"
    with start(p, log):
        pass
    other = Pipeline("piped")
    other.source("tap", sources.batches([IDS.empty_table()])).sink("store", Bucket(key))
    with pytest.raises(PipelineChanged) as caught:
        start(other, log).stop()
    text = str(caught.value)
    assert "pipeline 'piped' can't go on with this log; what changed:" in text
    assert "operator 'tap': it read as" in text
    assert "give the new source another name" in text
    tap.put(1)
    tap.close_it()
    assert start(p, log).wait(PATIENCE).phase == "finished"
    assert bucket.written == [1]


def test_a_refused_pipeline_fences_nobody(key: str) -> None:
    p, tap, bucket = piped(key)
    log = f"memory:{key}"
    with start(p, log) as run:
        other = Pipeline("another")
        other.source("tap", Tap(key)).sink("store", Bucket(key))
        with pytest.raises(PipelineChanged, match="belongs to pipeline 'piped'"):
            start(other, log, takeover=True).stop()
        tap.put(1, run=run)
        bucket.wait_for(1)
        tap.close_it(run)
        assert run.wait(PATIENCE).phase == "finished"


def with_branch(key: str) -> tuple[Pipeline, Bucket]:
    copy = Bucket(f"{key} copy")
    p = Pipeline("piped")
    taps = p.source("tap", Tap(key))
    taps.sink("store", Bucket(key))
    taps.sink("copy", copy)
    return p, copy


def test_a_new_branch_gets_what_is_still_there(key: str, caplog: pytest.LogCaptureFixture) -> None:
    p, tap, bucket = piped(key)
    log = f"memory:{key}"
    with start(p, log) as run:
        tap.put(1, 2, run=run)
        bucket.wait_for(1, 2)
    tap.put(3)
    tap.close_it()
    p2, copy = with_branch(key)
    with caplog.at_level(logging.INFO, "logline"):
        assert start(p2, log).wait(PATIENCE).phase == "finished"
    assert "operator 'copy' was added" in caplog.text
    assert bucket.written == [1, 2, 3]
    assert copy.written == [1, 2, 3]


def test_a_new_branch_begins_after_what_is_collected(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """The pipeline has finished and its events are gone: the branch sees its end, and ends."""
    p, tap, bucket = piped(key)
    log = f"memory:{key}"
    tap.put(1, 2)
    tap.close_it()
    start(p, log).wait(PATIENCE)
    assert open_memory(key).read(InstanceName("tap")).stored(PortName("out")) == []
    p2, copy = with_branch(key)
    with caplog.at_level(logging.INFO, "logline"):
        assert start(p2, log).wait(PATIENCE).phase == "finished"
    assert "operator 'copy' begins with tap:4: earlier events are collected" in caplog.text
    assert copy.written == []
    assert bucket.written == [1, 2]


def test_a_driver_that_dies_while_a_new_branch_begins(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch has its first commit, and the log does not know of it yet: the next run goes on."""
    p, tap, bucket = piped(key)
    log, store = f"memory:{key}", open_memory(key)
    tap.put(1, 2)
    tap.close_it()
    start(p, log).wait(PATIENCE)
    p2, copy = with_branch(key)
    record = store.set_meta

    def die(meta: Meta) -> None:
        if "copy" in meta.graph.operators:
            raise KeyboardInterrupt
        record(meta)

    with monkeypatch.context() as patched:
        patched.setattr(store, "set_meta", die)
        with pytest.raises(KeyboardInterrupt):
            start(p2, log)
    assert store.read(InstanceName("copy")).image().commits == 1
    assert start(p2, log).wait(PATIENCE).phase == "finished"
    assert (bucket.written, copy.written) == ([1, 2], [])


def test_a_branch_that_was_removed_comes_back_as_another_one(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """What was sent meanwhile may be gone: it begins anew, under an id of its own."""
    p2, copy = with_branch(key)
    tap, log = Tap(key), f"memory:{key}"
    with start(p2, log) as run:
        tap.put(1, run=run)
        copy.wait_for(1)
    p, _, bucket = piped(key)
    with start(p, log) as run:
        tap.put(2, run=run)
        bucket.wait_for(1, 2)
    tap.put(3)
    tap.close_it()
    with caplog.at_level(logging.INFO, "logline"):
        assert start(p2, log).wait(PATIENCE).phase == "finished"
    assert "operator 'copy' was added" in caplog.text
    assert InstanceName("copy@2") in open_memory(key).instances()
    assert bucket.written == [1, 2, 3]
    assert copy.written[0] == 1
    assert copy.written[-1] == 3


# ---- one run at a time ------------------------------------------------------------------------------------


def test_a_log_in_use_is_refused(key: str) -> None:
    p, tap, bucket = piped(key)
    log = f"memory:{key}"
    with start(p, log) as run:
        with pytest.raises(LogInUse, match="takeover=True"):
            start(p, log).stop()
        tap.put(1, run=run)
        bucket.wait_for(1)


def test_takeover_ends_the_other_run_and_tells_it(key: str) -> None:
    p, tap, bucket = piped(key)
    log = f"memory:{key}"
    old = start(p, log)
    tap.put(1, 2, run=old)
    bucket.wait_for(1, 2)
    with start(p, log, takeover=True) as new:
        with pytest.raises(TakenOver, match="another run has taken the log"):
            old.wait(PATIENCE)
        assert old.status().phase == "stopped"
        assert "another run has taken the log" in old.stop().error
        tap.put(3, run=new)
        tap.close_it(new)
        assert new.wait(PATIENCE).phase == "finished"
    assert bucket.written == [1, 2, 3]


def test_takeover_of_a_run_that_is_at_work(key: str) -> None:
    """A write of the old run is under way when the new one begins; it lands late, and once."""
    p, tap, bucket = piped(key)
    log = f"memory:{key}"
    bucket.hold()
    old = start(p, log)
    tap.put(*range(1, 6), run=old)
    bucket.wait_until_writing()
    new = start(p, log, takeover=True)
    bucket.release()
    with pytest.raises(TakenOver):
        old.wait(PATIENCE)
    tap.put(6)
    tap.close_it(new)
    assert new.wait(PATIENCE).phase == "finished"
    assert bucket.written == [1, 2, 3, 4, 5, 6]


# ---- addresses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:hunter2@/sales?host=/nowhere", "can't be used"),
        ("postgresql://u:hunter2@db/sales?log=Sales", "takes small letters"),
        ("postgresql://u:hunt@er2:hunter2/sales", "address of the log can't be read"),
        ("host=db password=hunter2", "this is not the address of a log"),
        ("memory:", "says where it is"),
    ],
)
def test_no_message_about_an_address_repeats_a_secret(
    key: str, url: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logline.store.postgres.store.OPENING", 0.0)
    p, _, _ = piped(key)
    with pytest.raises(LogError, match=says) as caught:
        start(p, url)
    assert "hunter2" not in str(caught.value)


def test_what_a_log_remembers(key: str) -> None:
    p, tap, _ = piped(key)
    assert changes(p.graph(), f"memory:{key}") is None
    assert changes(p.graph(), f"memory:{key}") is None  # looking makes none
    tap.close_it()
    start(p, f"memory:{key}").wait(PATIENCE)
    before = open_memory(key).meta()
    assert before is not None
    assert list(before.graph.operators) == ["tap", "store"]
    assert "changed, refused: none" in str(p.check(f"memory:{key}"))
