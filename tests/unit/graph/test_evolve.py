from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.unit.graph.graphs import Keep, Numbers, Pass, graph, middle, sink, source

from logline.graph.evolve import Changes, compare
from logline.graph.model import Graph, Node, NodeOptions, Scope
from logline.graph.operator import Operator
from logline.graph.record import from_plain, record_of, to_plain
from logline.names import OperatorName


@dataclass
class State1:
    seen: int = 0


@dataclass
class State2:
    seen: int = 0
    extra: str = ""


@dataclass
class State3:
    seen: str = ""


class Stateful(Pass):
    State: ClassVar[type | None] = State1

    def assign(self, event: Any, ctx: Any) -> list[int]:
        return [1]

    def update(self, inset: Any, acc: Any, event: Any) -> Any:
        return acc


class Grown(Stateful):
    State = State2


class Changed(Stateful):
    State = State3


class Other(Numbers):
    pass


def base(**nodes: Node) -> Graph:
    """orders -> hourly -> store, with some nodes exchanged."""
    default = {"orders": source("orders"), "hourly": middle("hourly", op=Stateful()), "store": sink("store")}
    return graph([*(default | nodes).values()], "orders>hourly hourly>store")


def changed(old: Graph, new: Graph) -> Changes:
    """By way of the log, where a record is JSON."""
    before, after = (from_plain(json.loads(json.dumps(to_plain(record_of(one))))) for one in (old, new))
    return compare(before, after)


def test_the_same_pipeline_has_not_changed() -> None:
    assert changed(base(), base()) == Changes([], [])


def test_changed_code_is_accepted() -> None:
    new = base(hourly=middle("hourly", op=Grown()))
    found = changed(base(), new)
    assert found.refused == []
    assert any("operator 'hourly': its code changed" in sentence for sentence in found.accepted)


def test_a_version_that_was_given_stands_for_the_code() -> None:
    def with_version(version: str, op: Operator[Any, Any]) -> Graph:
        return base(store=middle("store", outputs="", op=op, options=NodeOptions(version=version)))

    class Different(Pass):
        def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
            yield acc.slice(1)

    assert changed(with_version("1", Pass()), with_version("1", Different())) == Changes([], [])
    (sentence,) = changed(with_version("1", Pass()), with_version("2", Pass())).accepted
    assert "version 1 to 2" in sentence


def branched() -> Graph:
    nodes = [*base().nodes.values(), middle("daily"), sink("archive")]
    return graph(nodes, "orders>hourly hourly>store hourly>daily daily>archive")


def test_an_end_branch_may_come_and_go() -> None:
    found = changed(base(), branched())
    assert found.refused == []
    assert found.accepted == [
        "operator 'archive' was added at the end of a branch",
        "operator 'daily' was added at the end of a branch",
    ]
    found = changed(branched(), base())
    assert found.refused == []
    assert found.accepted[0] == "operator 'archive' was removed: what it had not finished is not finished"


def refused(old: Graph, new: Graph) -> str:
    found = changed(old, new)
    assert found.refused
    assert all("fresh log" in s or "another log" in s for s in found.refused)
    return "\n".join(found.refused)


def test_what_is_put_before_something_that_stays_is_refused() -> None:
    nodes = [source("orders"), middle("clean"), *list(base().nodes.values())[1:]]
    message = refused(base(), graph(nodes, "orders>clean clean>hourly hourly>store"))
    assert "clean.out was connected to hourly.in, which is not new" in message
    assert "orders.out is no longer connected to hourly.in, which is still there" in message


def test_sources_may_neither_come_nor_go() -> None:
    more = graph([*base().nodes.values(), source("returns")], "orders>hourly hourly>store returns>hourly")
    assert "source 'returns' was added" in refused(base(), more)
    assert "source 'returns' was removed" in refused(more, base())


def test_a_renamed_pipeline() -> None:
    assert "the log belongs to pipeline 'sales', this is 'retail'" in refused(base(), replace(base(), name="retail"))


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (
            base(hourly=middle("hourly", op=Stateful(), schema=pa.schema([("id", pa.int32())]))),
            "operator 'hourly': the schema of port 'out' changed from (id int64) to (id int32)",
        ),
        (
            base(hourly=middle("hourly", outputs="out late", op=Stateful())),
            "the output port 'late' was added",
        ),
        (
            base(hourly=middle("hourly", "in more", op=Stateful())),
            "its input ports were 'in' and are now 'in', 'more'",
        ),
        (base(hourly=middle("hourly", op=Pass())), "it has become stateless"),
        (base(hourly=middle("hourly", op=Changed())), "its state had seen: int and now has seen: str"),
        (base(hourly=source("hourly")), "it was a middle and is now a source"),
        (base(store=sink("store", "guarded")), "its targets were out: named and are now out: guarded"),
        (
            base(store=middle("store", outputs="", targets={"out": Keep(), "audit": Keep()})),
            "its targets were out: named and are now out: named, audit: named",
        ),
        (base(orders=source("orders", Other())), "offsets belong to the kind of source"),
    ],
)
def test_other_changes_are_refused_with_a_sentence(new: Graph, says: str) -> None:
    assert says in refused(base(), new)


def test_a_state_may_gain_fields() -> None:
    found = changed(base(), base(hourly=middle("hourly", op=Grown())))
    assert "operator 'hourly': its state has new fields, which begin at their defaults: 'extra'" in found.accepted


def test_lineage_may_change() -> None:
    scoped = replace(base(), scopes=(Scope(None, (OperatorName("hourly"), "out"), timedelta(days=1)),))  # type: ignore[arg-type]
    (sentence,) = changed(base(), scoped).accepted
    assert "the lineage scopes changed" in sentence
