"""The stores side by side: what a commit costs, relay and hop, on memory, LMDB and PostgreSQL, in one run.

- `commit`: one event of about 10 KB in each commit, one after the other: latency, processor time of the client and of
  the server, and bytes written to the disk (LMDB: of the process; PostgreSQL: of its WAL)
- `writers`: commits per second of several processes at once, each with a journal of its own. On two servers half of
  the journals are on each: whether a second server helps shows where cores and disks are not shared
- `relay`: source -> map -> sink in three processes at saturation (`benchmarks/relay.py`)
- `hop`: source -> operator -> target in two processes, without load (`benchmarks/hop.py`)

The server is on this machine and syncs its WAL. `two servers` spreads the journals over two of them.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from tests.postgres import Server

from benchmarks import hop, relay
from benchmarks.measure import write
from logline.engine.events import Output
from logline.engine.step import Step
from logline.names import OUT, InstanceName, Serial, Ssn
from logline.store.address import open_store
from logline.store.postgres.spread import server_of
from logline.store.seam import Journal

COMMITS = int(os.environ.get("STORES_COMMITS", "500"))
REPEATS = int(os.environ.get("STORES_REPEATS", "3"))
WRITERS = tuple(int(many) for many in os.environ.get("STORES_WRITERS", "1,4").split(","))
STORES = ("memory", "lmdb process", "lmdb disk", "postgres", "two servers")


class Place:
    """Where the logs of one variant are."""

    def __init__(self, name: str, servers: list[Server]) -> None:
        self.name = name
        self._servers = servers
        self._count = 0

    @contextmanager
    def fresh(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The address of a fresh log, and the settings of a run on it."""
        self._count += 1
        log = f"{self.name.replace(' ', '_')}_{self._count}"
        if self.name == "memory":
            yield f"memory:{log}", {"engine": "inline"}
        elif self.name.startswith("lmdb"):
            with tempfile.TemporaryDirectory() as folder:
                yield f"lmdb:{folder}/log", {"engine": "processes", "durability": self.name.split()[1]}
        else:
            servers = self._servers if self.name == "two servers" else self._servers[:1]
            yield " ".join(f"{server.dsn}&log={log}" for server in servers), {"engine": "processes"}

    def written(self) -> int:
        """Bytes that were written up to now."""
        if self.name in ("postgres", "two servers"):
            return sum(int(server.ask("select pg_current_wal_lsn() - '0/0'::pg_lsn")) for server in self._servers)
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
        return int(fields["write_bytes"])

    def server_time(self) -> float:
        """Processor time of the servers, in seconds."""
        if self.name not in ("postgres", "two servers"):
            return 0.0
        return sum(server.processor_time() for server in self._servers)


def commits(place: Place) -> dict[str, float]:
    """One event after the other, as a source without load makes them."""
    with place.fresh() as (url, settings):
        store = open_store(url, durability=settings.get("durability"))
        journal = store.claim(InstanceName("source"))
        bytes_before, server_before, cpu_before = place.written(), place.server_time(), time.process_time()
        spent = _commit(journal)
        client, server = time.process_time() - cpu_before, place.server_time() - server_before
        written = place.written() - bytes_before
        journal.close()
        store.close()
    cut = statistics.quantiles(spent, n=100)
    return {
        "p50 ms": cut[49],
        "p99 ms": cut[98],
        "client us of cpu": 1e6 * client / COMMITS,
        "server us of cpu": 1e6 * server / COMMITS,
        "bytes written": written / COMMITS,
    }


def _commit(journal: Journal) -> list[float]:
    """Milliseconds of each commit."""
    batch = next(relay.batches())
    spent: list[float] = []
    for n in range(1, COMMITS + 1):
        event = Output(OUT, Ssn(n), batch, batch.num_rows, 9600, 9600 * n, Serial(0))
        began = time.perf_counter()
        journal.commit(Step(number=n, outputs=[event]))
        spent.append((time.perf_counter() - began) * 1000)
    return spent


def together(place: Place, writers: int) -> float:
    """Commits per second of so many processes."""
    spawn = multiprocessing.get_context("spawn")
    with place.fresh() as (url, settings):
        open_store(url, durability=settings.get("durability")).close()
        ready, done = (spawn.Barrier(writers + 1, timeout=600) for _ in range(2))  # a writer may die
        given = [(url, settings.get("durability"), name, ready, done) for name in _names(writers)]
        processes = [spawn.Process(target=_writer, args=one) for one in given]
        for process in processes:
            process.start()
        ready.wait()
        began = time.perf_counter()
        done.wait()
        spent = time.perf_counter() - began
        for process in processes:
            process.join()
    return writers * COMMITS / spent


def _names(writers: int) -> list[InstanceName]:
    """Names of journals that are spread evenly over two servers."""
    known: tuple[list[InstanceName], list[InstanceName]] = ([], [])
    for n in range(64 * writers):
        name = InstanceName(f"source{n}")
        known[server_of(name, 2)].append(name)
    return [name for pair in zip(*known, strict=False) for name in pair][:writers]


def _writer(url: str, durability: Any, name: InstanceName, ready: Barrier, done: Barrier) -> None:
    store = open_store(url, durability=durability)
    journal = store.claim(name)
    ready.wait()
    _commit(journal)
    done.wait()
    journal.close()
    store.close()


def relayed(place: Place) -> float:
    """Events per second."""
    with place.fresh() as (url, settings):
        return relay.logged(url, settings)


def hopped(place: Place) -> dict[str, list[float]]:
    """Milliseconds of each event."""
    with place.fresh() as (url, settings):
        return hop.hop(url, settings)


def main() -> None:
    """Measures, prints and writes the JSON."""
    servers = [Server(fsync=True), Server(fsync=True)]
    try:
        places = {name: Place(name, servers) for name in STORES}
        results: dict[str, Any] = {name: {"commit": commits(place)} for name, place in places.items()}
        for name, found in results.items():
            said = "   ".join(f"{what} {value:,.2f}" for what, value in found["commit"].items())
            print(f"{name:<14} commit {said}", flush=True)
        for name in STORES[1:]:  # a log in memory has one process
            results[name]["writers"] = {str(many): together(places[name], many) for many in WRITERS}
            said = "   ".join(f"{many}: {rate:,.0f}/s" for many, rate in results[name]["writers"].items())
            print(f"{name:<14} writers {said}", flush=True)
        rates: dict[str, list[float]] = {name: [] for name in STORES}
        for _ in range(REPEATS):
            for name, place in places.items():
                rates[name].append(relayed(place))
                print(f"{name:<14} relay  {rates[name][-1]:>9.0f} events/s", flush=True)
        disk = statistics.median(rates["lmdb disk"])
        for name, values in rates.items():
            results[name]["relay"] = {
                "events per second": statistics.median(values),
                "min": min(values),
                "max": max(values),
                "of lmdb disk": statistics.median(values) / disk,
            }
            print(f"{name:<14} relay  {statistics.median(values) / disk:.2f} x lmdb disk", flush=True)
        for name, place in places.items():
            for way, spent in hopped(place).items():
                cut = statistics.quantiles(spent, n=100)
                results[name].setdefault("hop", {})[way] = {"p50 ms": cut[49], "p99 ms": cut[98]}
                print(f"{name:<14} hop    {way:<14} p50 {cut[49]:6.2f} ms   p99 {cut[98]:6.2f} ms", flush=True)
        write("stores", {"commits": COMMITS, "relay events": relay.EVENTS, "results": results})
    finally:
        for server in servers:
            server.end()


if __name__ == "__main__":
    main()
