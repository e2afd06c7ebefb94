"""What open errors hold: themselves, and the events that their sets are made of, until somebody decides (R12)."""

from __future__ import annotations

import pyarrow as pa

import logline as ll
from logline.names import ERRORS, OUT, InstanceName, Ssn
from logline.runtime.log.cleaning import clean
from logline.runtime.log.held import held_by_errors


def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ZeroDivisionError


def test_errors_hold_their_input_until_they_are_dropped(key: str) -> None:
    p = ll.Pipeline("held")
    numbers = p.source("numbers", ll.sources.batches([pa.record_batch({"n": list(range(500))})]))
    numbers.map_batches("shares", fail, schema="n long", on_error="divert")
    numbers.map_batches("fine", lambda batch: batch)
    run = p.run(f"memory:{key}", engine="inline")
    store = run.log.store
    clean(store)
    numbers_out = store.read(InstanceName("numbers")).headers(OUT, [Ssn(1)])[0]
    error = store.read(InstanceName("shares")).headers(ERRORS, [Ssn(1)])[0]
    assert numbers_out is not None and error is not None
    assert held_by_errors(store) == {"shares": (1, numbers_out.nbytes + error.nbytes)}
    assert run.drop("shares.errors:1")
    assert held_by_errors(store) == {}
