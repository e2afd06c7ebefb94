"""An error is retried while its operator has calls in flight, in a Spark task: none of them is made twice (R9)."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from tests.unit.runtime.control.test_live_resolution import AT_ONCE, ROWS, beside, finished, paid, pipeline
from tests.waiting import PATIENCE, until


def test_calls_in_flight_end_before_a_retry_and_the_task_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    """What the life before was told must not end the next one."""
    with pipeline(tmp_path).start(f"lmdb:{tmp_path / 'log'}", spark=spark, durability="process") as run:
        until(lambda: run.log.errors().num_rows == 1 and len(paid(tmp_path)) == 1 + AT_ONCE)
        (tmp_path / "fixed").touch()
        retry = beside(lambda: run.retry("ask.errors:1"))
        until(lambda: bool(run.status().operators["ask"].waits))
        assert len(paid(tmp_path)) == 1 + AT_ONCE
        (tmp_path / "answers").touch()
        retry.join(PATIENCE)
        assert finished(run) == list(range(ROWS))
        assert {name: one.restarts for name, one in run.status().operators.items() if one.restarts} == {"ask": 1}
    assert paid(tmp_path) == {0: 2, **dict.fromkeys(range(1, ROWS), 1)}
