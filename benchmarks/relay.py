"""Throughput of source -> map -> sink in three processes with events of about 10 KB, at saturation.

- `process`, `disk`: Logline on the embedded log, every event logged twice on its way
- `tcp`: the same functions over TCP and Arrow IPC, unlogged, batched alike
- `file`: an append of the same bytes to plain files, with as many syncs as `disk` makes

The map function decodes, computes one column with Arrow and encodes. The time is that from the source's first event
to the sink's last one, so that starting processes does not count, and neither does a lead that the source may have.
Variants are interleaved and repeated.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import logline as ll
from benchmarks.measure import write
from logline.names import InstanceName

EVENTS = int(os.environ.get("RELAY_EVENTS", "40000"))
ROWS = 600
REPEATS = int(os.environ.get("RELAY_REPEATS", "3"))
TWO = pa.scalar(2.0)


def batches() -> Iterator[pa.RecordBatch]:
    """Events of about 9.6 KB."""
    base = pa.record_batch({"n": pa.array(range(ROWS), pa.int64()), "x": pa.array([float(n) for n in range(ROWS)])})
    for _ in range(EVENTS):
        yield base


def timed(folder: str) -> Iterator[pa.RecordBatch]:
    """The same, and notes when the first one is asked for."""
    Path(folder, "first").write_text(f"{time.monotonic()}")
    yield from batches()


def work(batch: pa.RecordBatch) -> pa.RecordBatch:
    """One column is computed."""
    return batch.set_column(1, "x", pc.multiply(batch.column(1), TWO))


class Clocked(ll.Sink):
    """Writes nothing, and notes when its last event came."""

    guarantee = "named"

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.count = 0

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        self.count += 1
        if number == EVENTS:
            spent = time.monotonic() - float(Path(self.folder, "first").read_text())
            Path(self.folder, "result").write_text(json.dumps({"seconds": spent, "events": self.count}))


def pipeline(folder: str) -> ll.Pipeline:
    """Source, map and sink, an operator each."""
    p = ll.Pipeline("relay")
    source = p.source("source", ll.sources.batches(partial(timed, folder)), rows=1 << 20)
    source.map_batches("map", work).sink("sink", Clocked(folder))
    return p


def logged(url: str, settings: dict[str, Any]) -> float:
    """Events per second through Logline, with a log there."""
    with tempfile.TemporaryDirectory() as folder:
        pipeline(folder).start(url, **settings).wait()
        found = json.loads(Path(f"{folder}/result").read_text())
    assert found["events"] == EVENTS
    return float(EVENTS / found["seconds"])


def embedded(durability: str) -> float:
    """The same with an embedded log."""
    with tempfile.TemporaryDirectory() as folder:
        return logged(f"lmdb:{folder}/log", {"engine": "processes", "durability": durability})


def _send(out: socket.socket, run: list[pa.RecordBatch]) -> None:
    parts = []
    for batch in run:
        body = batch.serialize()
        parts += [len(body).to_bytes(8, "big"), body]
    out.sendall(b"".join(bytes(p) for p in parts))


def _receive(peer: socket.socket, schema: pa.Schema) -> Iterator[list[pa.RecordBatch]]:
    rest = b""
    while data := peer.recv(1 << 20):
        rest += data
        at, run = 0, []
        while len(rest) - at >= 8:
            size = int.from_bytes(rest[at : at + 8], "big")
            if len(rest) - at - 8 < size:
                break
            run.append(pa.ipc.read_record_batch(pa.py_buffer(rest[at + 8 : at + 8 + size]), schema))
            at += 8 + size
        rest = rest[at:]
        if run:
            yield run


def _relay_source(port: int, folder: str) -> None:
    with socket.create_connection(("127.0.0.1", port)) as out:
        run: list[pa.RecordBatch] = []
        for batch in timed(folder):
            run.append(batch)
            if len(run) == 64:
                _send(out, run)
                run = []
        _send(out, run)


def _relay_map(listener: socket.socket, port: int) -> None:
    schema = next(batches()).schema
    peer, _ = listener.accept()
    with peer, socket.create_connection(("127.0.0.1", port)) as out:
        for run in _receive(peer, schema):
            _send(out, [work(batch) for batch in run])


def tcp() -> float:
    """Events per second of the same functions, unlogged, over sockets."""
    spawn = multiprocessing.get_context("spawn")
    ends = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [end.getsockname()[1] for end in ends]
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            spawn.Process(target=_relay_map, args=(ends[0], ports[1])),
            spawn.Process(target=_relay_source, args=(ports[0], folder)),
        ]
        for worker in workers:
            worker.start()
        peer, _ = ends[1].accept()
        with peer:
            for run in _receive(peer, next(batches()).schema):
                count += len(run)
        rate = count / (time.monotonic() - float(Path(folder, "first").read_text()))
        for worker in workers:
            worker.join()
    for end in ends:
        end.close()
    assert count == EVENTS
    return rate


def file() -> float:
    """Events per second of appends to plain files, one for each of the three: the same bytes, and as many syncs as a
    run with `disk` has commits. No pipeline is faster than this with as many of them."""
    with tempfile.TemporaryDirectory() as folder:
        run = pipeline(folder).start(f"lmdb:{folder}/log", engine="processes", durability="disk")
        run.wait()
        names = list(run.status().operators)
        commits = {name: run.log.store.read(InstanceName(name)).image().commits for name in names}
        threads = [threading.Thread(target=_append, args=(f"{folder}/{n}", commits[n])) for n in names]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return EVENTS / (time.perf_counter() - began)


def _append(path: str, syncs: int) -> None:
    body = bytes(next(batches()).serialize())
    written = 0
    with Path(path).open("wb", buffering=0) as out:
        for sync in range(1, syncs + 1):
            upto = EVENTS * sync // syncs
            if upto > written:
                out.write(body * (upto - written))
            written = upto
            os.fsync(out.fileno())


def main() -> None:
    """Measures, prints and writes the JSON."""
    variants = {"tcp": tcp, "process": lambda: embedded("process"), "disk": lambda: embedded("disk"), "file": file}
    found: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(REPEATS):
        for name, run in variants.items():
            found[name].append(run())
            print(f"{name:<8} {found[name][-1]:>9.0f} events/s", flush=True)
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name in ("process", "disk"):
        print(f"{name} / tcp = {medians[name] / medians['tcp']:.2f}")
    write(
        "relay",
        {
            "unit": "events per second at the sink",
            "events": EVENTS,
            "results": {n: {"median": medians[n], "min": min(v), "max": max(v)} for n, v in found.items()},
            "ratios": {name: medians[name] / medians["tcp"] for name in ("process", "disk")},
        },
    )


if __name__ == "__main__":
    main()
