"""The record of a graph goes into a log as JSON and comes back, also from a log that another version wrote."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.unit.graph.graphs import ID, Numbers, graph, middle, sink, source

from logline.errors import BadName, LogError
from logline.graph.evolve import Changes, compare
from logline.graph.instances import expand
from logline.graph.model import Graph, NodeOptions, Scope
from logline.graph.record import GraphRecord, from_plain, graph_of, record_of, schema_of, to_plain
from logline.names import OUT, Called, OperatorName, PartitionName, PortName

ORDERS, HOURLY = OperatorName("orders"), OperatorName("hourly")
ERRORS = [
    ["operator", "string", True],
    ["inset", "string", True],
    ["events", "list<item: string>", True],
    ["reason", "string", True],
    ["traceback", "string", True],
    ["data", "binary", True],
]
WRITTEN: dict[str, Any] = {
    "format": 1,
    "pipeline": "sales",
    "operators": {
        "orders": {
            "kind": "source",
            "inputs": [],
            "outputs": {"out": [["id", "int64", True]]},
            "targets": {},
            "policy": "pessimistic",
            "version": "1",
            "stateless": True,
            "state": None,
            "read": {"type": "tests.unit.graph.graphs.Numbers", "replayable": True, "destructive": False},
            "depends": [],
        },
        "hourly": {
            "kind": "middle",
            "inputs": ["in"],
            "outputs": {"out": [["id", "int64", True]], "errors": ERRORS},
            "targets": {},
            "policy": "pessimistic",
            "version": "2",
            "stateless": True,
            "state": None,
            "read": None,
            "depends": [["id", "id", "same"]],
        },
        "store": {
            "kind": "sink",
            "inputs": ["in"],
            "outputs": {"errors": ERRORS},
            "targets": {"out": "named"},
            "policy": "pessimistic",
            "version": "3",
            "stateless": True,
            "state": None,
            "read": None,
            "depends": [],
        },
    },
    "connections": [["orders", "out", "hourly", "in"], ["hourly", "out", "store", "in"]],
    "scopes": [{"start": ["orders", "out"], "target": None, "keep": 86400.0, "size": 10}],
}
"""As a log has it since format 1 exists. If this test fails, logs that users have can't be read any more."""


def sales() -> Graph:
    nodes = [
        source("orders", options=NodeOptions(version="1")),
        middle("hourly", options=NodeOptions(version="2", depends={"id": "id"})),
        sink("store", options=NodeOptions(version="3")),
    ]
    scope = Scope((ORDERS, OUT), None, timedelta(days=1), 10)
    return graph(nodes, "orders>hourly hourly>store", (scope,))


def test_what_a_log_holds_is_what_is_written_today() -> None:
    made = json.loads(json.dumps(to_plain(record_of(sales()))))
    types = [operator.pop("type") for operator in made["operators"].values()]  # later than the others
    assert types == ["", "tests.unit.graph.graphs.Pass", "tests.unit.graph.graphs.Pass"]
    for operator in made["operators"].values():
        assert operator.pop("parameters") == {}  # later than the others
        operator.pop("id")
        operator.pop("places")  # the same
        assert (operator.pop("keyed"), operator.pop("migrates")) == (None, False)
        assert (operator.pop("event_state"), operator.pop("moves_members")) == (None, False)
        assert operator.pop("key_rows") is None
        assert [depends.pop() for depends in operator["depends"]] == [None] * len(operator["depends"])  # the port
    assert {key: made[key] for key in WRITTEN} == WRITTEN


def test_a_log_of_an_earlier_version_goes_on() -> None:
    old = from_plain(WRITTEN)
    assert compare(old, record_of(sales())) == Changes([], [])
    assert (old.actions, old.keep, old.schemas, old.script, old.former) == ({}, {}, {}, None, {})


def test_fields_that_once_were_not_there() -> None:
    older = json.loads(json.dumps(WRITTEN))
    for operator in older["operators"].values():
        del operator["depends"]
    del older["scopes"][0]["size"]
    found = from_plain(older)
    assert found.operators[HOURLY].depends == ()
    assert found.scopes[0].size is None


def test_fields_that_are_not_known_yet() -> None:
    newer = json.loads(json.dumps(WRITTEN))
    newer["licence"] = "MIT"
    newer["operators"]["hourly"]["groups"] = 32
    assert from_plain(newer) == from_plain(WRITTEN)


@pytest.mark.parametrize("format", [0, 2, None])
def test_a_record_of_another_format(format: int | None) -> None:
    with pytest.raises(LogError, match=f"has format {format}, this version of Logline reads 1: finish the run"):
        from_plain({"format": format, "operators": "something else"})


def test_a_record_that_means_something_else() -> None:
    broken = json.loads(json.dumps(WRITTEN))
    broken["operators"]["hourly"]["policy"] = "hopeful"
    with pytest.raises(LogError, match=r"can't be read: Invalid enum value 'hopeful' .*policy"):
        from_plain(broken)


def test_a_record_comes_back_with_all_that_a_run_adds() -> None:
    full = msgspec.structs.replace(
        record_of(sales()),
        actions={ORDERS: {PartitionName("0"): "select * from orders"}},
        keep={HOURLY: (PortName("@audit"),)},
        script="sales.py",
    )
    assert from_plain(json.loads(json.dumps(to_plain(full)))) == full


def test_the_graph_of_a_record_has_the_shape_of_the_graph() -> None:
    shape = graph_of(record_of(sales()))
    assert (shape.name, shape.connections, shape.scopes) == ("sales", sales().connections, sales().scopes)
    assert expand(shape) == expand(sales())
    assert {name: node.inputs for name, node in shape.nodes.items()} == {
        name: node.inputs for name, node in sales().nodes.items()
    }


def test_the_schema_of_a_port() -> None:
    found = record_of(sales())
    assert schema_of(found, Called("orders"), OUT) == ID
    assert schema_of(found, Called("hourly"), PortName("errors")).field("data").type == pa.binary()
    with pytest.raises(BadName, match="there is no operator 'nobody'; there are orders, hourly, store"):
        schema_of(found, Called("nobody"), OUT)
    with pytest.raises(BadName, match="'hourly' has no port 'late'; it has out, errors"):
        schema_of(found, Called("hourly"), PortName("late"))


class Secretive(Numbers):
    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.dsn = dsn


def test_nothing_of_where_a_connector_points_to_is_recorded() -> None:
    def of(dsn: str) -> GraphRecord:
        return record_of(graph([source("a", Secretive(dsn))]))

    one = of("postgresql://u:hunter2@h/db")
    assert "hunter2" not in json.dumps(to_plain(one))
    assert one == of("postgresql://u:rotated@h/db")
