"""A lookup in a stream is killed again and again: no row of the stream is lost, and none of the table."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.chaos.test_kill_keyed import EVENTS, KEYS, KILLS, Numbers
from tests.waiting import PATIENCE, until

import logline as ll


def test_kills_forget_no_row_of_a_table_and_repeat_none_of_the_stream(tmp_path: Path) -> None:
    """The numbers of a key rise in the table: what its orders find never falls; at the end the last one is known."""
    p = ll.Pipeline("lookups")
    table = ll.table(p.source("numbers", Numbers(str(tmp_path)), rows=3, within="0s"), key=["key"])
    orders = p.source("orders", Numbers(str(tmp_path)), rows=3, within="0s")
    orders.lookup("found", table, on=["key"]).sink("store", ll.sinks.collect())
    with p.start(f"lmdb:{tmp_path}/log", engine="processes") as run:
        for part in range(1, KILLS):
            reached = 2 * part * (EVENTS // KILLS)
            until(lambda reached=reached: run.status().operators["found"].taken >= reached)  # type: ignore[misc]
            pid = run.pid("found")
            (tmp_path / f"go {part}").touch()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        run.wait(PATIENCE)
        assert run.status().operators["found"].restarts >= 1
        rows = run.result("store").to_pylist()
        states = run.log.state("found").to_pylist()
    assert [row["n"] for row in rows] == list(range(EVENTS * 3))  # no order twice, none lost, in their order
    last: dict[int, int | None] = {}
    for row in rows:
        found, before = row["n_right"], last.get(row["key"])
        assert before is None or (found is not None and found >= before)
        last[row["key"]] = found
    known = {row["key"]: row["n"] for row in states}
    assert known == {(at + i) % KEYS: at * 3 + i for at in range(EVENTS) for i in range(3)}  # the last one of each
