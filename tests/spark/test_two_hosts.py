"""A Spark cluster of several hosts with its log in PostgreSQL: processes, hosts, the network, the master, the
database and the driver fail one after the other, and every row comes out once. The hosts are real to all that runs on
them (`tests/spark/hosts.py`). Delay and loss are not tried: not every kernel can (`netem`)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.hosts import ROOT, Cluster, Host, cluster, why_not
from tests.spark.shop_job import FILES, JOB, Story
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
EXECUTOR, WORKER, MASTER = "CoarseGrainedExecutorBackend", "worker.Worker", "master.Master"


PACK = """
import sys, tarfile, venv
from pathlib import Path

venv.create("environment", symlinks=True)
(site,) = Path("environment").glob("lib/*/site-packages")
(site / "rest.pth").write_text("\\n".join(sys.argv[1:]))  # what is large stays where it is
(site / "only_packed.py").write_text("def by_seven(n): return 7 * n")
with tarfile.open("environment.tar.gz", "w:gz") as packed:
    packed.add("environment", ".")
"""
PACKED_PIPELINE = """
import pyarrow as pa
import logline as ll


def by_seven(batch):
    import only_packed
    return pa.record_batch({"n": [only_packed.by_seven(n) for n in batch["n"].to_pylist()]})


def pipeline():
    p = ll.Pipeline("packed")
    numbers = p.source("numbers", ll.sources.batches([pa.record_batch({"n": [0, 1, 2]})]))
    numbers.map_batches("seven", by_seven, schema=pa.schema([("n", pa.int64())])).sink("plain", ll.sinks.collect())
    return p
"""
PACKED = {
    "job.py": JOB.replace('print("RESULT", ', 'print("PACKED", plain) if plain else print('),
    "beside.py": PACKED_PIPELINE,
    "pack.py": PACK,
}


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def story(hosts: Cluster) -> Story:
    return Story(hosts.postgres.ask, hosts.said, "two_hosts")


def home(hosts: Cluster, story: Story, operator: str) -> tuple[Host, int]:
    """The host of an operator, and its process as this machine counts."""

    def found() -> tuple[Host, int] | None:
        known = story.life(operator)
        assert known.pid is not None
        host = hosts.host_of(known.host)
        with contextlib.suppress(ProcessLookupError):  # it has died since it wrote that
            return host, host.here(known.pid)
        return None

    there = until(found)
    assert there is not None
    return there


def kill(host: Host, word: str) -> None:
    """Kills the processes of a host with this word in their command lines."""
    for pid in host.pids(word):
        os.kill(pid, signal.SIGKILL)


def test_one_fault_after_the_other(hosts: Cluster, story: Story) -> None:
    driver = hosts.drive(hosts.drivers[0], FILES)
    story.more()

    host, life = home(hosts, story, "sums")
    story.after("a life killed", lambda: os.kill(life, signal.SIGKILL))
    until(lambda: home(hosts, story, "sums")[1] != life)

    _, life = home(hosts, story, "sums")
    story.after("a life stopped", lambda: os.kill(life, signal.SIGSTOP))
    assert "the process of group sums makes no report: it is killed" in hosts.said()

    host, _ = home(hosts, story, "sums")
    story.after("an executor killed", lambda: kill(host, EXECUTOR))

    host, _ = home(hosts, story, "store")
    story.after("a worker killed", lambda: kill(host, WORKER))
    hosts.start_worker(host)

    host, _ = home(hosts, story, "twice")
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

    cut_off(hosts, story)

    kill(hosts.drivers[0], "job.py")
    driver.wait()
    until(lambda: not any(host.pids(EXECUTOR) for host in (hosts.one, hosts.two)))  # they end with it
    twice = json.dumps({"spark.speculation": True, "spark.speculation.task.duration.threshold": "1s"})
    again = hosts.drivers[1], FILES
    story.after("the driver killed, resumed elsewhere", lambda: hosts.drive(*again, SETTINGS=twice))

    until(lambda: "a second task of sums stands by" in hosts.said())
    story.more()
    host, _ = home(hosts, story, "sums")
    story.after("an executor killed, with a standby", lambda: kill(host, EXECUTOR))
    story.finish()
    print(story.took)


def test_an_environment_that_comes_with_the_driver(hosts: Cluster, story: Story) -> None:
    """Its Python is in an archive that Spark unpacks in each executor's folder, and has a module that nobody else
    has. Before, a Python without Logline: the message names the host."""
    log = {"LOG": f"{hosts.postgres.dsn}?log=packed", "OUT": hosts.postgres.dsn}
    bare = json.dumps({"spark.pyspark.python": "/usr/bin/python3", "spark.python.daemon.module": "pyspark.daemon"})
    hosts.drive(hosts.drivers[0], PACKED, SETTINGS=bare, **log).wait()
    assert re.search(r"FAILED a Spark task on \S+ can't host \w+: .*Python", hosts.said()), hosts.said()

    driver = hosts.drivers[0]
    pack = [sys.executable, "pack.py", sysconfig.get_path("purelib"), str(ROOT / "src")]
    assert driver.spawn(*pack, folder="/tmp/job").wait() == 0
    settings = {
        "spark.pyspark.python": "./environment/bin/python",
        "spark.archives": "environment.tar.gz#environment",
    }
    hosts.drive(driver, PACKED, SETTINGS=json.dumps(settings), **log).wait()
    assert "PACKED [0, 7, 14]" in hosts.said(), hosts.said()


def cut_off(hosts: Cluster, story: Story) -> None:
    """The host of an operator is cut off. Its life goes on elsewhere; the old one comes back and changes nothing."""
    host, old = home(hosts, story, "sums")
    story.after("a host cut off", host.cut)
    other, _ = home(hosts, story, "sums")
    assert other is not host
    story.after("the host back", host.mend)
    until(lambda: not Path(f"/proc/{old}").exists())  # it was fenced off, or Spark has ended its executor
    story.more()
