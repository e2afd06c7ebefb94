from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from tests.unit.graph.graphs import Keep, Numbers, Pass, graph, middle, sink, source

from logline.graph.evolve import Changes, compare
from logline.graph.identity import identify
from logline.graph.model import Graph, Node, NodeOptions, Scope
from logline.graph.operator import Operator
from logline.graph.record import from_plain, ids_in, record_of, to_plain
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


def test_another_event_state_is_refused_where_checkpoints_may_be() -> None:
    class Counting(Stateful):
        def update(self, inset: Any, acc: Any, event: Any) -> int:
            return 1

    class Moving(Stateful):
        moves_members = True

    def under(policy: Any, op: Operator[Any, Any]) -> Graph:
        return base(hourly=middle("hourly", op=op, options=NodeOptions(policy=policy)))

    (refused,) = changed(under("eventual", Stateful()), under("eventual", Counting())).refused
    assert "the event state of its input sets was 'plain' and is now 'typed int'" in refused
    (refused,) = changed(under("eventual", Stateful()), under("pessimistic", Moving())).refused
    assert "it merges input sets or puts them out several times now" in refused
    assert changed(under("pessimistic", Stateful()), under("pessimistic", Counting())).refused == []


def branched() -> Graph:
    nodes = [*base().nodes.values(), middle("daily"), sink("archive")]
    return graph(nodes, "orders>hourly hourly>store hourly>daily daily>archive")


def test_an_end_branch_may_come_and_go() -> None:
    found = changed(base(), branched())
    assert found.refused == []
    assert found.accepted == [
        "operator 'archive' was added",
        "operator 'daily' was added",
    ]
    found = changed(branched(), base())
    assert found.refused == []
    assert found.accepted[0] == "operator 'archive' was removed: what it had not finished is not finished"


def refused(old: Graph, new: Graph) -> str:
    found = changed(old, new)
    assert found.refused
    assert all("run the pipeline as it was" in s or "undo" in s or "another" in s for s in found.refused)
    return "\n".join(found.refused)


def inserted() -> Graph:
    nodes = [source("orders"), middle("clean"), *list(base().nodes.values())[1:]]
    return graph(nodes, "orders>clean clean>hourly hourly>store")


def test_what_is_put_before_something_goes_on_where_that_has_stopped() -> None:
    found = changed(base(), inserted())
    assert found.refused == []
    assert "operator 'clean' was added" in found.accepted
    (begins,) = found.beginnings
    assert (begins.wire.channel, begins.how) == ("orders.out>clean.in", "after")
    assert [former.channel for former in begins.after] == ["orders.out>hourly.in"]
    assert [wire.channel for wire in found.closed] == ["orders.out>hourly.in"]


def test_what_is_taken_out_must_not_hold_anything_back() -> None:
    message = refused(inserted(), base())
    assert "clean.out>hourly.in was removed, and events of clean.out that 'hourly' has not taken" in message
    assert "operator 'clean' was removed, and what stays would never get what comes of its input sets" in message
    assert "stop it with drain" in message


def test_a_source_may_come_and_one_that_goes_leaves_nothing_untaken() -> None:
    more = graph([*base().nodes.values(), source("returns")], "orders>hourly hourly>store returns>hourly")
    found = changed(base(), more)
    assert (found.refused, found.accepted) == ([], ["source 'returns' was added"])
    assert "returns.out>hourly.in was removed, and events of returns.out that 'hourly' has not" in refused(
        more, base()
    )


def test_another_stream_joins_from_now_on() -> None:
    def joined(*connections: str) -> Graph:
        return graph([*base().nodes.values(), source("returns"), sink("bin")], " ".join(connections))

    was = ("orders>hourly", "hourly>store", "returns>bin")
    found = changed(joined(*was), joined(*was, "returns>hourly"))
    assert found.refused == []
    assert found.accepted == ["returns.out>hourly.in is new: it begins with what comes from now on"]


def test_a_renamed_operator_is_the_same_operator() -> None:
    named = replace(middle("per_hour", op=Stateful()), options=NodeOptions(was=OperatorName("hourly")))
    nodes = [source("orders"), named, sink("store")]
    new = identify(graph(nodes, "orders>per_hour per_hour>store"), ids_in(record_of(base())))
    assert new.ids == {"orders": "orders", "per_hour": "hourly", "store": "store"}
    found = changed(base(), new)
    assert (found.refused, found.accepted) == ([], ["operator 'hourly' is called 'per_hour' now"])
    assert (found.beginnings, found.closed) == ([], [])


def test_a_rename_that_is_not_said_is_asked_for() -> None:
    nodes = [source("orders"), middle("per_hour", op=Stateful()), sink("store")]
    message = refused(base(), graph(nodes, "orders>per_hour per_hour>store"))
    assert 'If it is called otherwise now, say was="hourly" where it is made' in message


def test_what_is_made_anew_has_another_id_and_begins_with_what_is_there() -> None:
    new = identify(base(), ids_in(record_of(base())), fresh=[OperatorName("hourly")])
    assert new.ids == {"orders": "orders", "hourly": "hourly@2", "store": "store@2"}
    found = changed(base(), new)
    assert found.refused == []
    assert found.accepted == [
        "operator 'hourly' is made anew, from what the log still has",
        "operator 'store' is made anew, from what the log still has; what the old one wrote stays in its target",
    ]
    assert [(begins.wire.channel, begins.how) for begins in found.beginnings] == [("orders.out>hourly@2.in", "first")]


def test_a_renamed_pipeline() -> None:
    assert "the log belongs to pipeline 'sales', this is 'retail'" in refused(base(), replace(base(), name="retail"))


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (
            base(hourly=middle("hourly", op=Stateful(), schema=pa.schema([("id", pa.int32())]))),
            "operator 'hourly': the schema of port 'out' changed from (id int64) to (id int32)",
        ),
        (base(hourly=middle("hourly", op=Pass())), "it has become stateless"),
        (base(hourly=middle("hourly", op=Changed())), "its state had seen: int and now has seen: str"),
        (base(hourly=source("hourly")), "it was a middle and is now a source"),
        (base(store=sink("store", "guarded")), "the target 'out' was named and is now guarded"),
        (base(store=middle("store", outputs="")), "the target 'out' was removed: writes of it are not done"),
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


def test_ports_and_targets_may_come() -> None:
    found = changed(base(), base(hourly=middle("hourly", outputs="out late", op=Stateful())))
    assert (found.refused, found.accepted) == (
        [],
        ["operator 'hourly': the output port 'late' was added: it begins empty"],
    )
    more = base(store=middle("store", outputs="", targets={"out": Keep(), "audit": Keep()}))
    old = base(store=middle("store", outputs="", targets={"out": Keep()}))
    assert changed(old, more).accepted == [
        "operator 'store': the target 'audit' was added: its writes begin with number 1"
    ]
