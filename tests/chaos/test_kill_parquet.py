"""The process that writes Parquet files is killed again and again while someone reads the folder all the time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from tests.waiting import PATIENCE, until

import logline as ll
from logline.connectors.parquet_source import ParquetSource

FILES, ROWS, EVENT = 3, 500, 5
EVENTS = FILES * ROWS // EVENT
HELD = (FILES - 1) * ROWS // EVENT
"""Events before the last file."""
KILLS = 4


class Held(ParquetSource):
    """The last file only once there is a file `go`: whoever is killed before is killed midway."""

    def __init__(self, path: Path, go: Path) -> None:
        super().__init__(path)
        self.go = go

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        while partition == self.partitions()[-1] and not self.go.exists():
            yield None
        yield from super().read(partition, offset)


class Reader(threading.Thread):
    """Looks at the folder as any reader would: every file it lists must be whole, and stay."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.over = threading.Event()
        self.looks = 0
        self.known: dict[str, tuple[int, int, int]] = {}
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.wait(0.001):
                self.look()
            self.look()
        except BaseException as error:
            self.failure = error

    def look(self) -> None:
        files = ds.dataset(self.folder, format="parquet").files
        assert self.known.keys() <= set(files), "a file is gone"
        for file in files:
            found = os.stat(file)
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if file not in self.known:
                assert pq.read_table(file).num_rows == EVENT
                self.known[file] = stamp
            assert self.known[file] == stamp, "a file has changed"
        self.looks += 1


def test_files_of_a_killed_writer(tmp_path: Path) -> None:
    data, out, go = tmp_path / "data", tmp_path / "out", tmp_path / "go"
    data.mkdir()
    out.mkdir()
    for n in range(FILES):
        ids = pa.array(range(n * ROWS, (n + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids}), data / f"{n}.parquet", row_group_size=70)
    p = ll.Pipeline("files")
    p.source("ids", Held(data, go), rows=EVENT).sink("store", ll.sinks.parquet(out))
    reader = Reader(out)
    reader.start()
    kills, last, aim = 0, None, 3
    with p.start(f"lmdb:{tmp_path}/log", engine="processes", durability="process") as run:
        engine: Any = run._engine
        give_up = time.monotonic() + PATIENCE
        while kills < KILLS:
            assert time.monotonic() < give_up, "it does not come"
            written = sum(not name.startswith(".") for name in os.listdir(out))
            pid = engine.pid("store")
            if written >= min(aim, HELD) and pid not in (None, last):
                os.kill(pid, signal.SIGKILL)
                kills, last, aim = kills + 1, pid, written + 1 + 7 * kills
            time.sleep(0.0005)  # strikes soon after a file is there: the log may not say so yet
        until(lambda: run.status().operators["store"].restarts == KILLS)
        go.touch()
        assert run.wait(PATIENCE).phase == "finished"
        assert run.status().operators["store"].restarts == KILLS
    reader.over.set()
    reader.join(PATIENCE)
    if reader.failure is not None:
        raise reader.failure
    assert reader.looks > 0
    files = sorted(out.iterdir())
    assert len(files) == EVENTS
    assert not [file for file in files if file.name.startswith(".")]
    assert [n for file in files for n in pq.read_table(file)["id"].to_pylist()] == list(range(FILES * ROWS))
