"""What `store/rows.py` promises, for every implementation: a store that has another one adds it to `OPEN`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logline.engine.events import Head, Position
from logline.engine.image import Image, SetCounts
from logline.engine.progress import Progress
from logline.names import ChannelName, Incarnation, PartitionName, PortName, Serial, Ssn
from logline.store import load
from logline.store.apply import admit, apply, prepare
from logline.store.encoding import pack, reader_of
from logline.store.layout import BY_NAME, PLAIN, POSITIONS, RESOLVED, TIMERS, TimerRow
from logline.store.lmdb.environment import acquire, release
from logline.store.lmdb.rows import LmdbRows
from logline.store.members import DONE, MEMBERS, DoneRow, Joined
from logline.store.memory_rows import MemoryRows
from logline.store.rows import Key, Rows, Table
from logline.testing.conformance.model import Model, exact
from logline.testing.conformance.steps import steps

HERE, THERE = ChannelName("orders.out>hourly.in"), ChannelName("orders.out>hourly.in/2")
NONE = Joined([], None)
V = TypeVar("V")


@contextmanager
def _lmdb(folder: Path) -> Iterator[Rows]:
    env = acquire(folder / "journal", sync=False)
    with env.write() as txn:
        yield LmdbRows(txn)
        txn.abort()
    release(env)


OPEN: dict[str, Callable[[Path], AbstractContextManager[Rows]]] = {
    "memory": lambda folder: nullcontext(MemoryRows()),
    "lmdb": _lmdb,
}


@pytest.fixture(params=OPEN)
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    with OPEN[request.param](tmp_path) as opened:
        yield opened


def test_a_row_is_put_replaced_and_deleted(rows: Rows) -> None:
    assert rows.get(POSITIONS, (HERE,)) is None
    rows.put(POSITIONS, (HERE,), Position(Ssn(1), 10))
    rows.put(POSITIONS, (HERE,), Position(Ssn(2), 20, 1))
    assert rows.get(POSITIONS, (HERE,)) == Position(Ssn(2), 20, 1)
    assert type(rows.get(POSITIONS, (HERE,))) is Position
    assert rows.get(POSITIONS, (THERE,)) is None
    for _ in range(2):
        rows.delete(POSITIONS, (HERE,))
    assert list(rows.scan(POSITIONS)) == []


def test_keys_come_in_their_order(rows: Rows) -> None:
    keys = [(300, 1), (1, 256), (1, 2), (2, 1), (1, 255), (0, 0)]
    for key in keys:
        rows.put(MEMBERS, key, NONE)
    assert [key for key, _ in rows.scan(MEMBERS)] == sorted(keys)
    assert [key for key, _ in rows.scan(MEMBERS, (1,))] == [(1, 2), (1, 255), (1, 256)]
    assert [key for key, _ in rows.scan(MEMBERS, (1,), below=256)] == [(1, 2), (1, 255)]
    assert [key for key, _ in rows.scan(MEMBERS, below=2)] == [(0, 0), (1, 2), (1, 255), (1, 256)]
    assert list(rows.scan(MEMBERS, (7,))) == []


def test_a_range_is_deleted(rows: Rows) -> None:
    for channel in (HERE, THERE):
        for block in range(5):
            rows.put(DONE, (channel, block, 1), DoneRow(b"", [block, 1], None))
    rows.delete_range(DONE, (HERE,), below=3)
    assert sorted(key for key, _ in rows.scan(DONE, (HERE,))) == [(HERE, 3, 1), (HERE, 4, 1)]
    rows.delete_range(DONE, (HERE,))
    rows.delete_range(DONE, (HERE,))
    assert [key for key, _ in rows.scan(DONE)] == [(THERE, block, 1) for block in range(5)]


def test_the_last_row_up_to_a_key(rows: Rows) -> None:
    for ssn in (3, 9):
        rows.put(RESOLVED, (ssn,), "dropped")
        rows.put(BY_NAME["run_events"], (HERE, ssn), (Serial(ssn), 1))
    assert [(rows.floor(RESOLVED, (n,)) or ((None,),))[0] for n in (2, 3, 8, 9, 99)] == [
        (None,),
        (3,),
        (3,),
        (9,),
        (9,),
    ]
    assert rows.floor(BY_NAME["run_events"], (THERE, 9)) is None
    found = rows.floor(BY_NAME["run_events"], (HERE, 8))
    assert found is not None and found[0] == (HERE, 3)


def test_rows_are_counted_table_by_table(rows: Rows) -> None:
    assert rows.count(RESOLVED) == 0
    for n in range(5):
        rows.put(RESOLVED, (n,), "dropped")
        rows.put(POSITIONS, (f"{n}",), Position())
    rows.delete(RESOLVED, (3,))
    assert [rows.count(table) for table in (RESOLVED, POSITIONS, TIMERS)] == [4, 5, 0]


def test_digests_and_long_names_are_keys(rows: Rows) -> None:
    digest, name = bytes(range(16)), PartitionName("a" * 5000)
    rows.put(TIMERS, (digest,), TimerRow(b"id", -5, "wall"))
    assert list(rows.scan(TIMERS)) == [((digest,), TimerRow(b"id", -5, "wall"))]
    progress = Progress(2, "complete", b"", Ssn(7), 70, True, (b"", b"m"))
    rows.put(BY_NAME["reads"], (name,), progress)
    assert list(rows.scan(BY_NAME["reads"])) == [((name,), progress)]


def test_fields_that_only_replace_entries_have_tables_of_their_own() -> None:
    """One line in `Step` and one in `Image`; the stores need none."""
    assert [plain.into for plain in PLAIN] == ["positions", "clock", "reads", "written"]
    assert [plain.table.record for plain in PLAIN] == [Position, int, Progress, int]
    assert {plain.into for plain in PLAIN} <= set(Image.__dataclass_fields__)


@pytest.mark.parametrize("kind", OPEN)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_rows_and_images_mean_the_same(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    """Loading after `apply` gives what `Image.apply` gives, step by step."""
    model = Model()
    heads: dict[PortName, Head] = {}
    with OPEN[kind](tmp_path_factory.mktemp("rows")) as rows:
        for number in range(1, data.draw(st.integers(2, 6))):
            step = data.draw(steps(model))
            step.number = number
            journal = admit(rows, Incarnation(0), number)
            assert journal is not None
            heads |= apply(rows, step, prepare(step), journal, heads, lambda port, head, base, pinned: None)
            model.apply(step)
            assert admit(rows, Incarnation(0), number) is None
            found = load.image(rows)
            assert exact(found) == exact(model.image)
            assert found.heads == heads


def test_a_timer_of_an_older_log_has_no_span() -> None:
    assert reader_of(TimerRow)(pack((b"id", 5, "wall"))) == TimerRow(b"id", 5, "wall", 0)


class _Watched(MemoryRows):
    """Rows that say which tables were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()

    def scan(self, table: Table[V], prefix: Key = (), below: int | None = None) -> Iterable[tuple[Key, V]]:
        self.read.add(table.name)
        return super().scan(table, prefix, below)


def test_who_asks_how_far_an_instance_is_reads_no_set() -> None:
    """There may be 10^5 open sets, 10^5 timers and 10^6 keys, and a status is asked every second."""
    rows = _Watched()
    load.outline(rows)
    assert load.count_sets(rows) == SetCounts()
    many = {"sets", "members", "covered", "checkpoints", "saved", "timers", "keyed", "answers", "pins", "done"}
    assert "heads" in rows.read
    assert not rows.read & many
