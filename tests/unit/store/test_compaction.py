"""A journal's file is written anew without what was collected: killed at any step, on a full disk, beside readers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.store.test_lmdb import ORDERS, ROOT, event

import logline as ll
from logline.engine.events import Collection
from logline.engine.step import Step
from logline.names import OUT, Ssn
from logline.runtime.log.cleaning import clean
from logline.store.faults import COMPACTING
from logline.store.lmdb.folder import LmdbStore
from logline.store.seam import Compacted

EVENTS, KEPT = 2000, 20


def always(size: int, empty: int) -> bool:
    return empty > 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with one journal, of which hardly anything is needed."""
    store = LmdbStore(tmp_path / "log", durability="process")
    journal = store.claim(ORDERS)
    journal.commit(Step(number=1, outputs=[event(n) for n in range(1, EVENTS + 1)]))
    gone = Collection(Ssn(EVENTS - KEPT + 1), frozenset({Ssn(7)}))
    journal.commit(Step(number=2, collected={OUT: gone}))
    journal.close()
    store.close()
    return tmp_path / "log"


def data(folder: Path) -> Path:
    return folder / "journals" / "orders" / "data.mdb"


def check_whole(store: LmdbStore) -> None:
    """Everything that is needed is there, and the journal goes on."""
    wanted = [7, *range(EVENTS - KEPT + 1, EVENTS + 1)]
    reader = store.read(ORDERS)
    assert reader.stored(OUT) == wanted
    assert [e.payload["n"][0].as_py() for e in reader.pick(OUT, [Ssn(n) for n in wanted])] == wanted
    journal = store.claim(ORDERS)
    last = journal.image.head(OUT).last
    journal.commit(Step(number=journal.image.commits + 1, outputs=[event(last + 1)]))
    journal.close()
    assert store.read(ORDERS).head(OUT).last == last + 1


def in_process(code: str, folder: Path) -> subprocess.Popen[str]:
    begin = "import sys\nfrom pathlib import Path\nfrom logline.store.lmdb.folder import LmdbStore\n"
    return subprocess.Popen(
        [sys.executable, "-c", f"{begin}store = LmdbStore(Path(sys.argv[1]))\n{code}", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_room_of_what_was_collected_is_given_back(folder: Path) -> None:
    before = data(folder).stat().st_size
    store = LmdbStore(folder)
    reader = store.read(ORDERS)
    assert reader.head(OUT).last == EVENTS  # its file is open, and is opened again
    assert list(store.compact(lambda size, empty: 2 * empty >= 3 * size)) == []
    ((name, found),) = store.compact(lambda size, empty: 2 * empty >= size)
    after = data(folder).stat().st_size
    assert (name, found) == (ORDERS, Compacted(before, after))
    assert after < before / 10
    assert reader.head(OUT).last == EVENTS
    check_whole(store)


@pytest.mark.parametrize("point", COMPACTING)
def test_a_kill_at_every_step_loses_nothing(point: str, folder: Path) -> None:
    child = in_process(
        "from logline.store import faults\n"
        f"faults.arm('orders:{point}:1')\n"
        "lease = store.lease('gc')\n"
        "list(store.compact(lambda size, empty: True))\n",
        folder,
    )
    child.communicate()
    assert child.returncode == -signal.SIGKILL
    store = LmdbStore(folder)
    lease = store.lease("next")
    assert sorted(p.name for p in data(folder).parent.iterdir()) == ["data.mdb", "lock.mdb"]
    check_whole(store)
    list(store.compact(always))
    check_whole_again(store)
    lease.release()


def check_whole_again(store: LmdbStore) -> None:
    found = store.read(ORDERS).stored(OUT)
    assert found == [7, *range(EVENTS - KEPT + 1, EVENTS + 2)]


def test_a_full_disk_leaves_the_file_as_it_was(folder: Path) -> None:
    before = data(folder).read_bytes()
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, resource.RLIM_INFINITY))\n"
        "print(*[found.why_not for _, found in store.compact(lambda size, empty: True)])\n"
    )
    said = in_process(code, folder).communicate()[0]
    assert "it could not be copied" in said
    assert data(folder).read_bytes() == before
    assert sorted(p.name for p in data(folder).parent.iterdir()) == ["data.mdb", "lock.mdb"]
    check_whole(LmdbStore(folder))


def test_a_file_that_somebody_has_open_stays(folder: Path) -> None:
    """LMDB's readers and writers agree through the lock file: with another file behind it they would not."""
    child = in_process(
        "reader = store.read('orders')\n"
        "for line in sys.stdin:\n"
        "    print(reader.head('out').last, len(reader.pick('out', reader.stored('out'))), flush=True)\n",
        folder,
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def ask() -> str:
        child.stdin.write("\n")  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
        return child.stdout.readline()  # type: ignore[union-attr]

    assert ask() == f"{EVENTS} {KEPT + 1}\n"
    store = LmdbStore(folder)
    ((_, found),) = store.compact(always)
    assert found.why_not == "another process has it open"
    other = LmdbStore(folder)
    assert other.read(ORDERS).head(OUT).last == EVENTS
    ((_, found),) = store.compact(always)
    assert found.why_not == "this process has it open"
    other.close()
    check_whole(store)
    assert ask() == f"{EVENTS + 1} {KEPT + 2}\n"
    child.communicate()
    ((_, found),) = store.compact(always)
    assert not found.why_not
    check_whole_again(store)


class Growing(ll.Source):
    """Events of 1 MB; how many there are now, a file says."""

    schema = pa.schema({"text": pa.string()})
    gather = False

    def __init__(self, count: Callable[[], int]) -> None:
        self.count = count

    def partitions(self) -> list[str]:
        return ["all"]

    def read(self, partition: str, offset: int | None) -> Iterator[tuple[pa.RecordBatch, int] | None]:
        for n in range(offset or 0, self.count()):
            yield pa.record_batch([pa.array(["x" * 1_000_000])], schema=self.schema), n + 1


def test_a_run_compacts_what_is_mostly_empty(tmp_path: Path) -> None:
    there, seen = tmp_path / "there", list[int]()

    def run(count: int) -> None:
        there.write_text(str(count))
        p = ll.Pipeline("growing")
        source = p.source("orders", Growing(lambda: int(there.read_text())))
        took = ll.sinks.call(lambda batch, number, write_id: seen.append(number), guarantee="at_least_once")
        source.sink("store", took, accept="at_least_once")
        store = p.run(f"lmdb:{tmp_path}/log", engine="inline", durability="process", until="now").log.store
        clean(store)
        store.close()

    run(48)
    before = data(tmp_path / "log").stat().st_size
    assert before > 32 << 20
    run(49)
    assert data(tmp_path / "log").stat().st_size < before / 2
    assert seen == list(range(1, 50))


def test_a_file_that_is_shared_with_another_store_of_the_process_stays_in_use(folder: Path) -> None:
    """The other one closes it later: were this store no user of it any more, its readers would read a closed map."""
    other, store = LmdbStore(folder), LmdbStore(folder)
    assert other.read(ORDERS).head(OUT).last == EVENTS
    reader = store.read(ORDERS)
    assert reader.head(OUT).last == EVENTS
    (found,) = [compacted for _, compacted in store.compact(always)]
    assert found.why_not == "this process has it open"
    other.close()
    assert reader.head(OUT).last == EVENTS
    check_whole(store)
    store.close()
