"""A disk that is full while a pipeline runs: the run ends, says so in one line, and goes on when there is room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.jvms import cache_in
from tests.mounts import run_on_small_disk

CODE = """
import json, os, sys
from pathlib import Path
import pyarrow as pa
import logline as ll
from logline.runtime.log.log_status import log_status

folder, engine, durability = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
EVENTS, SIZE = 12, 200_000


class Large(ll.Source):
    schema = pa.schema({"data": pa.binary()})
    gather = False

    def read(self, partition, offset):
        for n in range(offset or 0, EVENTS):
            yield pa.record_batch({"data": [os.urandom(SIZE)]}), n + 1


def sizes(batch):
    return pa.table({"size": [len(data) for data in batch["data"].to_pylist()]})


if __name__ == "__main__":
    p = ll.Pipeline("large")
    p.source("large", Large()).map_batches("sizes", sizes, schema="size long").sink("store", ll.sinks.collect())
    p.lineage()
    ballast, url = folder / "ballast", f"lmdb:{folder / 'log'}"
    ballast.write_bytes(bytes(5 << 20))
    options = dict(engine=engine, durability=durability)
    if engine == "spark":
        options["spark"] = ll.session(slots=5)
    run = p.start(url, **options)
    try:
        said = run.wait(200).phase
    except ll.PipelineFailed as error:
        said = str(error)
    status = log_status(ll.open_log(url).store)
    ballast.unlink()
    again = p.run(url, **options)
    rows = again.result("store")["size"].to_pylist()
    print(json.dumps([said, run.status().error, status.phase, status.error, rows == [SIZE] * EVENTS]))
"""


@pytest.mark.parametrize(
    ("engine", "durability"), [("inline", "disk"), ("inline", "process"), ("processes", "disk"), ("spark", "disk")]
)
def test_the_reason_is_the_disk(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    durability: str,
) -> None:
    if engine == "spark":
        monkeypatch.setenv("XDG_CACHE_HOME", cache_in(tmp_path_factory.mktemp("cache")))
    ran = run_on_small_disk(tmp_path, "7m", CODE, tmp_path, engine, durability)
    assert ran.returncode == 0, ran.stderr
    said, error, phase, outside, whole = json.loads(ran.stdout.splitlines()[-1])
    assert "the disk is full: there is no room to write to" in said
    assert said.endswith("make room, and run the pipeline again") and len(said.splitlines()) == 1
    assert error == said  # of the run, to its user
    assert (phase, outside) == ("failed", said)  # and to `logline status`, though there is no room for a new file
    assert "Traceback" not in ran.stderr
    assert whole  # what was logged is whole, and the run goes on
