"""A folder that is removed while a process uses its log, and a fresh log in its place: noticed, and said."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.errors import LogError
from logline.names import BoxName, InstanceName
from logline.runtime.control.remote_control import tell_run
from logline.runtime.messages.commands import Stop
from logline.store.address import find_same, open_store

ENGINES = pytest.mark.parametrize("engine", ["inline", "processes"])
ANOTHER = r"is another one by now: .* Open it again, with ll\.open_log\(\.\.\.\), or start the pipeline again"
GONE = r"the log is gone: somebody has removed .*start the pipeline again on a fresh log"


class Numbers(ll.Source):
    schema = pa.schema({"n": pa.int64()})
    gather = False

    def __init__(self, last: int | None) -> None:
        self.last = last

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        n = offset or 0
        while self.last is None or n < self.last:
            n += 1
            yield pa.record_batch({"n": [n]}), n


def pipeline(last: int | None) -> ll.Pipeline:
    p = ll.Pipeline("numbers")
    numbers = p.source("numbers", Numbers(last))
    numbers.map_batches("op", lambda b: b, schema="n long").sink("store", ll.sinks.collect())
    return p


@ENGINES
def test_a_notebook_begins_anew_under_the_same_name(tmp_path: Path, engine: Any) -> None:
    url = f"lmdb:{tmp_path}/log"
    first = pipeline(5).run(url, engine=engine)
    handle, unread = ll.open_log(url), ll.open_log(url)
    assert handle.sql("select count(*) as n from event_log").num_rows == 1
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(LogError, match=GONE):
        handle.sql("select 1")
    with pytest.raises(LogError, match=GONE):
        first.result("store")
    assert first.status().operators["store"].written == 5  # what is known of a run that is over stays known
    second = pipeline(7).run(url, engine=engine)
    assert (second.status().phase, second.result("store").num_rows) == ("finished", 7)
    assert second.log.log_id != first.log.log_id
    for ask in (
        lambda: handle.sql("select * from event_log"),
        lambda: unread.read("op:1"),  # it had opened no journal: it must not read that of the other log
        unread.errors,
        lambda: first.result("store"),
        lambda: first.retry("op.errors:1"),
    ):
        with pytest.raises(LogError, match=ANOTHER):
            ask()
    assert ll.open_log(url).log_id == second.log.log_id


@ENGINES
def test_a_run_whose_log_is_replaced_ends_with_that_reason(tmp_path: Path, engine: Any) -> None:
    url = f"lmdb:{tmp_path}/log"
    endless = pipeline(None).start(url, engine=engine)
    until(lambda: endless.status().operators["store"].taken > 0)
    (tmp_path / "log").rename(tmp_path / "away")  # at once: a run that works makes files anew while they are removed
    second = pipeline(7).start(url, engine=engine)
    with pytest.raises(ll.PipelineFailed, match=f"{ANOTHER}|{GONE}") as failed:
        endless.wait(PATIENCE)
    assert len(str(failed.value).splitlines()) == 1
    assert second.wait(PATIENCE).phase == "finished"
    assert second.result("store").num_rows == 7
    assert all(one.restarts == 0 for one in second.status().operators.values())  # the first one fenced nobody off


def test_what_belongs_to_a_log_that_is_replaced_touches_nothing_of_the_other(tmp_path: Path) -> None:
    """Its lease, its mail and its status; and no folder comes back that somebody has removed."""
    old = open_store(f"lmdb:{tmp_path}/log")
    lease, box = old.lease("one"), old.mail(BoxName("@driver"))
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(LogError, match="the log is gone"):
        old.claim(InstanceName("op"))
    assert not (tmp_path / "log").exists()
    new = open_store(f"lmdb:{tmp_path}/log")
    other = new.lease("two")
    tell_run(new, Stop())
    with pytest.raises(LogError, match=ANOTHER):
        lease.held()
    with pytest.raises(LogError, match=ANOTHER):
        box.receive()
    with pytest.raises(LogError, match=ANOTHER):
        old.put_status("@driver", b"{}")
    box.drop()
    lease.release()
    assert other.held() and len(new.mail(BoxName("@driver")).receive()) == 1 and not new.statuses()
    with pytest.raises(LogError, match=r"is another one .*Bring the log back, or start the pipeline again"):
        find_same(f"lmdb:{tmp_path}/log", old.log_id)
    other.release()
    old.close()
    new.close()
