"""The process that writes Parquet files is killed again and again while someone reads the folder all the time."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from tests.waiting import PATIENCE

import logline as ll

FILES, ROWS, EVENT = 3, 500, 5
EVENTS = FILES * ROWS // EVENT
KILLS = 4


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
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    out.mkdir()
    for n in range(FILES):
        ids = pa.array(range(n * ROWS, (n + 1) * ROWS), pa.int64())
        pq.write_table(pa.table({"id": ids}), data / f"{n}.parquet", row_group_size=70)
    p = ll.Pipeline("files")
    p.source("ids", ll.sources.parquet(data), rows=EVENT).sink("store", ll.sinks.parquet(out))
    reader = Reader(out)
    reader.start()
    kills, last, aim = 0, None, 3
    with p.start(f"lmdb:{tmp_path}/log", engine="processes", durability="process") as run:
        engine: Any = run._engine
        until = time.monotonic() + PATIENCE
        while not run._over.wait(0.0005) and time.monotonic() < until:
            written = sum(not name.startswith(".") for name in os.listdir(out))
            pid = engine.pid("store")
            if kills < KILLS and written >= aim and pid not in (None, last):
                os.kill(pid, signal.SIGKILL)
                kills, last, aim = kills + 1, pid, written + 1 + 7 * kills
        assert run.wait(0).phase == "finished"
        assert run.status().operators["store"].restarts == kills
    reader.over.set()
    reader.join(PATIENCE)
    if reader.failure is not None:
        raise reader.failure
    assert kills == KILLS
    assert reader.looks > 0
    files = sorted(out.iterdir())
    assert len(files) == EVENTS
    assert not [file for file in files if file.name.startswith(".")]
    assert [n for file in files for n in pq.read_table(file)["id"].to_pylist()] == list(range(FILES * ROWS))
