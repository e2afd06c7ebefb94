"""Files that matter to living processes alone, as a power cut leaves them: they count as none, nothing is damaged."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

import logline as ll
from logline.runtime.log.log_status import log_status

CUT = {"empty": b"", "zeros": bytes(60), "half": b'{"kind": "driver_note", "run": "e9'}


def pipeline() -> ll.Pipeline:
    p = ll.Pipeline("sales")
    p.source("orders", ll.sources.batches([pa.table({"n": [1, 2]})])).sink("store", ll.sinks.collect())
    return p


@pytest.mark.parametrize("left", CUT)
@pytest.mark.parametrize("file", ["status/@driver.json", "lease.json"])
def test_what_a_power_cut_left_is_ignored(
    tmp_path: Path, left: str, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "logline")
    log = tmp_path / "log"
    pipeline().run(f"lmdb:{log}", engine="inline")
    (log / file).write_bytes(CUT[left])
    found = log_status(ll.open_log(f"lmdb:{log}").store)
    assert (found.phase, found.run, found.operators["store"].written) == ("finished", None, 1)
    again = pipeline().run(f"lmdb:{log}", engine="inline")
    assert again.result("store").num_rows == 2
    assert caplog.text == ""
