from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.graph.graphs import graph, middle, sink, source

import logline
from logline.graph.instances import Expansion, InstanceNode, expand
from logline.graph.model import Connection, NodeOptions
from logline.names import IN, OUT, OperatorName, channel_name, sender_of

NAMES = [OperatorName(name) for name in ("a", "b-1", "c_2", "D")]


@st.composite
def expansions(draw: st.DrawFn) -> tuple[dict[OperatorName, int | None], list[Connection], Expansion]:
    """Operators without replicas (None) or with some, and connections among them."""
    counts = draw(st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(1, 3), min_size=1))
    names = st.sampled_from(list(counts))
    connections = draw(st.lists(st.builds(Connection, names, st.sampled_from([OUT, "late"]), names, st.just(IN))))
    nodes = [
        InstanceNode(name, replica)
        for name, count in counts.items()
        for replica in ([None] if count is None else range(1, count + 1))
    ]
    return counts, list(dict.fromkeys(connections)), Expansion.of(nodes, connections)


@given(expansions())
def test_each_instance_belongs_to_one_operator(
    drawn: tuple[dict[OperatorName, int | None], list[Connection], Expansion],
) -> None:
    counts, _, made = drawn
    found = [instance for operator in counts for instance in made.instances_of(operator)]
    assert found == list(made.instances.values())
    assert len(made.instances) == sum(count or 1 for count in counts.values())
    for name, instance in made.instances.items():
        assert instance.name == name
        assert made.operator_of(name) == instance.operator
        assert name == (instance.operator if instance.replica is None else f"{instance.operator}/{instance.replica}")


@given(expansions())
def test_each_channel_belongs_to_one_connection_and_is_found_from_both_ends(
    drawn: tuple[dict[OperatorName, int | None], list[Connection], Expansion],
) -> None:
    counts, connections, made = drawn
    found = [(c, channel) for c in connections for channel in made.channels_of(c)]
    assert [channel for _, channel in found] == list(made.channels.values())
    for c, channel in found:
        assert made.operator_of(channel.sender) == c.sender
        assert made.operator_of(channel.receiver) == c.receiver
        assert (channel.out, channel.port) == (c.out, c.port)
        assert channel.name == channel_name(channel.sender, channel.out, channel.receiver, channel.port)
        assert sender_of(channel.name) == (channel.sender, channel.out)
        assert made.channels[channel.name] == channel
    # Every sender's instance is joined to every receiver's instance, once.
    assert Counter(c for c, _ in found) == {
        c: (counts[c.sender] or 1) * (counts[c.receiver] or 1) for c in connections
    }
    for name in made.instances:
        assert list(made.into(name)) == [x for _, x in found if x.receiver == name]
        for port in (OUT, "late", "never"):
            assert list(made.out_of(name, port)) == [x for _, x in found if (x.sender, x.out) == (name, port)]  # type: ignore[arg-type]


def test_a_graph_has_one_instance_per_operator_and_one_channel_per_connection() -> None:
    nodes = [source("orders"), middle("hourly", options=NodeOptions(policy="replay")), sink("store"), sink("audit")]
    shape = graph(nodes, "orders>hourly hourly>store hourly.late>audit orders>audit")
    made = expand(shape)
    assert list(made.instances) == ["orders", "hourly", "store", "audit"]
    assert list(made.channels) == [
        "orders.out>hourly.in",
        "hourly.out>store.in",
        "hourly.late>audit.in",
        "orders.out>audit.in",
    ]
    assert [one.policy for one in made.instances.values()] == ["pessimistic", "replay", "pessimistic", "pessimistic"]
    assert all(one.replica is None for one in made.instances.values())
    with pytest.raises(KeyError):
        made.instances_of(OperatorName("nobody"))


def test_nothing_casts_a_text_to_the_name_of_an_instance() -> None:
    """An operator's instances are looked up, and a user's text is read by `logline.names`."""
    root = Path(logline.__file__).parent
    allowed = {
        "names.py",  # makes names from parts, and reads them
        "store/lmdb/folder.py",  # reads back the names of its own files
        "store/postgres/store.py",  # reads back the names of its own rows
    }
    found = {
        f"{path.relative_to(root)}:{call.lineno}"
        for path in root.rglob("*.py")
        if str(path.relative_to(root)) not in allowed and "conformance" not in path.parts
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "InstanceName"
    }
    assert not found
