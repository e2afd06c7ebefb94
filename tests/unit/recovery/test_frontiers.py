"""The algorithm of Figure 6 against all that could be chosen, and against the figures of Falkirk Wheel.

The figures' drawings are rebuilt from their captions and from the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from logline.errors import EngineError
from logline.recovery.frontiers import Checkpoint, Chosen, Edge, Monitor, consistent, resent
from logline.recovery.times import EPOCHS, FOREVER, SEQUENCES, Frontier

# ---- the figures ----------------------------------------------------------------------------------------


def epoch(*last: float) -> Frontier:
    return EPOCHS.upto(last)


def enter_loop(f: Frontier) -> Frontier:
    """A message of epoch t enters the loop as (t, 0); what t is complete is complete with all its iterations."""
    return f if f.every else EPOCHS.upto(*((t, FOREVER) for (t,) in f.maxima))


def next_iteration(f: Frontier) -> Frontier:
    """What is received at (t, c) is sent on at (t, c + 1)."""
    return f if f.every else EPOCHS.upto(*((t, c + 1) for t, c in f.maxima))


def leave_loop(f: Frontier) -> Frontier:
    """An epoch is fixed outside the loop when no iteration of it can come any more."""
    return f if f.every else EPOCHS.upto(*((t if c == FOREVER else t - 1,) for t, c in f.maxima))


def frontiers(chosen: Mapping[str, Chosen]) -> dict[str, Frontier]:
    return {name: one.frontier for name, one in chosen.items()}


def test_figure_2_panel_a_sequence_numbers_are_projected_by_the_checkpoint() -> None:
    """p has taken 4 messages of e1 and 7 of e2, and has sent 3 on e3 and 4 on e4."""
    edges = [Edge("e3", "p", "x", order=SEQUENCES), Edge("e4", "p", "y", order=SEQUENCES)]
    sent = {"e3": SEQUENCES.upto(("e3", 3)), "e4": SEQUENCES.upto(("e4", 4))}
    p = [Checkpoint(SEQUENCES.upto(("e1", 4), ("e2", 7)), projected=sent)]
    x = [Checkpoint(SEQUENCES.upto(("e3", n))) for n in (2, 3, 4)]
    y = [Checkpoint(SEQUENCES.upto(("e4", n))) for n in (4, 5)]
    chosen = frontiers(consistent(edges, {"p": p, "x": x, "y": y}))
    assert chosen["x"] == SEQUENCES.upto(("e3", 3))
    assert chosen["y"] == SEQUENCES.upto(("e4", 4))


def test_figure_2_panel_b_epochs_are_the_same_on_both_sides() -> None:
    chosen = consistent([Edge("e", "q", "r")], {"q": [Checkpoint(epoch(2))], "r": [Checkpoint(epoch(3))]})
    assert frontiers(chosen) == {"q": epoch(2), "r": EPOCHS.nothing}


def test_figure_2_panel_c_an_epoch_is_all_its_iterations() -> None:
    """r has processed the first epoch: (1, c) is fixed on the edge for every c, and (2, 0) is not."""
    edge = Edge("e", "r", "body", enter_loop)
    body = [Checkpoint(epoch(1, 7)), Checkpoint(epoch(2, 0))]
    chosen = frontiers(consistent([edge], {"r": [Checkpoint(epoch(1))], "body": body}))
    assert chosen["body"] == epoch(1, 7)


def test_figure_3_selective_rollback_keeps_a_time_whatever_the_order() -> None:
    """Each has a state of time A alone, though messages of B came in between: the state is per time."""
    a, b = epoch(1), epoch(2)
    edges = [Edge("words", "select", "sum"), Edge("sums", "sum", "buffer")]
    selective = [Checkpoint(a, discarded={"sums": a})]
    chosen = consistent(
        edges,
        {
            "select": [Checkpoint(a, discarded={"words": a})],
            "sum": selective,
            "buffer": [Checkpoint(a)],
        },
    )
    assert set(frontiers(chosen).values()) == {a}
    assert resent([((1,), "sum of A"), ((2,), "sum of B")], a) == ["sum of B"]
    assert not b <= a


def test_figure_4_what_was_logged_needs_no_sender_that_goes_back() -> None:
    """p logged all that it sent on e4 and nothing on e3, so only e3's receiver must keep what it has got."""
    edges = [Edge("e1", "s", "p"), Edge("e3", "p", "x"), Edge("e4", "p", "y")]
    everywhere = [Checkpoint(epoch(n)) for n in range(1, 6)]
    p = [Checkpoint(epoch(n), discarded={"e3": epoch(n)}) for n in (3, 5)]
    chosen = frontiers(consistent(edges, {"s": everywhere, "p": p, "x": everywhere[:4], "y": []}))
    assert chosen["p"] == epoch(3), "x does not have what p discarded in epoch 5"
    assert chosen["x"] == epoch(3), "what p would send on e3 after 3 is not fixed any more"
    assert chosen["y"] == EPOCHS.nothing, "y gets all of it again, out of p's log"


def test_figure_4_a_message_into_the_future_that_was_discarded_can_leave_only_the_beginning() -> None:
    """At time 3 p sent a message of time 4 on e3. At 3 it is discarded, and 4 is not fixed: x can neither have it nor
    get it again."""
    p = [Checkpoint(epoch(3), discarded={"e3": epoch(4)})]
    x = [Checkpoint(epoch(3)), Checkpoint(epoch(4))]
    chosen = frontiers(consistent([Edge("e3", "p", "x")], {"p": p, "x": x}))
    assert set(chosen.values()) == {EPOCHS.nothing}


def figure_5(*, notified: Frontier | None) -> dict[str, Frontier]:
    """q has acted on a notification, sent nothing, and forgets it; x was told that time 1 is complete."""
    edges = [Edge("e1", "p", "r"), Edge("e2", "q", "r"), Edge("e3", "r", "x")]
    one = epoch(1)
    r = Checkpoint(one, processed={"e1": one, "e2": EPOCHS.nothing})
    x = Checkpoint(one, notified=notified, processed={"e3": EPOCHS.nothing})
    return frontiers(consistent(edges, {"p": [Checkpoint(one)], "q": [], "r": [r], "x": [x]}))


def test_figure_5_a_notification_holds_back_what_messages_alone_would_not() -> None:
    assert figure_5(notified=None)["x"] == epoch(1), "without the notification x may stay"
    found = figure_5(notified=epoch(1))
    assert found["x"] == EPOCHS.nothing, "q may yet send at time 1, and x was told that nobody will"
    assert found["r"] == epoch(1), "r was told nothing"


def sequence(**taken: int) -> Frontier:
    return SEQUENCES.upto(*taken.items())


def test_figure_7_panel_a_all_outputs_are_logged() -> None:
    """x failed and goes back to its checkpoint. Its sender has that in its log, its receiver must not be ahead."""
    edges = [Edge("px", "p", "x", order=SEQUENCES), Edge("xy", "x", "y", order=SEQUENCES)]
    x = [
        Checkpoint(sequence(px=5), projected={"xy": sequence(xy=3)}),
        Checkpoint(sequence(px=8), projected={"xy": sequence(xy=6)}),
    ]
    live_p = Checkpoint(SEQUENCES.everything, projected={"px": sequence(px=12)})
    live_y = Checkpoint(SEQUENCES.everything, processed={"xy": sequence(xy=6)})
    chosen = frontiers(consistent(edges, {"p": [live_p], "x": x, "y": [live_y]}))
    assert chosen == {"p": SEQUENCES.everything, "x": sequence(px=8), "y": SEQUENCES.everything}

    ahead = Checkpoint(SEQUENCES.everything, processed={"xy": sequence(xy=9)})
    y = [Checkpoint(sequence(xy=4)), Checkpoint(sequence(xy=6)), ahead]
    chosen = frontiers(consistent(edges, {"p": [live_p], "x": x, "y": y}))
    assert chosen["y"] == sequence(xy=6), "what x would send after 6 may be something else now"


def test_figure_7_panel_b_a_logged_dataset_is_a_firewall() -> None:
    """p logged its outputs, nobody else kept anything, and y failed: x has to make its own again for it."""
    edges = [Edge("px", "p", "x"), Edge("xy", "x", "y"), Edge("pq", "p", "q"), Edge("qr", "q", "r")]

    def live(*outputs: str) -> Checkpoint:
        return Checkpoint(EPOCHS.everything, discarded=dict.fromkeys(outputs, epoch(0)))

    available = {"p": [live()], "x": [live("xy")], "q": [live("qr")], "r": [live()], "y": list[Checkpoint]()}
    chosen = frontiers(consistent(edges, available))
    assert chosen["x"] == chosen["y"] == EPOCHS.nothing
    assert chosen["p"] == chosen["q"] == chosen["r"] == EPOCHS.everything


def test_figure_7_panel_c_a_loop_is_restarted_where_it_was() -> None:
    """y failed inside the loop and has (1, 3). q, which logs, has (1, 4) from what y sent it at (1, 3)."""
    edges = [
        Edge("e2", "p", "q", enter_loop),
        Edge("e3", "q", "out", leave_loop),
        Edge("e4", "q", "y"),
        Edge("e5", "y", "q", next_iteration),
    ]
    y = [Checkpoint(epoch(1, 3), discarded={"e5": epoch(1, 4)})]
    q = [Checkpoint(epoch(1, c)) for c in (3, 4, 5)]
    chosen = frontiers(consistent(edges, {"p": [Checkpoint(epoch(1))], "q": q, "y": y, "out": []}))
    assert chosen["y"] == epoch(1, 3)
    assert chosen["q"] == epoch(1, 4)
    assert resent([((1, 3), "third"), ((1, 4), "fourth")], chosen["y"]) == ["fourth"]


# ---- against everything that could be chosen ---------------------------------------------------------------

LAST = 3
ALL = [EPOCHS.nothing, *(epoch(n) for n in range(1, LAST + 1))]


def shifted(by: int) -> Callable[[Frontier], Frontier]:
    """A projection of an instance that sends at later times than it receives; it grows with the frontier."""
    return lambda f: f if f.every else EPOCHS.upto(*((max(t - by, 0),) for (t,) in f.maxima if t - by > 0))


@st.composite
def systems(draw: st.DrawFn) -> tuple[list[Edge], dict[str, list[Checkpoint]]]:
    names = [f"i{n}" for n in range(draw(st.integers(2, 4)))]
    ends = [(a, b) for a in names for b in names if a != b]
    picked = draw(st.lists(st.sampled_from(ends), min_size=1, max_size=4, unique=True))
    shifts = st.sampled_from([None, 0, 1])
    edges = []
    for number, (sender, receiver) in enumerate(picked):
        by = draw(shifts)
        edges.append(Edge(f"e{number}", sender, receiver, None if by is None else shifted(by)))
    chains: dict[str, list[Checkpoint]] = {}
    for name in names:
        chains[name] = []
        for top in draw(st.lists(st.integers(1, LAST), unique=True).map(sorted)):
            below = st.integers(0, top).map(lambda n: ALL[n])
            chains[name].append(
                Checkpoint(
                    epoch(top),
                    notified=draw(st.none() | below),
                    processed={e.name: draw(below) for e in edges if e.receiver == name and draw(st.booleans())},
                    discarded={e.name: draw(below) for e in edges if e.sender == name and draw(st.booleans())},
                )
            )
    return edges, chains


def fits(edges: Sequence[Edge], chosen: Mapping[str, tuple[Checkpoint, Frontier]]) -> bool:
    """The constraints of section 3.5, one by one."""
    for checkpoint, complete in chosen.values():
        if not complete <= checkpoint.frontier or not (checkpoint.notified or EPOCHS.nothing) <= complete:
            return False
    for edge in edges:
        projects = edge.projects or (lambda f: f)
        (sender, sender_complete), (receiver, complete) = chosen[edge.sender], chosen[edge.receiver]
        if not sender.discarded.get(edge.name, EPOCHS.nothing) <= receiver.frontier:
            return False
        if not receiver.processed.get(edge.name, receiver.frontier) <= projects(sender.frontier):
            return False
        if not complete <= projects(sender_complete):
            return False
    return True


def all_that_fit(edges: Sequence[Edge], chains: Mapping[str, Sequence[Checkpoint]]) -> Iterator[dict[str, Frontier]]:
    begun = Checkpoint(EPOCHS.nothing)
    choices = [[(c, n) for c in (begun, *chain) for n in ALL if n <= c.frontier] for chain in chains.values()]
    for picked in product(*choices):
        chosen = dict(zip(chains, picked, strict=True))
        if fits(edges, chosen):
            yield {name: checkpoint.frontier for name, (checkpoint, _) in chosen.items()}


@given(systems())
def test_what_is_chosen_is_the_greatest_of_all_that_fit(
    system: tuple[list[Edge], dict[str, list[Checkpoint]]],
) -> None:
    edges, chains = system
    possible = list(all_that_fit(edges, chains))
    assume(len(possible) < 50_000)
    chosen = consistent(edges, chains)
    assert fits(edges, {name: (one.checkpoint, one.notified) for name, one in chosen.items()})
    for other in possible:
        assert all(other[name] <= chosen[name].frontier for name in chains)


@given(systems(), st.randoms(use_true_random=False))
def test_a_monitor_finds_the_same_step_by_step(
    system: tuple[list[Edge], dict[str, list[Checkpoint]]], chance: Random
) -> None:
    edges, chains = system
    monitor = Monitor(edges, dict.fromkeys(chains, EPOCHS))
    turns = [name for name, chain in chains.items() for _ in chain]
    chance.shuffle(turns)
    so_far: dict[str, list[Checkpoint]] = {name: [] for name in chains}
    for name in turns:
        checkpoint = chains[name][len(so_far[name])]
        so_far[name].append(checkpoint)
        before = dict(monitor.low_watermarks)
        risen = monitor.persisted(name, checkpoint)
        now = dict(monitor.low_watermarks)
        assert now == frontiers(consistent(edges, so_far))
        assert risen == {other: now[other] for other in now if now[other] != before[other]}
        assert all(before[other] <= now[other] for other in now), "a low-watermark never falls"


@given(systems(), st.data())
def test_a_rollback_never_goes_below_the_low_watermark(
    system: tuple[list[Edge], dict[str, list[Checkpoint]]], data: st.DataObject
) -> None:
    edges, chains = system
    monitor = Monitor(edges, dict.fromkeys(chains, EPOCHS))
    for name, chain in chains.items():
        for checkpoint in chain:
            monitor.persisted(name, checkpoint)
    live = {name: Checkpoint(EPOCHS.everything) for name in chains if data.draw(st.booleans(), label=name)}
    chosen = monitor.rollback(live)
    for name, low in monitor.low_watermarks.items():
        assert low <= chosen[name].frontier


# ---- what is refused -----------------------------------------------------------------------------------------


def test_checkpoints_come_in_order() -> None:
    with pytest.raises(EngineError, match=r"a: the frontier upto\(\(1,\)\) does not come after upto\(\(2,\)\)"):
        consistent([], {"a": [Checkpoint(epoch(2)), Checkpoint(epoch(1))]})


def test_a_notification_is_within_the_frontier() -> None:
    with pytest.raises(EngineError, match="a: notified of"):
        consistent([], {"a": [Checkpoint(epoch(1), notified=epoch(2))]})


def test_a_projection_grows_with_its_frontier() -> None:
    edges = [Edge("ab", "a", "b")]
    a = [Checkpoint(epoch(1), projected={"ab": epoch(2)}), Checkpoint(epoch(2), projected={"ab": epoch(1)})]
    with pytest.raises(EngineError, match="a: its projection on ab shrinks"):
        consistent(edges, {"a": a, "b": []})


def test_both_ends_of_an_edge_are_known() -> None:
    with pytest.raises(EngineError, match="edge ab: nothing is known of b"):
        consistent([Edge("ab", "a", "b")], {"a": []})
