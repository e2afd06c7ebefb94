"""Which operators share a process: as many processes as fit, fused along the graph, pinned groups left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.graph.graphs import Numbers, Pass, graph, middle, sink, source

from logline.errors import OptionError
from logline.graph.groups import group
from logline.graph.model import Graph, NodeOptions


class Stateful(Pass):
    def assign(self, event: Any, ctx: Any) -> list[int]:
        return [1]


class OnDriver(Pass):
    on_driver = True


def line() -> Graph:
    """A source, a filter, a window, a sink."""
    window = middle("window", op=Stateful())
    return graph([source("a"), middle("filter"), window, sink("s")], "a>filter filter>window window>s")


def test_with_room_everybody_is_alone() -> None:
    for room in (None, 4, 9):
        found = group(line(), room)
        assert found.groups == {n: (n,) for n in ("a", "filter", "window", "s")}
        assert found.least == 1


def test_cheap_ones_go_with_their_neighbours_first() -> None:
    assert list(group(line(), 3).groups) == ["a+filter", "window", "s"]
    assert len(group(line(), 2).groups) == 2
    assert group(line(), 1).groups == {"a+filter+window+s": ("a", "filter", "window", "s")}


def test_parts_of_a_graph_that_are_not_connected_share_too() -> None:
    apart = graph([source("a"), sink("s"), source("b"), sink("t")], "a>s b>t")
    assert group(apart, 1).groups == {"a+s+b+t": ("a", "s", "b", "t")}
    assert set(group(apart, 2).groups) == {"a+s", "b+t"}


def test_pinned_groups_stay_as_they_are() -> None:
    g = NodeOptions(group="g")
    pinned = graph([source("a"), middle("b", options=g), middle("c"), sink("s", options=g)], "a>b b>c c>s")
    assert group(pinned, 2).groups == {"a+c": ("a", "c"), "g": ("b", "s")}
    with pytest.raises(OptionError, match="needs room for 2 processes at once, and there is room for 1"):
        group(pinned, 1)


def test_operators_that_need_the_driver_take_no_room() -> None:
    on_driver = middle("sql", op=OnDriver())
    found = group(graph([source("a"), on_driver, sink("s")], "a>sql sql>s"), 1)
    assert found.on_driver == {"sql": ("sql",)}
    assert found.groups == {"a+s": ("a", "s")}
    assert found.all == {"a+s": ("a", "s"), "sql": ("sql",)}


@given(st.data())
def test_every_operator_is_in_one_group_and_no_more_groups_than_room(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 9))
    names = [f"op{i}" for i in range(n)]
    pins = data.draw(st.lists(st.sampled_from([None, None, "x", "y"]), min_size=n, max_size=n))
    nodes = [source(names[0], options=NodeOptions(group=pins[0]))]
    nodes += [middle(name, options=NodeOptions(group=pin)) for name, pin in zip(names[1:], pins[1:], strict=True)]
    edges = " ".join(f"{names[data.draw(st.integers(0, i - 1))]}>{names[i]}" for i in range(1, n))
    g = graph(nodes, edges)
    free = group(g)
    room = data.draw(st.integers(free.least, n + 2))
    found = group(g, room)
    assert sorted(m for members in found.groups.values() for m in members) == sorted(names)
    assert len(found.groups) <= room
    assert len(found.groups) == min(room, len(free.groups))  # as many as fit
    for pin in {p for p in pins if p is not None}:
        assert found.groups[pin] == tuple(name for name, p in zip(names, pins, strict=True) if p == pin)
    assert group(g, room) == found


class Apart(Numbers):
    apart = on_driver = True


def test_a_source_that_lives_apart_shares_its_tasks_with_nobody() -> None:
    nodes = [source("a", Apart()), middle("filter"), sink("s")]
    lone = graph(nodes, "a>filter filter>s")
    assert group(lone).on_driver == {"a": ("a",)}
    assert group(lone, 2, tasks=True).groups == {"a": ("a",), "filter+s": ("filter", "s")}
    with pytest.raises(OptionError, match="needs room for 2 processes"):
        group(lone, 1, tasks=True)
    both = NodeOptions(group="both")
    named = graph([replace(nodes[0], options=both), replace(nodes[1], options=both), nodes[2]], "a>filter filter>s")
    with pytest.raises(OptionError, match="group 'both': each partition of the source among a, filter is a task"):
        group(named, tasks=True)
