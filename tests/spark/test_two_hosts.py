"""A Spark cluster of several hosts with its log in PostgreSQL: processes, hosts, the network, the master, the
database and the driver fail one after the other, and every row comes out once. The hosts are real to all that runs on
them (`tests/spark/hosts.py`). Delay and loss are not tried: not every kernel can (`netem`)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.hosts import Cluster, Host, cluster, why_not
from tests.spark.shop_job import EVENTS, FILES, totals
from tests.waiting import until

from logline.runtime.messages.notes import GROUP_STATUSES, GroupStatus

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
EXECUTOR, WORKER, MASTER = "CoarseGrainedExecutorBackend", "worker.Worker", "master.Master"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        made.postgres.ask("create table pace (allowed int)")
        made.postgres.ask("insert into pace values (0)")
        yield made


class Story:
    """A pipeline on the cluster, as the test sees it: through the log, which it reads past the network."""

    def __init__(self, hosts: Cluster) -> None:
        self.hosts = hosts
        self.allowed = 0
        self.took: dict[str, float] = {}

    def more(self, events: int = 6) -> None:
        """Lets the source go on, and waits until what comes of it is in the target."""
        self.allowed += events
        self.hosts.postgres.ask("update pace set allowed = %s", self.allowed)
        until(lambda: self.stored() == totals(self.allowed) or self.failed())

    def failed(self) -> bool:
        """Raises if the run has failed."""
        assert "FAILED" not in self.hosts.said(), self.hosts.said()
        return False

    def stored(self) -> list[int]:
        if self.hosts.postgres.ask("select to_regclass('totals')") == [(None,)]:
            return []
        return [int(total) for (total,) in self.hosts.postgres.ask("select total from totals order by total")]

    def status(self, group: str) -> GroupStatus | None:
        query = "select status from two_hosts.statuses where name = %s"
        found = self.hosts.postgres.ask(query, group)
        return GROUP_STATUSES.decode(bytes(found[0][0])) if found else None

    def life(self, group: str) -> tuple[Host, int]:
        """Where it is: the host, and its process as this machine counts."""
        status = self.status(group)
        assert status is not None
        known = status.operators[group]
        assert known.pid is not None
        host = self.hosts.host_of(known.host)
        return host, host.here(known.pid)

    def after(self, what: str, fault: Callable[[], Any]) -> None:
        """A fault, and on it goes."""
        began = time.monotonic()
        fault()
        self.more()
        self.took[what] = round(time.monotonic() - began, 1)


def kill(host: Host, word: str) -> None:
    """Kills the processes of a host with this word in their command lines."""
    for pid in host.pids(word):
        os.kill(pid, signal.SIGKILL)


def test_one_fault_after_the_other(hosts: Cluster, record_property: Callable[[str, object], None]) -> None:
    story = Story(hosts)
    driver = hosts.drive(hosts.drivers[0], FILES)
    story.more()

    host, life = story.life("sums")
    story.after("a life killed", lambda: os.kill(life, signal.SIGKILL))
    until(lambda: story.life("sums")[1] != life)

    host, _ = story.life("sums")
    story.after("an executor killed", lambda: kill(host, EXECUTOR))

    host, _ = story.life("store")
    story.after("a worker killed", lambda: kill(host, WORKER))
    hosts.start_worker(host)

    host, _ = story.life("twice")
    story.after("a host lost with its disk", host.down)
    host.up()
    hosts.start_worker(host)

    def restart_postgres() -> None:
        hosts.postgres.stop()
        until(lambda: "the log's server is away" in hosts.said())
        hosts.postgres.start()

    story.after("PostgreSQL stopped and started", restart_postgres)

    kill(hosts.master, MASTER)
    story.after("the master killed", lambda: None)
    hosts.start_master()
    story.after("the master back", lambda: None)

    cut_off(story)

    kill(hosts.drivers[0], "job.py")
    driver.wait()
    story.after("the driver killed, resumed elsewhere", lambda: hosts.drive(hosts.drivers[1], FILES))
    story.more(EVENTS - story.allowed)
    until(lambda: "RESULT" in hosts.said() or story.failed())
    result = json.loads(hosts.said().partition("RESULT")[2].splitlines()[0])
    assert result == {"phase": "finished", "plain": list(range(1, EVENTS + 1))}
    assert story.stored() == totals(EVENTS)
    record_property("seconds", story.took)
    print(story.took)


def cut_off(story: Story) -> None:
    """The host of an operator is cut off. Its life goes on elsewhere; the old one comes back and changes nothing."""
    host, old = story.life("sums")
    story.after("a host cut off", host.cut)
    other, _ = story.life("sums")
    assert other is not host
    story.after("the host back", host.mend)
    until(lambda: not Path(f"/proc/{old}").exists())  # it was fenced off, or Spark has ended its executor
    story.more()
