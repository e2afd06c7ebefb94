"""Reading anyone's journal: events, members, positions, memberships; what is committed and nothing else (R2, R12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from logline.engine.clock import port_marks_key
from logline.engine.events import Collection, Head, Headers, Output, Position
from logline.engine.history import Finished
from logline.engine.image import Image, SetCounts
from logline.engine.sets import Checkpoint, Member
from logline.engine.step import Step
from logline.errors import Collected, LogError
from logline.names import OUT, ChannelName, InstanceName, PortName, Serial, Ssn, TargetName, channel_name
from logline.store.seam import Reader, Store
from logline.testing.conformance.base import HOURLY, StoreSuite
from logline.testing.conformance.commits import ONE, ORDERS, TWO, busy_step, taken
from logline.testing.conformance.model import (
    ALL,
    Scribe,
    batch,
    exact,
    exact_history,
    exact_row,
    exact_rows,
    read_on,
    row,
    step_of,
)
from logline.testing.conformance.payloads import payloads

EFFECT = PortName("effect")
PRICES = InstanceName("prices")
PASSED = channel_name(PRICES, OUT, HOURLY, PortName("in"))
STORED = PortName("@stored")


def ssns(outputs: Iterable[Output]) -> list[int]:
    """Which events these are."""
    return [output.ssn for output in outputs]


def events(reader: Reader, after: int, limit: int = ALL, max_bytes: int = ALL, port: PortName = OUT) -> list[int]:
    """The SSNs that a receiver gets."""
    return ssns(reader.events(port, Ssn(after), limit=limit, max_bytes=max_bytes))


def needs(reader: Reader, channel: ChannelName = ORDERS) -> tuple[Position, list[int]]:
    """What the receiver needs, the members in order."""
    position, members, *_ = reader.needs(channel)
    assert reader.taken(channel) == (position,)
    return position, sorted(members)


class ReadingRules(StoreSuite):
    """What a reader gets to see."""

    # ---- events -----------------------------------------------------------------------------------------------

    def test_events_come_in_order_from_where_one_asks(self, scribe: Scribe) -> None:
        for _ in range(3):
            scribe.commit(scribe.emit(4))
        reader = scribe.reader
        assert events(reader, 0) == list(range(1, 13))
        assert events(reader, 5, limit=3) == [6, 7, 8]
        assert events(reader, 11) == [12]
        assert events(reader, 12) == []
        assert events(reader, 50) == []
        assert events(reader, 0, port=PortName("never")) == []

    @pytest.mark.parametrize("max_bytes", [1, 10, 11, 25, 1000])
    def test_a_bound_on_bytes_still_gives_one_event(self, scribe: Scribe, max_bytes: int) -> None:
        scribe.commit(scribe.emit(7, nbytes=10))
        assert len(events(scribe.reader, 0, max_bytes=max_bytes)) >= 1
        assert ssns(read_on(scribe.reader, OUT, Ssn(0), limit=ALL, max_bytes=max_bytes)) == list(range(1, 8))

    def test_a_reader_sees_each_commit_when_it_is_made(self, store: Store) -> None:
        reader = store.read(HOURLY)  # before there is a journal
        scribe = Scribe(store, HOURLY)
        for last in range(1, 5):
            scribe.commit(scribe.emit(1))
            assert reader.head(OUT).last == last
            assert events(reader, last - 1) == [last]

    def test_ports_are_apart(self, scribe: Scribe) -> None:
        late, out2 = PortName("late"), PortName("out2")
        step = scribe.emit(2)
        step.outputs += scribe.emit(3, late).outputs + scribe.emit(1, out2).outputs
        scribe.commit(step)
        scribe.commit(scribe.emit(1, late))
        scribe.check()
        assert [events(scribe.reader, 0, port=p) for p in (OUT, late, out2)] == [[1, 2], [1, 2, 3, 4], [1]]

    def test_the_end_is_an_event(self, scribe: Scribe) -> None:
        scribe.commit(scribe.emit(1, end=True))
        scribe.check()
        last = scribe.reader.pick(OUT, [Ssn(2)])[0]
        assert (last.end, last.payload, last.rows, last.nbytes, last.total) == (True, None, 0, 0, 10)
        assert [e.end for e in scribe.reader.events(OUT, Ssn(0), limit=ALL, max_bytes=1 << 30)] == [False, True]

    def test_a_watermark_is_a_mark_and_no_end(self, store: Store, reopen: Callable[[], Store]) -> None:
        """R30: between events, with its header and its bytes; it is no event, and no mark whose parity counts."""
        scribe = Scribe(store, HOURLY)
        step = scribe.emit(2)
        said = Output(OUT, Ssn(3), None, 0, 16, 36, Serial(0), "watermark", None, {"watermark": -5, "idle": True})
        after = row(OUT, 4, 10, 46)
        step.outputs += [said, after]
        step.clock[port_marks_key(OUT)] = 1
        scribe.commit(step)
        for again in (False, True):
            reader = reopen().read(HOURLY) if again else scribe.reader
            found = reader.events(OUT, Ssn(0), limit=ALL, max_bytes=ALL)
            assert [(event.kind, event.headers) for event in found][2:] == [
                ("watermark", {"watermark": -5, "idle": True}),
                ("event", None),
            ]
            assert (found[2].mark, found[2].end, found[2].nbytes, found[2].total) == (True, False, 16, 36)
            assert reader.image().marks == 0
            assert reader.put_out(OUT) == reader.image().put_out(OUT) == 3

    def test_headers_travel_with_their_event(self, store: Store, reopen: Callable[[], Store]) -> None:
        """Small values of every plain type, on some events and not on others, on ends and on writes too."""
        scribe = Scribe(store, HOURLY)
        headers: Headers = {"text": "ä", "number": -(2**40), "part": 0.5, "flag": True, "raw": b"\0", "none": None}
        outputs = scribe.emit(4, end=True).outputs
        for at, given in ((1, headers), (3, {}), (4, {"last": 1})):
            outputs[at] = outputs[at]._replace(headers=given)
        passed = row(STORED, 1, 10, 10)._replace(same=Member(PASSED, Ssn(1)), headers=headers)
        sender = Scribe(store, PRICES)
        sender.commit(sender.emit(1))
        scribe.commit(Step(outputs=[*outputs, passed]))
        wanted = [None, headers, None, {}, {"last": 1}]
        for again in (False, True):
            reader = reopen().read(HOURLY) if again else scribe.reader
            found = reader.events(OUT, Ssn(0), limit=ALL, max_bytes=ALL)
            assert [(event.kind, event.headers) for event in found] == [
                *(("event", given) for given in wanted[:4]),
                ("end", wanted[4]),
            ]
            bare = reader.headers(OUT, [event.ssn for event in found])
            assert [event.headers for event in bare if event is not None] == wanted
            (write,) = reader.pick(STORED, [Ssn(1)])
            assert (write.headers, write.same) == (headers, passed.same)

    def test_pick_gives_exactly_the_events_asked_for(self, scribe: Scribe) -> None:
        scribe.commit(scribe.emit(300))
        wanted = [Ssn(s) for s in (1, 2, 9, 10, 255, 256, 300)]
        assert ssns(scribe.reader.pick(OUT, wanted)) == list(wanted)
        assert list(scribe.reader.pick(OUT, [])) == []
        with pytest.raises(LogError):
            scribe.reader.pick(OUT, [Ssn(300), Ssn(301)])
        with pytest.raises(LogError):
            scribe.reader.pick(PortName("never"), [Ssn(1)])

    @pytest.mark.parametrize("name", payloads())
    def test_a_payload_comes_back_as_it_was(self, store: Store, reopen: Callable[[], Store], name: str) -> None:
        payload = payloads()[name]
        scribe = Scribe(store, HOURLY)
        output = row(OUT, 1, payload.nbytes, payload.nbytes, serial=4, payload=payload)
        scribe.commit(Step(outputs=[output]))
        assert exact_rows(scribe.reader.pick(OUT, [Ssn(1)])) == [exact_row(output)]
        found = reopen().read(HOURLY).events(OUT, Ssn(0), limit=1, max_bytes=1)
        reopen()  # what was read is no part of a log that is closed
        assert exact_rows(found) == [exact_row(output)]

    # ---- staged rows (R9) -------------------------------------------------------------------------------------

    def test_staged_rows_are_seen_when_they_are_revealed(self, scribe: Scribe) -> None:
        scribe.commit(scribe.emit(2, EFFECT))
        staged = scribe.emit(3, EFFECT).outputs
        scribe.commit(step_of(staged=staged))
        scribe.check()
        assert list(scribe.reader.stored(EFFECT)) == events(scribe.reader, 0, port=EFFECT) == [1, 2]
        assert scribe.reader.head(EFFECT) == Head(Ssn(2), 20)
        with pytest.raises(LogError):
            scribe.reader.pick(EFFECT, [Ssn(3)])
        scribe.commit(step_of(reveal={EFFECT: (Ssn(4), 40)}))
        assert events(scribe.reader, 2, port=EFFECT) == [3, 4]
        assert scribe.reader.head(EFFECT) == Head(Ssn(4), 40)
        last = Output(EFFECT, Ssn(6), None, 0, 0, 50, Serial(0), "end")
        scribe.commit(step_of(reveal={EFFECT: (Ssn(5), 50)}, outputs=[last]))  # outputs come after what is revealed
        scribe.check()
        assert scribe.reader.head(EFFECT).last == 6

    def test_a_read_made_anew_overwrites_what_an_older_life_staged(self, store: Store) -> None:
        old = Scribe(store, HOURLY)
        old.commit(step_of(staged=[row(EFFECT, s, s, 1, payload=batch(-s)) for s in range(1, 6)]))
        new = Scribe(store, HOURLY, old.model)
        fresh = [row(EFFECT, s, 2 * s, 2, payload=batch(s)) for s in range(1, 4)]
        new.commit(step_of(staged=fresh))
        new.commit(step_of(reveal={EFFECT: (Ssn(3), 6)}))
        assert exact_rows(new.reader.events(EFFECT, Ssn(0), limit=ALL, max_bytes=ALL)) == exact_rows(fresh)
        more = [row(EFFECT, s, 2 * s, 2, payload=batch(10 * s)) for s in range(4, 7)]
        new.commit(Step(outputs=more))  # over what is left of the old effect
        assert exact_rows(new.reader.events(EFFECT, Ssn(3), limit=ALL, max_bytes=ALL)) == exact_rows(more)

    # ---- collection (R12) -------------------------------------------------------------------------------------

    def test_collection_leaves_what_is_pinned(self, store: Store, reopen: Callable[[], Store]) -> None:
        scribe = Scribe(store, HOURLY)
        scribe.commit(scribe.emit(10))
        scribe.commit(Step(collected={OUT: Collection(Ssn(8), frozenset(map(Ssn, (3, 4, 6))))}))
        scribe.check()
        reader = scribe.reader
        assert list(reader.stored(OUT)) == [3, 4, 6, 8, 9, 10]
        assert reader.head(OUT) == Head(Ssn(10), 100, Ssn(8), {Ssn(3), Ssn(4), Ssn(6)})
        assert reader.base(OUT) == 8
        assert events(reader, 2) == [3, 4]  # up to the hole
        assert events(reader, 7) == [8, 9, 10]
        assert ssns(reader.pick(OUT, [Ssn(3), Ssn(6), Ssn(9)])) == [3, 6, 9]
        for gone in (0, 1, 4, 6):
            with pytest.raises(Collected):
                events(reader, gone)
        with pytest.raises(Collected):
            reader.pick(OUT, [Ssn(6), Ssn(7), Ssn(8)])
        scribe.commit(Step(collected={OUT: Collection(Ssn(11), frozenset({Ssn(4)}))}))
        scribe.commit(scribe.emit(1))
        scribe.check()
        again = reopen()
        scribe = Scribe(again, HOURLY, scribe.model)
        assert list(scribe.reader.stored(OUT)) == [4, 11]
        scribe.check()

    def test_all_may_go(self, scribe: Scribe) -> None:
        scribe.commit(scribe.emit(3))
        scribe.commit(Step(collected={OUT: Collection(Ssn(4), frozenset())}))
        assert list(scribe.reader.stored(OUT)) == events(scribe.reader, 3) == []
        assert scribe.reader.head(OUT) == Head(Ssn(3), 30, Ssn(4))
        scribe.commit(scribe.emit(2))
        assert events(scribe.reader, 3) == [4, 5]
        scribe.check()

    # ---- needs (R12, R13) -------------------------------------------------------------------------------------

    def test_needs_are_the_position_and_the_members(self, scribe: Scribe) -> None:
        other = ChannelName("refunds.out>hourly.in")
        assert needs(scribe.reader) == (Position(), [])
        step = Step(positions={ORDERS: Position(Ssn(4), 40), other: Position(Ssn(1), 7, 1)})
        step.open(ONE, "H", [taken(1), Member(other, Ssn(1)), taken(3)])
        step.open(TWO, "I", [taken(4)])
        scribe.commit(step)
        scribe.commit(step_of(due={TWO: "ready"}, alone={Serial(3): taken(2)}, serial=Serial(3)))
        assert needs(scribe.reader) == (Position(Ssn(4), 40), [1, 2, 3, 4])
        assert needs(scribe.reader, other) == (Position(Ssn(1), 7, 1), [1])
        scribe.commit(step_of(done=[TWO, ONE]))
        assert needs(scribe.reader) == (Position(Ssn(4), 40), [2])
        scribe.commit(step_of(done=[Serial(3)], ended=True))
        scribe.commit(Step(left=True))
        assert needs(scribe.reader) == (Position(Ssn(4), 40), [])

    # ---- writes that pass an event on (R8, R12) -----------------------------------------------------------------

    @staticmethod
    def passes(number: int, event: Output, channel: ChannelName = PASSED) -> Output:
        """A write action of that event, as it came."""
        return row(STORED, number, 10 * number, 10, payload=event.payload)._replace(same=Member(channel, event.ssn))

    def test_a_write_that_passes_an_event_on_comes_with_its_payload(self, store: Store, scribe: Scribe) -> None:
        sender = Scribe(store, PRICES)
        sent = sender.commit(sender.emit(6)).outputs
        own = [self.passes(1, sent[0]), self.passes(2, sent[3]), row(STORED, 3, 30, 10), self.passes(4, sent[3])]
        scribe.commit(Step(outputs=[*own, *scribe.emit(2).outputs]))
        scribe.check()
        assert exact_rows(scribe.reader.events(STORED, Ssn(0), limit=ALL, max_bytes=ALL)) == exact_rows(own)
        assert exact_rows(scribe.reader.pick(STORED, [Ssn(4), Ssn(2)])) == exact_rows([own[3], own[1]])
        assert events(scribe.reader, 1, limit=2, port=STORED) == [2, 3]

    def test_what_is_passed_on_is_needed_until_it_is_known_to_be_written(self, store: Store, scribe: Scribe) -> None:
        sender = Scribe(store, PRICES)
        sent = sender.commit(sender.emit(9)).outputs
        assert scribe.reader.needs(PASSED).unwritten is None
        position = {PASSED: Position(Ssn(9), 90)}
        writes = [self.passes(n, sent[ssn - 1]) for n, ssn in enumerate((7, 4, 8, 9), 1)]
        scribe.commit(Step(positions=position, outputs=[*writes, row(STORED, 5, 50, 10)]))
        assert scribe.reader.needs(PASSED).unwritten == 4
        assert scribe.reader.needs(ORDERS).unwritten is None
        for written, least in ((1, 4), (2, 8), (3, 9), (4, None), (5, None)):
            scribe.commit(step_of(written={TargetName("stored"): written}))
            assert scribe.reader.needs(PASSED).unwritten == least
        assert scribe.reader.needs(PASSED).position.ssn == 9

    def test_what_was_passed_on_goes_with_its_event(self, store: Store, scribe: Scribe) -> None:
        sender = Scribe(store, PRICES)
        sent = sender.commit(sender.emit(3)).outputs
        writes = [self.passes(n, event) for n, event in enumerate(sent, 1)]
        scribe.commit(step_of(outputs=writes, written={TargetName("stored"): 2}))
        sender.commit(Step(collected={OUT: Collection(Ssn(3), frozenset())}))
        assert exact_rows(scribe.reader.events(STORED, Ssn(2), limit=ALL, max_bytes=ALL)) == exact_rows(writes[2:])
        with pytest.raises(Collected):
            scribe.reader.pick(STORED, [Ssn(1)])
        scribe.commit(Step(collected={STORED: Collection(Ssn(3), frozenset())}))
        assert list(scribe.reader.stored(STORED)) == [3]
        assert exact_rows(scribe.reader.pick(STORED, [Ssn(3)])) == exact_rows(writes[2:])

    # ---- memberships ------------------------------------------------------------------------------------------

    def test_history_remembers_the_members_of_done_sets(self, scribe: Scribe) -> None:
        step = Step()
        step.open(ONE, "H", [taken(1, ("note", 1)), taken(2)])
        step.open(TWO, ("I", 2), [taken(2)])
        scribe.commit(step)
        assert list(scribe.reader.history()) == []
        step = step_of(members={ONE: [taken(3)]}, done=[ONE])  # joined and done in one step
        step.sets.finished.append(Finished(Serial(3), "J", (taken(3, [1]), taken(4))))  # began and ended in it
        scribe.commit(step)
        scribe.check()
        found = [
            Finished(ONE, "H", (taken(1, ("note", 1)), taken(2), taken(3))),
            Finished(Serial(3), "J", (taken(3, [1]), taken(4))),
        ]
        assert exact_history(scribe.reader.history()) == exact_history(found)
        scribe.commit(step_of(done=[TWO]))
        scribe.check()

    def test_an_event_alone_is_remembered_under_its_name(self, scribe: Scribe) -> None:
        scribe.commit(step_of(alone={ONE: taken(17)}, serial=ONE))
        scribe.commit(step_of(done=[ONE]))
        assert exact_history(scribe.reader.history()) == exact_history([Finished(ONE, "orders:17", (taken(17),))])

    def test_memberships_below_are_forgotten_per_channel(self, scribe: Scribe) -> None:
        other = ChannelName("orders.out>hourly.in2")  # a name that begins like the other one
        members = (taken(1), taken(300), Member(other, Ssn(1)))
        scribe.commit(step_of(finished=[Finished(ONE, "H", members), Finished(TWO, "I", (taken(2),))]))
        scribe.commit(Step(forget={ORDERS: Ssn(300)}))
        scribe.check()
        assert exact_history(scribe.reader.history()) == exact_history([Finished(ONE, "H", members[1:])])
        scribe.commit(Step(forget={ORDERS: Ssn(301), other: Ssn(2)}))
        assert list(scribe.reader.history()) == []

    # ---- numbers of sets --------------------------------------------------------------------------------------

    def test_numbers_of_sets_follow_each_of_them(self, store: Store, reopen: Callable[[], Store]) -> None:
        """Nobody looks at the sets to know how many there are: every step that changes one changes the numbers."""
        scribe = Scribe(store, HOURLY)

        def counted() -> tuple[int, ...]:
            scribe.check()
            return tuple(scribe.reader.count_sets())

        assert counted() == (0, 0, 0)
        step = Step()
        step.open(ONE, "a", [taken(1), taken(2)])
        step.open(TWO, "b", [taken(3)])
        scribe.commit(step)
        assert counted() == (2, 0, 3)
        scribe.commit(step_of(checkpoints={ONE: Checkpoint(1, b"", "", b"")}))
        assert counted() == (2, 1, 2)
        scribe.commit(step_of(checkpoints={ONE: Checkpoint(2, b"", "", b"")}, due={TWO: "fired"}))
        assert counted() == (2, 1, 1)
        scribe.commit(step_of(parked=[TWO]))
        scribe.commit(step_of(due={ONE: "fired"}, parked=[ONE]))
        assert counted() == (0, 0, 0)
        retried = Serial(3)
        step = step_of(done=[ONE], inherits={retried: ONE})
        step.open(retried, "a", [])
        scribe.commit(step)
        assert counted() == (1, 1, 0)
        step = step_of(members={retried: [taken(4)]})
        step.sets.alone[Serial(4)] = taken(5)
        scribe.commit(step)
        assert counted() == (2, 1, 2)
        scribe.commit(step_of(done=[TWO, Serial(4)]))
        scribe.commit(step_of(due={retried: "fired"}))
        scribe.journal.close()
        assert reopen().read(HOURLY).count_sets() == SetCounts(1, 1, 1)
        last = Scribe(reopen(), HOURLY, scribe.model)
        last.commit(step_of(done=[retried]))
        assert tuple(last.reader.count_sets()) == (0, 0, 0)

    # ---- isolation --------------------------------------------------------------------------------------------

    def test_nothing_that_is_handed_out_is_the_log(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        step = busy_step()
        step.outputs = scribe.emit(3).outputs
        scribe.commit(step)
        scribe.commit(Step(collected={OUT: Collection(Ssn(3), frozenset({Ssn(1)}))}))
        for image in (scribe.reader.image(), store.claim(HOURLY).image):
            spoil(image)
        scribe.reader.head(OUT).pinned.clear()
        scribe.check()
        assert exact(store.claim(HOURLY).image) == exact(scribe.model.image)

    def test_what_was_committed_does_not_change_with_the_step(self, store: Store) -> None:
        scribe = Scribe(store, HOURLY)
        note = [1]
        step = busy_step()
        step.outputs = scribe.emit(2).outputs
        step.sets.members[TWO] = []
        step.sets.opened[TWO].members[1] = taken(3, note)
        step.sets.finished.append(Finished(Serial(4), "K", (taken(5, note),)))
        scribe.journal.commit(scribe.number(step))
        before = exact(scribe.reader.image()), exact_history(scribe.reader.history())
        note.append(2)
        step.sets.opened[TWO].members.append(taken(9))
        step.sets.answers[ONE].clear()
        step.outputs.clear()
        step.positions.clear()
        step.timers.clear()
        step.sets.finished.clear()
        assert (exact(scribe.reader.image()), exact_history(scribe.reader.history())) == before
        assert events(scribe.reader, 0) == [1, 2]

    def test_reading_what_is_not_there_makes_nothing(self, store: Store) -> None:
        nobody = InstanceName("nobody")
        reader = store.read(nobody)
        assert (reader.head(OUT), reader.incarnation()) == (Head(), 0)
        assert exact(reader.image()) == exact(Image())
        assert list(reader.history()) == []
        assert list(reader.stored(OUT)) == events(reader, 0) == []
        assert nobody not in store.instances()
        journal = store.claim(nobody)
        reader.head(OUT)
        assert events(reader, 0) == []
        assert exact(store.claim(nobody).image) == exact(Image())
        assert journal.incarnation == 1
        assert nobody in store.instances()

    def test_instances_are_apart(self, store: Store) -> None:
        names = [InstanceName(name) for name in ("hourly", "hourly/1", "hourly/2", "hourly-1", "Hourly_1")]
        scribes = [Scribe(store, name) for name in names]
        for count, scribe in enumerate(scribes, 1):
            step = busy_step()
            step.outputs = scribe.emit(count).outputs
            step.state = scribe.instance.encode()
            scribe.commit(step)
        scribes[0].commit(Step(collected={OUT: Collection(Ssn(2), frozenset())}, forget={ORDERS: Ssn(10)}))
        for scribe in scribes:
            scribe.check()
        assert sorted(store.instances()) == sorted(names)


def spoil(image: Image) -> None:
    """Changes whatever can be changed."""
    for opened in image.sets.values():
        opened.members.append(taken(99))
        opened.cause = "end"
        for member in opened.members:
            if isinstance(member.note, tuple):
                member.note[1].append(2)
    for answers in image.answers.values():
        answers.clear()
    for head in image.heads.values():
        head.last = Ssn(77)
        head.pinned.add(Ssn(2))
    image.due.clear()
    for known in (image.positions, image.clock, image.timers, image.failures, image.written, image.reads):
        known.clear()
    image.keyed.clear()
    image.state = b"spoilt"
    image.left = True
