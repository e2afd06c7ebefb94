"""A log that several use at once: bells, the lease, meta, statuses, and readers beside a writer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

import pytest

from logline.engine.events import Position
from logline.engine.step import Step
from logline.errors import LogError, LogInUse
from logline.graph.model import Connection, Wire
from logline.graph.operator import Dependency
from logline.graph.record import (
    Column,
    FormerRecord,
    GraphRecord,
    OperatorRecord,
    ReadRecord,
    ScopeRecord,
    VersionRecord,
)
from logline.names import (
    IN,
    OUT,
    BoxName,
    InstanceName,
    OperatorId,
    OperatorName,
    PartitionName,
    PortName,
    Serial,
    Ssn,
    TargetName,
)
from logline.store.channels import HandOver
from logline.store.marks import Mark
from logline.store.seam import Holder, Meta, Store
from logline.testing.conformance.base import HOURLY, OpenLog, StoreSuite
from logline.testing.conformance.commits import ORDERS, taken
from logline.testing.conformance.model import ALL, Scribe

PATIENCE = 60
"""Seconds after which a test that waits for a thread gives up; nothing is measured."""
STEPS = 200
OPEN = 5
"""Sets that stay open behind the position of the writer that is watched."""


def moved_on(scribe: Scribe, k: int) -> Step:
    """Step k takes event k into set k, puts out event k, and finishes set k - OPEN."""
    step = scribe.emit(1, nbytes=7)
    step.positions[ORDERS] = Position(Ssn(k), 10 * k)
    step.open(Serial(k), k, [taken(k)])
    if k > OPEN:
        step.close(Serial(k - OPEN), traced=False)
    step.state = b"%d" % k
    return step


class Watcher(threading.Thread):
    """Reads while another thread writes, and holds what it sees against what was ever committed."""

    def __init__(self, store: Store, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.reader = store.read(HOURLY)
        self.over = over
        self.looked = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            seen = 0
            while not self.over.is_set():
                seen = self._look(seen)
                self.looked.set()
            self._look(seen)
        except BaseException as error:
            self.failure = error
        finally:
            self.looked.set()

    def _look(self, seen: int) -> int:
        position, members, *_ = self.reader.needs(ORDERS)
        assert position == Position(Ssn(position.ssn), 10 * position.ssn)
        assert position.ssn >= seen
        assert sorted(members) == self._members(position.ssn)
        image = self.reader.image()
        k = image.commits
        assert k >= position.ssn  # never an older view after a newer one
        assert image.positions.get(ORDERS, Position()).ssn == k
        assert list(image.sets) == self._members(k)
        assert (image.state or b"0") == b"%d" % k
        head = image.heads.get(OUT)
        assert (head.last, head.total) == (k, 7 * k) if head is not None else k == 0
        found = self.reader.events(OUT, Ssn(0), limit=ALL, max_bytes=ALL)
        assert [e.ssn for e in found] == [e.payload["n"][0].as_py() for e in found] == list(range(1, len(found) + 1))
        assert len(found) >= k
        done = [finished.serial for finished in self.reader.history()]
        assert sorted(done) == list(range(1, len(done) + 1))
        assert len(done) >= k - OPEN
        return k

    @staticmethod
    def _members(k: int) -> list[int]:
        return list(range(max(1, k - OPEN + 1), k + 1))


def _plain(columns: Mapping[PortName, tuple[Column, ...]]) -> OperatorRecord:
    return OperatorRecord("middle", (IN,), columns, {}, "pessimistic", "1", True, None, None)


def _some_record(actions: dict[PartitionName, str]) -> GraphRecord:
    orders, hourly = OperatorName("orders"), OperatorName("hourly")
    read = ReadRecord("shop.Orders", replayable=True, destructive=False)
    columns = {OUT: (Column("item", "string", nullable=True), Column("amount", "int64", nullable=False))}
    return GraphRecord(
        pipeline="sales",
        operators={
            orders: OperatorRecord("source", (), columns, {}, "pessimistic", "1", True, None, read),
            hourly: OperatorRecord(
                "middle",
                (IN,),
                columns,
                {TargetName("audit"): "named"},
                "pessimistic",
                "é",
                False,
                {"seen": "int"},
                None,
                (Dependency("item", "item"), Dependency("amount", "amount", "of")),
            ),
        },
        connections=(Connection(orders, OUT, hourly, IN),),
        scopes=(ScopeRecord(None, (hourly, OUT), 2.5, 1 << 40),),
        schemas={orders: {OUT: "AAAA"}},
        actions={orders: actions},
        keep={hourly: (PortName("@audit"),)},
        script="sales.py",
        closed=(Wire(OperatorId("orders"), OUT, OperatorId("clean"), IN),),
        former={OperatorId("clean"): FormerRecord(OperatorName("clean"), _plain(columns), {OUT: "BBBB"})},
        versions={OperatorId("orders"): (VersionRecord("1", 1.5), VersionRecord("2", 2.5, {OUT: Ssn(7)}))},
    )


class SharingRules(StoreSuite):
    """Bells, lease, meta, statuses, threads."""

    # ---- one writer, many readers -----------------------------------------------------------------------------

    def test_a_store_says_what_it_is(self, store: Store) -> None:
        assert store.traits.reach in ("process", "host", "hosts")
        assert store.traits.blocking <= {"claim", "commit", "read"}
        assert store.fresh is None or isinstance(store.fresh, HandOver)

    def test_readers_beside_a_writer_see_whole_commits(self, store: Store) -> None:
        over = threading.Event()
        scribe = Scribe(store, HOURLY)
        watchers = [Watcher(store, over) for _ in range(3)]
        for watcher in watchers:
            watcher.start()
        for k in range(1, STEPS + 1):
            scribe.commit(moved_on(scribe, k))
            if k % (STEPS // 4) == 0:  # each of them looks now and then, whatever the scheduler does
                for watcher in watchers:
                    watcher.looked.clear()
                    if watcher.failure is None:
                        assert watcher.looked.wait(PATIENCE)
        over.set()
        for watcher in watchers:
            watcher.join(PATIENCE)
            if watcher.failure is not None:
                raise watcher.failure
            assert not watcher.is_alive()
        scribe.check()

    def test_claims_at_the_same_time_leave_one_life(self, store: Store) -> None:
        journals = []
        barrier = threading.Barrier(4)

        def claim() -> None:
            barrier.wait(PATIENCE)
            journals.append(store.claim(HOURLY))

        threads = [threading.Thread(target=claim, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(journal.incarnation for journal in journals) == [1, 2, 3, 4]
        assert store.read(HOURLY).incarnation() == 4

    # ---- bells ------------------------------------------------------------------------------------------------

    def test_a_bell_is_heard(self, store: Store) -> None:
        heard = threading.Event()
        stop = store.on_bell(HOURLY, heard.set)
        store.ring(HOURLY)
        if self.bells_are_reliable:
            assert heard.wait(PATIENCE)
        stop()

    def test_who_stopped_listening_hears_nothing(self, store: Store) -> None:
        first, second = threading.Event(), threading.Event()
        stop_first = store.on_bell(HOURLY, first.set)
        stop_second = store.on_bell(HOURLY, second.set)
        stop_first()
        store.ring(HOURLY)
        if self.bells_are_reliable:
            assert second.wait(PATIENCE)
        assert not first.is_set()
        stop_second()

    def test_a_bell_for_nobody_is_fine(self, store: Store) -> None:
        store.ring(HOURLY)
        store.ring(InstanceName("never/7"))
        store.claim(HOURLY)
        store.ring(HOURLY)

    # ---- mail -------------------------------------------------------------------------------------------------

    def test_mail_comes_once_and_in_order(self, store: Store) -> None:
        box = store.mail("@driver")
        assert box.receive() == []
        strange = '{"text": "\\r\\n, é", '.encode() + b"\x00\xff\r"  # a store knows no messages, only lines
        store.mail("@driver").send(strange)
        box.send(b"stop")
        assert box.receive() == [strange, b"stop"]
        assert box.receive() == []
        assert store.mail("@driver").receive() == [strange, b"stop"]  # another reader begins with what is there
        box.send(b"restart")
        assert box.receive() == [b"restart"]

    @pytest.mark.parametrize("message", [b"", b"two\nlines", b"a line\n"])
    def test_a_message_is_one_line(self, store: Store, message: bytes) -> None:
        box = store.mail("@driver")
        with pytest.raises(ValueError, match="a message is a line"):
            box.send(message)
        assert box.receive() == []

    def test_boxes_are_apart(self, store: Store) -> None:
        store.mail("@group/a").send(b"1")
        store.mail("@group/b").send(b"2")
        assert store.mail("@group/a").receive() == [b"1"]
        assert store.mail("@driver").receive() == []

    def test_mail_outlives_its_sender(self, store: Store, reopen: Callable[[], Store]) -> None:
        store.claim(HOURLY)
        store.mail("@driver").send(b"1")
        assert reopen().mail("@driver").receive() == [b"1"]

    def test_a_dropped_box_is_empty_and_goes_on(self, store: Store) -> None:
        reader, box = store.mail("@driver"), store.mail("@driver")
        box.send(b"1")
        box.send(b"2")
        assert len(reader.receive()) == 2
        box.drop()
        box.drop()
        assert store.mail("@driver").receive() == []
        box.send(b"3")
        assert reader.receive() == [b"3"]

    def test_mail_from_many_threads(self, store: Store) -> None:
        def send(sender: int) -> None:
            box = store.mail("@driver")
            for n in range(50):
                box.send(b"%d %d %s" % (sender, n, b"x" * 500))

        threads = [threading.Thread(target=send, args=(sender,), daemon=True) for sender in range(4)]
        reader = store.mail("@driver")
        for thread in threads:
            thread.start()
        found: list[bytes] = []
        while any(thread.is_alive() for thread in threads):
            found += reader.receive()
        found += reader.receive()
        for sender in range(4):
            mine = [line.split() for line in found if line.startswith(b"%d " % sender)]
            assert mine == [[b"%d" % sender, b"%d" % n, b"x" * 500] for n in range(50)]

    def test_mail_rings(self, store: Store) -> None:
        heard = threading.Event()
        stop = store.on_bell(BoxName("@driver"), heard.set)
        store.mail("@driver").send(b"1")
        if self.bells_are_reliable:
            assert heard.wait(PATIENCE)
        stop()

    # ---- lease ------------------------------------------------------------------------------------------------

    def test_one_run_at_a_time(self, store: Store) -> None:
        assert store.running() is None
        lease = store.lease("run-7f3")
        assert lease.held()
        assert store.running() == Holder("run-7f3", os.getpid())
        with pytest.raises(LogInUse, match="run-7f3"):
            store.lease("run-8a0")
        assert lease.held()
        lease.release()
        assert not lease.held()
        other = store.lease("run-8a0")
        assert other.held()
        lease.release()  # once more, and it is not ours any more
        assert other.held()
        other.release()

    def test_takeover(self, store: Store) -> None:
        old = store.lease("old")
        new = store.lease("new", takeover=True)
        assert (old.held(), new.held()) == (False, True)
        old.release()
        assert new.held()
        assert store.running() == Holder("new", os.getpid())
        with pytest.raises(LogInUse, match="new"):
            store.lease("third")
        new.release()
        assert store.running() is None

    def test_takeover_of_a_log_that_nobody_uses(self, store: Store) -> None:
        lease = store.lease("first", takeover=True)
        assert lease.held()
        lease.release()

    # ---- the log as a whole -----------------------------------------------------------------------------------

    def test_meta_comes_back(self, store: Store, reopen: Callable[[], Store]) -> None:
        assert store.meta() is None
        store.set_meta(Meta("sales", GraphRecord(pipeline="sales", operators={}, connections=(), scopes=())))
        actions = {PartitionName("0"): "select * from orders"}
        store.set_meta(Meta("sales", _some_record(actions)))
        wanted = Meta("sales", _some_record(dict(actions)))
        actions.clear()
        assert store.meta() == wanted
        again = reopen()
        assert again.meta() == wanted

    def test_the_newest_status_of_each_name(self, store: Store) -> None:
        assert dict(store.statuses()) == {}
        store.put_status("g1", b"new, and longer than the next")
        store.put_status("@g2/a", b'{"phase": "new"')  # a store knows no statuses, only bytes
        store.put_status("g1", b"two\nlines \xff")
        assert dict(store.statuses()) == {"g1": b"two\nlines \xff", "@g2/a": b'{"phase": "new"'}

    def test_a_marked_log_says_what_it_is_and_is_not_run(self, store: Store, reopen: Callable[[], Store]) -> None:
        assert store.mark() is None
        for kind, told in (("moved", "moved to lmdb:there"), ("copy", "copy of lmdb:there")):
            mark = Mark(kind, "lmdb:there")  # type: ignore[arg-type]
            store.set_mark(mark)
            assert store.mark() == mark
            with pytest.raises(LogError, match=told):
                store.lease("run-1")
        store = reopen()
        assert store.mark() == Mark("copy", "lmdb:there")
        store.set_mark(None)
        store.lease("run-1").release()

    def test_a_crash_hint_outlives_who_wrote_it_until_it_is_dropped(
        self, store: Store, reopen: Callable[[], Store]
    ) -> None:
        hint = store.crash_hint(HOURLY)
        assert hint.read() == ""
        hint.drop()
        hint.write("a longer one")
        hint.write("short")
        hint.close()
        hint.close()
        opened = reopen()
        again, other = opened.crash_hint(HOURLY), opened.crash_hint(HOURLY)
        assert again.read() == "short"
        again.write("b" * 2000)
        assert other.read() == "b" * 2000
        again.drop()
        assert other.read() == again.read() == ""
        again.write("new")
        again.drop()

    def test_a_log_keeps_its_id_and_has_it_for_itself(
        self, store: Store, reopen: Callable[[], Store], open_log: OpenLog
    ) -> None:
        other = open_log()()
        first = store.log_id
        assert first
        assert first != other.log_id
        other.close()
        store.claim(HOURLY)
        again = reopen()
        assert again.log_id == first
        assert list(again.instances()) == [HOURLY]
