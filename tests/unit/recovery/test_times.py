"""Frontiers against plain sets of times, on domains small enough to list."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logline.recovery.times import EPOCHS, LOOPS, SEQUENCES, Frontier, Order, Time

EDGES: list[Time] = [(edge, number) for edge in ("e1", "e2") for number in range(1, 5)]
PAIRS: list[Time] = list(product(range(4), range(3)))
DOMAINS = [(SEQUENCES, EDGES), (EPOCHS, PAIRS), (LOOPS, PAIRS)]


def listed(frontier: Frontier, times: list[Time]) -> set[Time]:
    return {time for time in times if time in frontier}


def drawn(data: st.DataObject, order: Order, times: list[Time]) -> tuple[Frontier, set[Time]]:
    """A frontier, and the same as a plain set."""
    some = data.draw(st.lists(st.sampled_from(times), max_size=4))
    return order.upto(*some), {time for time in times if any(order.below(time, one) for one in some)}


@pytest.mark.parametrize(("order", "times"), DOMAINS, ids=["sequences", "epochs", "loops"])
@given(data=st.data())
def test_frontiers_are_sets(order: Order, times: list[Time], data: st.DataObject) -> None:
    one, as_set = drawn(data, order, times)
    other, other_set = drawn(data, order, times)
    assert listed(one, times) == as_set
    assert listed(one & other, times) == as_set & other_set
    assert listed(one | other, times) == as_set | other_set
    assert (one <= other) == (as_set <= other_set)
    assert (one == other) == (as_set == other_set)


@pytest.mark.parametrize(("order", "times"), DOMAINS, ids=["sequences", "epochs", "loops"])
@given(data=st.data())
def test_nothing_and_everything(order: Order, times: list[Time], data: st.DataObject) -> None:
    some, _ = drawn(data, order, times)
    assert order.nothing <= some <= order.everything
    assert some & order.everything == some == some | order.nothing
    assert some | order.everything == order.everything
    assert not order.everything <= some
    assert all(time in order.everything and time not in order.nothing for time in times)


def test_times_of_two_edges_do_not_compare() -> None:
    assert ("e2", 1) not in SEQUENCES.upto(("e1", 4))
    assert SEQUENCES.upto(("e1", 4)) & SEQUENCES.upto(("e2", 7)) == SEQUENCES.nothing


def test_iterations_of_two_epochs_compare_only_as_epochs() -> None:
    assert (1, 9) in EPOCHS.upto((2, 3))
    assert (1, 9) not in LOOPS.upto((2, 3))
