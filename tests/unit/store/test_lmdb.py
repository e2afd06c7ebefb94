"""What the embedded log does beyond the seam: damage, other boots, other formats, a full disk."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE

import logline as ll
from logline.engine.events import Output
from logline.engine.step import Step
from logline.errors import LogError
from logline.names import OUT, InstanceName, Serial, Ssn
from logline.store.address import find_store, open_store
from logline.store.lmdb.folder import LmdbStore

ORDERS = InstanceName("orders")
ROOT = Path(__file__).parents[3]


def event(ssn: int) -> Output:
    batch = pa.record_batch({"n": list(range(ssn, ssn + 50))})
    return Output(OUT, Ssn(ssn), batch, 50, batch.nbytes, ssn * batch.nbytes, Serial(0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with one journal of twenty events, closed."""
    store = LmdbStore(tmp_path / "log", durability="process")
    journal = store.claim(ORDERS)
    for n in range(1, 21):
        journal.commit(Step(number=n, outputs=[event(n)]))
    journal.close()
    store.close()
    return tmp_path / "log"


def test_the_folder_is_private(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "journals" / "orders" / "data.mdb").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("use", "place"),
    [
        (open_store, "/proc/none/log"),
        (open_store, f"{__file__}"),
        (open_store, f"{__file__}/log"),
        (open_store, f"/tmp/{'x' * 300}"),
        (find_store, f"/tmp/{'x' * 300}"),
    ],
)
def test_a_folder_that_can_not_be_used_is_named(use: Callable[[str], object], place: str) -> None:
    with pytest.raises(LogError, match="give it a folder that this process may make, read and write") as info:
        use(f"lmdb:{place}")
    assert str(info.value).startswith(f"the log can't be in {place} (")


@pytest.mark.parametrize("durability", ["disk", "process"])
def test_the_name_of_a_new_journal_is_on_disk_before_its_first_commit(
    durability: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut takes a name away whose folder was not synced, and all that was committed under it."""
    synced: list[Path] = []
    sync = os.fsync

    def fsync(file: int) -> None:
        sync(file)
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")))

    monkeypatch.setattr(os, "fsync", fsync)
    log = tmp_path / "new" / "log"
    store = LmdbStore(log, durability=durability)
    assert {tmp_path, tmp_path / "new", log} <= set(synced)  # which hold "new", "log" and what is in it
    synced.clear()
    journal = store.claim(ORDERS)
    wanted = {log / "journals", log / "journals" / "orders"} if durability == "disk" else set()
    assert set(synced) == wanted
    journal.close()
    store.close()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o777 & ~umask()  # it is the user's


def umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def test_another_boot_is_refused_for_process(folder: Path) -> None:
    about = json.loads((folder / "log.json").read_text())
    (folder / "log.json").write_text(json.dumps({**about, "boot": "another"}))
    with pytest.raises(LogError, match="has been started anew since"):
        LmdbStore(folder)


def test_another_boot_is_fine_for_disk(tmp_path: Path) -> None:
    LmdbStore(tmp_path / "log", durability="disk").close()
    about = json.loads((tmp_path / "log" / "log.json").read_text())
    (tmp_path / "log" / "log.json").write_text(json.dumps({**about, "boot": "another"}))
    LmdbStore(tmp_path / "log").close()


def test_another_durability_is_refused(folder: Path) -> None:
    with pytest.raises(LogError, match="durability='process' and can't be changed to 'disk'"):
        LmdbStore(folder, durability="disk")


def test_another_format_is_refused(folder: Path) -> None:
    about = json.loads((folder / "log.json").read_text())
    (folder / "log.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(LogError, match="has format 99, this version of Logline reads 8"):
        LmdbStore(folder)


def test_who_begins_at_the_same_moment_has_the_same_log(tmp_path: Path) -> None:
    """Two ids would be two logs in one folder: what the first one wrote to a target, the second would write again."""
    for turn in range(20):
        begin = threading.Barrier(4)

        def make(folder: Path, begin: threading.Barrier = begin) -> str:
            begin.wait()
            store = LmdbStore(folder)
            store.close()
            return store.log_id

        with ThreadPoolExecutor(4) as threads:
            assert len(set(threads.map(make, [tmp_path / str(turn)] * 4))) == 1


def test_a_log_whose_making_was_killed_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "log" / "journals").mkdir(parents=True)
    LmdbStore(tmp_path / "log").close()
    assert (tmp_path / "log" / "log.json").exists()


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(LogError, match="is not empty and holds no log"):
        LmdbStore(tmp_path)


def test_a_reader_finds_a_damaged_event_before_anybody_claims(folder: Path) -> None:
    data = folder / "journals" / "orders" / "data.mdb"
    whole = data.read_bytes()
    values = event(7).payload["n"].buffers()[1].to_pybytes()
    at = whole.index(values)
    while at >= 0:  # also in pages that are not used any more
        whole = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        at = whole.find(values)
    data.write_bytes(whole)
    reader = LmdbStore(folder).read(ORDERS)
    assert [output.ssn for output in reader.pick(OUT, [Ssn(6), Ssn(8)])] == [6, 8]
    with pytest.raises(LogError, match="the log is damaged: a row of 'events' is not as written"):
        reader.pick(OUT, [Ssn(7)])
    with pytest.raises(LogError, match="the log is damaged"):
        reader.events(OUT, Ssn(0), limit=100, max_bytes=1 << 30)


def damaged(folder: Path, rnd: random.Random) -> Iterator[str]:
    """Ways to damage the journal, each on a fresh copy."""
    data = folder / "journals" / "orders" / "data.mdb"
    whole = data.read_bytes()
    for _ in range(18):
        at = rnd.randrange(len(whole))
        data.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << rnd.randrange(8))]) + whole[at + 1 :])
        yield f"bit flipped at {at}"
    for _ in range(6):
        size = rnd.randrange(len(whole))
        data.write_bytes(whole[:size])
        yield f"cut to {size} of {len(whole)}"


def test_damage_is_found_or_harmless(folder: Path) -> None:
    """Never a wrong result, never a hang, never a crash of the process."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    seen: Counter[str] = Counter()
    for how in damaged(folder, random.Random(seed)):
        child = subprocess.run(
            [sys.executable, "-m", "tests.unit.store.damage", str(folder)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert child.returncode == 0, f"{how}: {child.stderr}"
        outcome = child.stdout.split()[0]
        assert outcome in ("refused", "right"), f"{how}: {child.stdout}"
        seen[outcome] += 1
    assert seen["refused"] > 0


FULL = """
import resource, signal, sys
from pathlib import Path
from tests.unit.store.test_lmdb import ORDERS, event
from logline.engine.step import Step
from logline.names import OUT, Ssn
from logline.store.lmdb.environment import LogFull
from logline.store.lmdb.folder import LmdbStore

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = LmdbStore(Path(sys.argv[1]))
journal = store.claim(ORDERS)
size = (Path(sys.argv[1]) / "journals" / "orders" / "data.mdb").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40_000, resource.RLIM_INFINITY))
n = 20
try:
    while True:
        n += 1
        journal.commit(Step(number=n, outputs=[event(n)]))
except LogFull as error:
    print("full", "make room" in str(error).lower())
assert store.read(ORDERS).head(OUT).last == n - 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.commit(Step(number=n, outputs=[event(n)]))
found = store.read(ORDERS).events(OUT, Ssn(0), limit=1 << 20, max_bytes=1 << 40)
print([e.payload["n"][0].as_py() for e in found] == list(range(1, n + 1)))
"""


def test_a_full_disk(folder: Path) -> None:
    """A clear error; what was committed is there, and it goes on when there is room."""
    child = subprocess.run(
        [sys.executable, "-c", FULL, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.stdout == "full True\nTrue\n", child.stderr


def test_journals_against_each_other(tmp_path: Path) -> None:
    """One journal restored from an older copy: the receiver has taken what its sender does not hold."""
    p = ll.Pipeline("sales")
    orders = p.source("orders", ll.sources.batches([pa.record_batch({"n": [n]}) for n in range(20)]))
    orders.sink("store", ll.sinks.collect())
    url = f"lmdb:{tmp_path / 'log'}"
    p.run(url, engine="inline")
    store = LmdbStore(tmp_path / "log")
    for name in ("orders", "store"):  # as if both still ran
        journal = store.claim(InstanceName(name))
        assert journal.image.left
        journal.close()
    store.close()
    shutil.rmtree(tmp_path / "log" / "journals" / "orders")
    from logline.store.layout import JOURNAL
    from logline.store.lmdb.environment import acquire, release
    from logline.store.lmdb.rows import LmdbRows

    env = acquire((tmp_path / "log" / "journals" / "store").absolute(), sync=False)
    with env.write() as txn:
        row = LmdbRows(txn).get(JOURNAL, ())
        assert row is not None
        LmdbRows(txn).put(JOURNAL, (), row._replace(left=False))
    release(env)
    with pytest.raises(LogError, match=r"'store' has taken events of orders\.out"):
        p.run(url, engine="inline")


@pytest.mark.parametrize("half", [b"", b"{", b'{"n": ', b'{"n": 2}'])
def test_a_letter_that_was_cut_off_costs_only_itself(folder: Path, half: bytes) -> None:
    store = LmdbStore(folder)
    box, reader = store.mail("@driver"), store.mail("@driver")
    box.send(b'{"n": 1}')
    with (folder / "mail" / "@driver.jsonl").open("ab") as file:
        file.write(b"\n" + half)  # its sender was killed here
    assert reader.receive() == [b'{"n": 1}']
    box.send(b'{"n": 3}')
    box.send(b'{"n": 4}')
    assert reader.receive() == [b'{"n": 3}', b'{"n": 4}']
    assert store.mail("@driver").receive() == [b'{"n": 1}', b'{"n": 3}', b'{"n": 4}']
    store.close()


def test_a_line_that_somebody_else_wrote_is_handed_on(folder: Path) -> None:
    store = LmdbStore(folder)
    box = store.mail("@driver")
    box.send(b"1")
    with (folder / "mail" / "@driver.jsonl").open("ab") as file:
        file.write(b"stop it\n")
    box.send(b"2")
    assert box.receive() == [b"1", b"stop it", b"2"]
    with (folder / "mail" / "@driver.jsonl").open("ab") as file:
        file.write(b"now\n")
    assert box.receive() == [b"now"]
    store.close()


def test_what_killed_processes_had_begun_to_write_goes(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "log")
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    dead = store.folder / "status" / f".hourly.json.{gone.stdout.decode().strip()}.7"
    living = store.folder / "status" / f".hourly.json.{os.getpid()}.7"
    for path in (dead, living):
        path.write_text("{")
    lease = store.lease("one")
    assert not dead.exists() and living.exists()
    dead.write_text("{")
    lease.release()
    assert not dead.exists() and living.exists()
    store.close()


def test_the_bells_of_killed_processes_go(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(str(store.folder / "bells" / "hourly"))  # closed and not unlinked, as by a kill
    stop = store.on_bell(ORDERS, lambda: None)
    lease = store.lease("one")
    assert [path.name for path in (store.folder / "bells").iterdir()] == [ORDERS]
    lease.release()
    stop()
    store.close()
