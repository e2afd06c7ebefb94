from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.graph.graphs import ID, Keep, Numbers, Pass, graph, middle, sink, source

from logline.errors import (
    BadName,
    DefinitionError,
    GraphError,
    GuaranteeError,
    LoglineError,
    OptionError,
    SchemaError,
    ShippingError,
    StateError,
)
from logline.graph.model import Graph, Node, NodeOptions, Scope
from logline.graph.operator import Operator
from logline.graph.validate import validate
from logline.names import OperatorName, PortName

TIMED = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("day", pa.date32())])


def refused(graph: Graph, kind: type[LoglineError]) -> str:
    with pytest.raises(LoglineError) as info:
        validate(graph)
    assert type(info.value) is kind, info.value
    return str(info.value)


def test_a_graph_that_can_run() -> None:
    nodes = [
        source("a"),
        source("b"),
        middle("u"),
        middle("two", "left right", "out extra"),
        sink("s"),
        sink("t"),
    ]
    validate(graph(nodes, "a>u b>u u>two.left a>two.right two>s two.extra>t"))


@pytest.mark.parametrize("name", ["", "1st", "a b", "a.b", "a/1", "ä", "-a", "a" * 65])
def test_malformed_names(name: str) -> None:
    assert f"{name!r} can't name an operator: a name has letters" in refused(graph([source(name)]), BadName)
    assert "can't name a pipeline" in refused(graph([source("a")], name=name), BadName)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (middle("b", "1"), "operator 'b': '1' can't name an input port"),
        (middle("b", outputs="o.1"), "operator 'b': 'o.1' can't name an output port"),
        (middle("b", targets={"a b": Keep()}), "operator 'b': 'a b' can't name a target"),
        (middle("b", "x x"), "operator 'b' has the input port 'x' twice"),
    ],
)
def test_malformed_ports_and_targets(node: Node, says: str) -> None:
    assert says in refused(graph([source("a"), node]), BadName)


def test_a_name_that_is_listed_under_another() -> None:
    broken = Graph("sales", {OperatorName("x"): source("a")}, ())
    assert "operator 'a' is listed as 'x'" in refused(broken, BadName)


def test_no_source() -> None:
    assert "pipeline 'sales' has no source" in refused(graph([]), GraphError)


def test_unknown_operators_and_ports() -> None:
    nodes = [source("a"), middle("b")]
    assert "an operator 'c' that is not there" in refused(graph(nodes, "a>b a>c"), BadName)
    assert "'a' has no output port 'x'; it has 'out'" in refused(graph(nodes, "a.x>b"), BadName)
    assert "'b' has no input port 'x'; it has 'in'" in refused(graph(nodes, "a>b.x"), BadName)


def test_an_input_port_that_is_not_connected() -> None:
    message = refused(graph([source("a"), middle("b", "left right")], "a>b.left"), GraphError)
    assert message == (
        "operator 'b': the input port 'right' is not connected: "
        "connect a stream to it, as in inputs={'right': stream}"
    )


def test_a_connection_that_comes_twice() -> None:
    message = refused(graph([source("a"), middle("b")], "a>b a>b"), GraphError)
    assert "the port a.out is connected twice to b.in: every event would count twice" in message


def test_a_cycle_is_shown() -> None:
    nodes = [source("a"), middle("b", "in back"), middle("c")]
    message = refused(graph(nodes, "a>b b>c c>b.back"), GraphError)
    assert "the connections form a cycle: " in message
    assert "b -> c -> b" in message or "c -> b -> c" in message


def test_different_schemas_into_one_port() -> None:
    nodes = [source("a"), middle("b", schema=TIMED), middle("u")]
    message = refused(graph(nodes, "a>b a>u b>u"), SchemaError)
    assert "operator 'u': the input port 'in' gets different schemas: a.out has (id int64), b.out has" in message


def test_at_least_once_has_to_be_accepted() -> None:
    nodes = [source("a"), sink("s", "at_least_once")]
    message = refused(graph(nodes, "a>s"), GuaranteeError)
    assert "operator 's', target 'out' (Keep) only guarantees at_least_once" in message
    assert "accept='at_least_once'" in message
    accepted = sink("s", "at_least_once", NodeOptions(accept="at_least_once"))
    validate(graph([source("a"), accepted], "a>s"))


def test_a_positioned_target_needs_a_position() -> None:
    message = refused(graph([source("a"), sink("s", "positioned")], "a>s"), GuaranteeError)
    assert "a positioned target needs position()" in message


def test_an_unknown_guarantee() -> None:
    message = refused(graph([source("a"), sink("s", "exactly_once")], "a>s"), GuaranteeError)  # type: ignore[arg-type]
    assert "guarantee is 'exactly_once': declare one of positioned, guarded, named, at_least_once" in message


def test_an_object_belongs_to_one_operator() -> None:
    op = Pass()
    nodes = [source("a"), middle("b", op=op), middle("c", op=op)]
    message = refused(graph(nodes, "a>b a>c"), GraphError)
    assert message == "operators 'b' and 'c' share one Operator object: make one for each"
    target = Keep()
    nodes = [source("a"), middle("b", targets={"t": target}), middle("c", targets={"t": target})]
    assert "share one Sink object" in refused(graph(nodes, "a>b a>c"), GraphError)


class Timed(Pass):
    def __init__(self, port: str, column: str) -> None:
        self.time = {port: column}


def timed(op: Operator[Any, Any]) -> Graph:
    return graph([source("a"), middle("t", schema=TIMED), middle("w", op=op)], "a>t t>w")


@pytest.mark.parametrize("column", ["at", "day"])
def test_event_time_columns(column: str) -> None:
    validate(timed(Timed("in", column)))


def test_event_time_that_is_not_there_or_no_time() -> None:
    assert "time names the input port 'x'; it has 'in'" in refused(timed(Timed("x", "at")), BadName)
    message = refused(timed(Timed("in", "when")), SchemaError)
    assert "operator 'w': the event-time column 'when' of port 'in' does not exist; the port has 'id'" in message
    assert "has type int64, expected a timestamp or a date" in refused(timed(Timed("in", "id")), SchemaError)


class Late(Pass):
    lateness = "soon"


def test_lateness_is_a_duration() -> None:
    assert "operator 'w': lateness: 'soon' is not a duration" in refused(timed(Late()), OptionError)


@dataclass
class Held:
    lock: object = threading


class BadState(Pass):
    State = Held

    def assign(self, event: Any, ctx: Any) -> list[int]:
        return [1]

    def update(self, inset: Any, acc: Any, event: Any) -> Any:
        return acc


def one(op: Operator[Any, Any]) -> Graph:
    return graph([source("a"), middle("b", op=op)], "a>b")


def test_state_that_can_not_be_encoded() -> None:
    assert "operator 'b': the field 'lock' of its state" in refused(one(BadState()), StateError)


class Client(Pass):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Locked(Numbers):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_what_can_not_be_shipped() -> None:
    assert "operator 'b': attribute 'lock' (lock)" in refused(one(Client()), ShippingError)
    assert "operator 'a': attribute 'lock' (lock)" in refused(graph([source("a", Locked())]), ShippingError)


class OnlyAssign(Pass):
    def assign(self, event: Any, ctx: Any) -> list[int]:
        return [1]


class OnlyReady(Pass):
    def ready(self, inset: Any, acc: Any, ctx: Any) -> bool:
        return True


def test_phases_that_are_missing() -> None:
    assert "needs a generate() method" in refused(one(Operator()), DefinitionError)
    assert "defines assign() and needs update() too" in refused(one(OnlyAssign()), DefinitionError)
    assert "defines ready() but not assign()" in refused(one(OnlyReady()), DefinitionError)


class NoSchema(Numbers):
    schema = None


def test_a_source_without_schema() -> None:
    message = refused(graph([source("a", NoSchema())]), SchemaError)
    assert "source 'a': NoSchema has no schema" in message


def test_the_port_errors_is_reserved() -> None:
    message = refused(graph([source("a"), Node(OperatorName("b"), None, Pass(), (PortName("in"),),
                      {PortName("errors"): ID})], "a>b"), GraphError)  # fmt: skip
    assert "the port 'errors' is Logline's own" in message


def test_lineage_scopes_are_checked() -> None:
    scope = Scope((OperatorName("x"), PortName("out")), None, timedelta(days=7))
    assert "lineage: there is no operator 'x'" in refused(graph([source("a")], scopes=(scope,)), BadName)


def test_several_errors_come_together() -> None:
    nodes = [source("a"), middle("b", "in other"), sink("s", "at_least_once"), middle("c", op=Client())]
    message = refused(graph(nodes, "a>b b>s b>c"), DefinitionError)
    assert message.startswith("pipeline 'sales' has 3 errors:\n  - operator 'b': the input port 'other'")
    assert message.count("\n  - ") == 3


class Never(Numbers):
    def partitions(self) -> Any:
        raise AssertionError("validation asks nothing of the outside")

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        raise AssertionError("validation reads nothing")


def test_nothing_moves() -> None:
    validate(graph([source("a", Never()), sink("s")], "a>s"))
