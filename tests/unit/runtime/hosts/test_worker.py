"""A process may host one life after the other (a Spark worker does): nothing of a life stays in it."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest

import logline as ll
from logline.runtime.hosts.worker import _Forward, work
from logline.runtime.lives.instances import instances_of
from logline.runtime.messages.reports import LogLine, Over, Report, Started
from logline.store.address import open_store
from logline.store.processes import is_worker_process


def settings() -> tuple[object, ...]:
    """What a life changes of its process."""
    logger = logging.getLogger("logline")
    known = sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count(), is_worker_process()
    return (*known, logger.level, tuple(logger.handlers), frozenset(t.name for t in threading.enumerate()))


def test_nothing_of_a_life_stays_in_its_process(tmp_path: Path) -> None:
    url = f"lmdb:{tmp_path}/log"
    p = ll.Pipeline("numbers")
    p.source("numbers", ll.sources.batches([pa.table({"n": [1, 2]})])).sink("store", ll.sinks.collect())
    store = open_store(url, durability="process")
    instances = cloudpickle.dumps(instances_of(p.graph(), store.log_id))
    store.close()
    before = settings()
    said: list[Report] = []
    end = work(
        "all",
        instances,
        open_store(url),
        level=logging.INFO,
        armed="",
        life=0,
        say=said.append,
        obey=lambda engine: lambda: None,
    )
    assert end == Over("finished")
    assert Started(os.getpid()) in said
    assert settings() == before


def test_a_log_line_whose_format_does_not_fit_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[object] = []
    logger = logging.Logger("op")
    logger.addHandler(_Forward(said.append))
    logger.warning("%d rows", "three")
    logger.warning("%d rows", 3)
    assert said == [LogLine("op", logging.WARNING, "3 rows")]
    assert "Logging error" in capsys.readouterr().err
