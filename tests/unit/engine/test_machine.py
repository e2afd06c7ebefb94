"""The life of a machine: stimulus in, actions out. What concerns one set is in test_set_transitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engine.machines import (
    INPUT,
    OP,
    OUTPUT,
    SIZE,
    STORE,
    UP,
    answer,
    at,
    channel,
    claimed,
    events,
    failure,
    generated,
    made,
    one,
    only,
    running,
    spec,
    with_sets,
)

from logline.engine import actions as do
from logline.engine import stimuli as on
from logline.engine.events import Collection, Output, Position
from logline.engine.image import Claim, Image, Needs
from logline.engine.sets import Member
from logline.engine.spec import InstanceSpec, Limits, RetrySpec, write_port
from logline.engine.story import Story
from logline.errors import EngineError
from logline.graph.instances import Channel
from logline.names import ERRORS, OUT, Incarnation, InstanceName, PartitionName, Serial, Ssn, TargetName
from logline.recovery.machines import janitor_for, machine_for

OTHER = channel(InstanceName("other"), OP)
MORE = channel(OP, InstanceName("more"))


# ---- phases of a life ----------------------------------------------------------------------------------------------


def test_new_claims() -> None:
    machine = machine_for(spec())
    assert machine.handle(on.Started(), at(0)) == [do.ClaimJournal()]
    assert machine.phase == "claiming"


def test_claimed_recovers_and_looks_at_nothing_before_it_is_whole() -> None:
    machine, asked = claimed()
    assert asked == [do.Rebuild(Image(heads=asked[0].image.heads), {})]  # type: ignore[attr-defined]
    assert machine.phase == "recovering"
    assert machine.handle(on.Bell(), at(1)) == []


def test_rebuilt_runs_and_fetches() -> None:
    machine, _ = claimed()
    assert machine.handle(on.Rebuilt(on.Intake()), at(0)) == [do.Fetch(INPUT.name, Ssn(0))]
    assert machine.phase == "running"


def test_nothing_begins_before_a_target_has_said_what_it_has() -> None:
    """What is logged meanwhile could hide from the next life that the target is ahead."""
    machine, asked = claimed(stateless=True, targets={STORE: "positioned"})
    assert one(asked, do.AskPosition) == do.AskPosition(STORE)
    machine.handle(on.Rebuilt(on.Intake()), at(0))
    asked = machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1)), at(1))
    assert not only(asked, do.TakeIn)
    asked = machine.handle(on.PositionKnown(STORE, 0), at(2))
    assert one(asked, do.TakeIn).events == [(INPUT.name, events(1)[0])]


def test_a_target_that_is_ahead_stops_the_pipeline() -> None:
    machine, _ = claimed(stateless=True, targets={STORE: "positioned"})
    machine.handle(on.Rebuilt(on.Intake()), at(0))
    halt = one(machine.handle(on.PositionKnown(STORE, 3), at(1)), do.Halt)
    assert "up to number 3, and the log has given out numbers up to 0 only" in halt.failure.message
    assert machine.phase == "failed"


def test_a_target_that_does_not_say_what_it_has_is_asked_again_and_then_stops_the_pipeline() -> None:
    machine, _ = claimed(stateless=True, targets={STORE: "positioned"}, limits=Limits(write_retry=RetrySpec(2, 5)))
    machine.handle(on.Rebuilt(on.Intake()), at(0))
    assert one(machine.handle(on.PositionKnown(STORE, 0, failure(retryable=True)), at(1)), do.Wake).at == 6
    assert one(machine.handle(on.Tick(), at(6)), do.AskPosition) == do.AskPosition(STORE)
    asked = machine.handle(on.PositionKnown(STORE, 0, failure(retryable=True)), at(7))
    assert one(asked, do.Halt).failure.kind == "ValueError"


def test_a_life_of_an_instance_that_has_left_leaves() -> None:
    _, asked = claimed(Image(left=True))
    assert asked == [do.Leave("left")]


@pytest.mark.parametrize("begin", [lambda: claimed()[0], running, lambda: with_sets()[0]])
def test_fenced_off_is_gone_wherever_it_was(begin: object) -> None:
    machine = begin()  # type: ignore[operator]
    assert machine.handle(on.FencedOff(), at(1)) == [do.Leave("fenced")]
    assert machine.handle(on.Bell(), at(2)) == []
    assert machine.phase == "gone"


def test_user_code_that_breaks_halts() -> None:
    machine = running()
    assert machine.handle(on.Broke(failure(), "up:3"), at(1)) == [do.Halt(failure(), event="up:3")]
    assert machine.phase == "failed"
    assert machine.handle(on.Bell(), at(2)) == []


def test_a_payload_that_is_gone_is_no_exception_but_the_end_of_a_pessimistic_life() -> None:
    """R12: what is needed is not collected."""
    machine, _ = claimed()
    halt = one(machine.handle(on.PayloadGone(INPUT.name, (Ssn(3), Ssn(4))), at(1)), do.Halt)
    assert "2 events of up.out>op.in from 3 on are needed and are not in the log any more" in halt.failure.message
    assert machine.phase == "failed"


def test_the_end_is_an_event_and_then_the_instance_leaves() -> None:
    machine = running()
    end = replace_end(events(1)[0])
    machine.handle(on.Fetched(INPUT.name, Ssn(0), [end]), at(1))
    machine.handle(on.TakenIn(on.Intake()), at(2))
    step = one(machine.handle(on.Fetched(INPUT.name, Ssn(1), []), at(2)), do.Commit).step
    assert [(o.port, o.ssn, o.end) for o in step.outputs] == [(OUT, 1, True), (ERRORS, 1, True)]
    assert step.ended
    asked = machine.handle(on.Committed(1), at(3))
    assert one(asked, do.Commit).step.left
    assert machine.handle(on.Committed(2), at(4)) == [do.Leave("left")]


def test_an_end_that_is_taken_back_is_none() -> None:
    machine = running()
    first, second = events(1, 2)
    back = second._replace(payload=None, kind="reopened")
    machine.handle(on.Fetched(INPUT.name, Ssn(0), [replace_end(first)]), at(1))
    asked = machine.handle(on.TakenIn(on.Intake()), at(2))
    assert only(asked, do.Commit) == []  # what is behind the end is not known yet
    machine.handle(on.Fetched(INPUT.name, Ssn(1), [back]), at(2))
    machine.handle(on.TakenIn(on.Intake()), at(2))
    asked = machine.handle(on.Fetched(INPUT.name, Ssn(2), []), at(2))
    assert not machine.end_given
    assert machine.inbox.channels[INPUT.name].position.marks == 2


def replace_end(event: Output) -> Output:
    return event._replace(payload=None, kind="end")


# ---- commands ------------------------------------------------------------------------------------------------------


def test_stop_leaves_when_nothing_is_under_way() -> None:
    assert running().handle(on.Command("stop"), at(1)) == [do.StopCalls(), do.Leave("stopped")]


def test_stop_waits_for_what_is_in_generation_and_begins_nothing() -> None:
    machine, _ = with_sets()
    machine.handle(on.Fetched(INPUT.name, Ssn(1), events(2)), at(2))
    assert machine.handle(on.Command("stop"), at(3)) == [do.StopCalls()]
    assert machine.handle(on.Command("stop"), at(3)) == []  # once is enough
    step = one(machine.handle(generated(1), at(4)), do.Commit).step
    assert [o.serial for o in step.outputs] == [1]
    assert machine.handle(on.Committed(1), at(5))[-1] == do.Leave("stopped")


def test_stop_leaves_a_set_that_was_cut_off_in_the_log_with_its_answers() -> None:
    """R9: the next life generates it and does not ask again for what was answered."""
    machine, _ = with_sets()
    machine.handle(on.Command("stop"), at(2))
    step = one(machine.handle(on.Answered(answer(1)), at(3)), do.Commit).step
    assert list(step.sets.alone) == [1] and list(step.sets.answers) == [1]
    assert one(machine.handle(on.Committed(1), at(4)), do.Release).answers == (answer(1),)
    assert machine.handle(on.Interrupted((Serial(1),)), at(5)) == [do.Leave("stopped")]


def test_stop_permits_no_call_any_more() -> None:
    """A writer's call waits for its own writes; after a stop it is not made at all."""
    machine, _ = with_sets(targets={TargetName("t"): "named"})
    machine.handle(on.Command("stop"), at(2))
    assert machine.handle(on.CallWanted(Serial(1), -1, 0), at(3)) == []
    step = one(machine.handle(on.Interrupted((Serial(1),)), at(4)), do.Commit).step
    assert list(step.sets.alone) == [1]
    assert machine.handle(on.Committed(1), at(5))[-1] == do.Leave("stopped")


def test_stop_before_the_claim_calls_no_user_code() -> None:
    machine = machine_for(spec())
    machine.handle(on.Started(), at(0))
    assert machine.handle(on.Command("stop"), at(1)) == [do.StopCalls()]
    assert machine.handle(on.Claimed(Claim(Incarnation(1), Image())), at(2)) == [do.Leave("stopped")]


def test_a_run_of_events_is_left_at_a_stop() -> None:
    """What was generated is logged; the rest is due."""
    machine = running(stateless=True, plain=True)
    machine.intake._length = 3
    asked = machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1, 3)), at(2))
    assert len(one(asked, do.Apply).events) == 3
    machine.handle(on.Command("stop"), at(3))
    rest = {Serial(n): Member(INPUT.name, Ssn(n)) for n in (2, 3)}
    step = one(machine.handle(on.Applied(Serial(1), [made()], rest), at(4)), do.Commit).step
    assert [o.serial for o in step.outputs] == [1] and step.sets.alone == rest
    assert machine.handle(on.Committed(1), at(5))[-1] == do.Leave("stopped")


def test_drain_is_not_stop_and_not_the_other_way_round() -> None:
    machine = running()
    assert machine.handle(on.Command("drain"), at(1)) == []
    assert (machine.draining, machine.stopping, machine.phase) == (True, False, "running")
    machine.handle(on.Command("stop"), at(2))
    assert machine.stopping


def test_a_command_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(AssertionError):
        running().handle(on.Command("scale"), at(1))  # type: ignore[arg-type]


# ---- commits (R1-R3) -----------------------------------------------------------------------------------------------


def test_positions_alone_wait_for_a_while() -> None:
    machine = running(limits=Limits(ack_after=500))
    machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1)), at(1))
    asked = machine.handle(on.TakenIn(on.Intake()), at(2))
    assert only(asked, do.Commit) == []
    assert one(asked, do.Wake).at == 502
    assert one(machine.handle(on.Tick(), at(502)), do.Commit).step.positions == {INPUT.name: Position(Ssn(1), SIZE)}


def test_positions_alone_go_at_once_when_a_sender_may_soon_wait() -> None:
    """R13: half the bound is taken and not said."""
    machine = running(limits=Limits(port_bytes=2 * SIZE))
    machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1)), at(1))
    assert one(machine.handle(on.TakenIn(on.Intake()), at(2)), do.Commit).step.positions[INPUT.name].ssn == 1


def test_one_commit_is_in_flight_at_a_time() -> None:
    machine, _ = with_sets(2, concurrency=2)
    assert one(machine.handle(generated(1), at(2)), do.Commit).step.number == 1
    assert only(machine.handle(generated(2), at(3)), do.Commit) == []
    assert one(machine.handle(on.Committed(1), at(4)), do.Commit).step.number == 2


def test_a_repeated_answer_of_a_commit_changes_nothing() -> None:
    machine, _ = with_sets(2, concurrency=2)
    machine.handle(generated(1), at(2))
    machine.handle(generated(2), at(3))
    machine.handle(on.Committed(1), at(4))
    assert machine.handle(on.Committed(1), at(5)) == []
    assert machine.commits.flying is not None


def test_receivers_hear_of_outputs_and_senders_of_positions_once_it_is_durable() -> None:
    """R2: nothing is shown before."""
    machine, _ = with_sets()
    assert only(machine.handle(generated(1), at(2)), do.Ring) == []
    assert one(machine.handle(on.Committed(1), at(3)), do.Ring).instances == ("down", "up")


# ---- back-pressure and collection (R12, R13) -----------------------------------------------------------------------


def test_a_receiver_that_is_a_bound_behind_stops_new_work_only() -> None:
    machine, asked = with_sets(2, limits=Limits(port_bytes=SIZE))
    assert one(asked, do.Commit).step.number == 1  # half a bound is taken: the sender hears of it
    machine.handle(on.Committed(1), at(2))
    assert one(machine.handle(generated(1, 2), at(2)), do.Commit).step.number == 2
    machine.handle(on.Committed(2), at(3))
    asked = machine.handle(on.Fetched(INPUT.name, Ssn(2), events(3)), at(4))
    assert only(asked, do.TakeIn) == []
    needs = {OUTPUT.name: Needs(Position(Ssn(2), 2 * SIZE), ())}
    machine.handle(on.Bell(), at(5))
    assert len(one(machine.handle(on.Observed(needs), at(6)), do.TakeIn).events) == 1


def test_what_the_receiver_needs_is_asked_of_its_policy() -> None:
    """A member of an open set is pinned, the rest of what is taken goes."""
    machine, _ = with_sets(4, limits=Limits(collect_events=4))
    machine.handle(generated(1, 2, 3, 4), at(2))
    assert one(machine.handle(on.Committed(1), at(3)), do.Observe).channels == (OUTPUT.name,)
    machine.handle(on.Observed({OUTPUT.name: Needs(Position(Ssn(3), 30), (Ssn(2),))}), at(4))
    assert machine.commits.pending.collected[OUT] == Collection(Ssn(4), frozenset({Ssn(2)}))


# ---- channels that change during a life (R28) ----------------------------------------------------------------------


def rewired(before: InstanceSpec, *inputs: Channel, outputs: tuple[Channel, ...] = (OUTPUT,)) -> on.Rewired:
    return on.Rewired(replace(before, inputs=inputs, ports={OUT: outputs, ERRORS: ()}))


def test_a_sender_that_comes_is_read_from_where_its_channel_was() -> None:
    machine = running(Image(positions={OTHER.name: Position(Ssn(7), 70)}))
    assert machine.handle(rewired(machine.spec, INPUT, OTHER), at(1)) == [do.Fetch(OTHER.name, Ssn(7))]
    assert not machine.inbox.ended


def test_a_sender_that_goes_is_read_no_more_and_comes_back_where_it_was() -> None:
    machine = running(inputs=(INPUT, OTHER), stateless=True)
    machine.intake._length = 2
    machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1, 2)), at(1))  # two are taken,
    machine.handle(on.Fetched(INPUT.name, Ssn(2), events(3)), at(1))  # one is read ahead
    machine.handle(rewired(machine.spec, OTHER), at(2))
    assert list(machine.inbox.channels) == [OTHER.name]
    assert machine.handle(on.Fetched(INPUT.name, Ssn(3), events(4)), at(3)) == []  # it was under way
    assert do.Fetch(INPUT.name, Ssn(2)) in machine.handle(rewired(machine.spec, INPUT, OTHER), at(4))


def test_an_instance_is_not_left_without_input() -> None:
    machine = running()
    with pytest.raises(EngineError, match="without an input"):
        machine.handle(rewired(machine.spec), at(1))


def test_a_receiver_that_comes_counts_as_far_behind_until_it_is_seen() -> None:
    machine, _ = with_sets(2, limits=Limits(port_bytes=2 * SIZE))
    machine.handle(generated(1, 2), at(2))
    machine.handle(on.Committed(1), at(3))
    there = {OUTPUT.name: Needs(Position(Ssn(2), 2 * SIZE), ())}
    machine.handle(on.Bell(), at(4))
    machine.handle(on.Observed(there), at(5))
    assert not machine.outbox.blocked()
    asked = machine.handle(rewired(machine.spec, INPUT, outputs=(OUTPUT, MORE)), at(6))
    assert machine.outbox.blocked()
    assert [a.channels for a in asked if isinstance(a, do.ObserveTaken | do.Observe)] == [(OUTPUT.name, MORE.name)]
    machine.handle(rewired(machine.spec, INPUT), at(7))
    assert not machine.outbox.blocked()


# ---- the factory ---------------------------------------------------------------------------------------------------


def test_the_factory_makes_what_the_spec_says() -> None:
    source = InstanceSpec(UP, ports={OUT: (INPUT,)}, partitions=(PartitionName("0"),))
    assert type(machine_for(source)).__name__ == "SourceMachine"
    assert type(machine_for(spec())).__name__ == "OperatorMachine"
    assert machine_for(spec()).policy.name == "pessimistic"
    assert machine_for(spec()).policy is not machine_for(spec()).policy  # a life has its own


def test_a_janitor_collects_for_one_that_has_left() -> None:
    machine = janitor_for(spec(targets={STORE: "guarded"}))
    machine.handle(on.Started(), at(0))
    image = Image(left=True)
    image.head(OUT).last = image.head(write_port(STORE)).last = Ssn(3)
    assert machine.handle(on.Claimed(Claim(Incarnation(2), image)), at(0)) == [do.Observe((OUTPUT.name,))]
    needs = {OUTPUT.name: Needs(Position(Ssn(2), 20), ())}
    step = one(machine.handle(on.Observed(needs), at(0)), do.Commit).step
    assert {port: c.base for port, c in step.collected.items()} == {OUT: 3, write_port(STORE): 4}
    assert machine.handle(on.Committed(1), at(0)) == [do.Leave("stopped")]


def test_a_janitor_leaves_a_living_one_alone() -> None:
    machine = janitor_for(spec())
    machine.handle(on.Started(), at(0))
    assert machine.handle(on.Claimed(Claim(Incarnation(2), Image())), at(0)) == [do.Leave("stopped")]


# ---- stories -------------------------------------------------------------------------------------------------------


def test_a_story_tells_what_was_heard_and_asked_without_payloads() -> None:
    machine = running()
    machine.story = Story(most=3)
    machine.handle(on.Fetched(INPUT.name, Ssn(0), events(1)), at(1))
    machine.handle(on.TakenIn(on.Intake(alone={Serial(1): made()})), at(2))  # type: ignore[dict-item]
    machine.handle(generated(1), at(3))
    machine.handle(on.Committed(1), at(4))
    entries = list(machine.story.entries)
    assert [entry.heard for entry in entries] == [
        "TakenIn(1 sets opened, 0 due, 0 failed)",
        "Generated(1)",
        "Committed(1)",
    ]
    assert entries[1].asked == ("Commit(number 1, outputs 1, positions 1, serial 1)",)
    assert entries[2].asked == ("Ring(down, up)",)
    assert all("payload" not in str(entry) for entry in entries)
