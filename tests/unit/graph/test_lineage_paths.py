"""LOG.io section 3.1, Example 5 (Figure 2), with the paper's operators and ports."""

from datetime import timedelta

import pytest
from tests.unit.graph.graphs import graph, middle, sink, source

from logline.errors import BadName, GraphError
from logline.graph.lineage_paths import Enabled, enabled_ports
from logline.graph.model import Graph, Scope
from logline.names import OperatorName, PortName


def scope(start: str | None, target: str | None) -> Scope:
    def port(text: str | None) -> tuple[OperatorName, PortName] | None:
        if text is None:
            return None
        operator, out = text.split(".")
        return OperatorName(operator), PortName(out)

    return Scope(port(start), port(target), timedelta(days=7))


def figure2(*scopes: Scope) -> Graph:
    nodes = [
        source("R1"),
        source("R2"),
        middle("OP1", "in", "out1 out2"),
        middle("OP2", "in1 in2", "out"),
        middle("OP3", "in1 in2", "out"),
        sink("W"),
    ]
    connections = "R1>OP2.in1 R2>OP1.in OP1.out1>OP2.in2 OP1.out2>OP3.in2 OP2.out>OP3.in1 OP3.out>W"
    return graph(nodes, connections, scopes)


def ports(inputs: str, outputs: str) -> Enabled:
    return Enabled(frozenset(map(PortName, inputs.split())), frozenset(map(PortName, outputs.split())))


def test_example_5() -> None:
    """With port `errors`, which the paper does not have: rows that were rejected there may be retried."""
    assert enabled_ports(figure2(scope("R2.out", "OP3.out"))) == {
        "OP1": ports("in", "out1 out2 errors"),
        "OP2": ports("in2", "out errors"),
        "OP3": ports("in1 in2", "out errors"),
    }


def test_no_scope_captures_nothing() -> None:
    assert enabled_ports(figure2()) == {}


def test_a_scope_without_ports_captures_everything_also_reads_and_writes() -> None:
    assert enabled_ports(figure2(scope(None, None))) == {
        "R1": ports("", "out"),
        "R2": ports("", "out"),
        "OP1": ports("in", "out1 out2 errors"),
        "OP2": ports("in1 in2", "out errors"),
        "OP3": ports("in1 in2", "out errors"),
        "W": ports("in", "errors"),
    }


def test_a_scope_with_one_end() -> None:
    found = enabled_ports(figure2(scope("OP1.out2", None)))
    assert found == {"OP3": ports("in2", "out errors"), "W": ports("in", "errors")}
    found = enabled_ports(figure2(scope(None, "OP2.out")))
    assert found == {
        "R1": ports("", "out"),
        "R2": ports("", "out"),
        "OP1": ports("in", "out1 errors"),
        "OP2": ports("in1 in2", "out errors"),
    }


def test_scopes_add_up() -> None:
    found = enabled_ports(figure2(scope("R1.out", "OP2.out"), scope("OP1.out1", "OP2.out")))
    assert found == {"OP2": ports("in1 in2", "out errors")}


def test_many_paths_are_not_listed_one_by_one() -> None:
    """40 diamonds in a row have 2**40 paths."""
    nodes, connections = [source("n0")], []
    for i in range(40):
        nodes += [middle(f"l{i}"), middle(f"r{i}"), middle(f"n{i + 1}", "left right")]
        connections += [f"n{i}>l{i}", f"n{i}>r{i}", f"l{i}>n{i + 1}.left", f"r{i}>n{i + 1}.right"]
    found = enabled_ports(graph(nodes, " ".join(connections), (scope("n0.out", "n40.out"),)))
    assert len(found) == 120


@pytest.mark.parametrize(
    ("start", "target", "kind", "says"),
    [
        ("X.out", "OP3.out", BadName, "there is no operator 'X'; there are OP1, OP2"),
        ("R2.late", "OP3.out", BadName, "operator 'R2' has no output port 'late'; it has out"),
        ("R2.out", "OP3.late", BadName, "operator 'OP3' has no output port 'late'; it has errors, out"),
        ("OP3.out", "R2.out", GraphError, "no path leads from OP3.out to R2.out: exchange them"),
        ("OP1.errors", "OP3.out", GraphError, "the start OP1.errors is connected to nothing"),
    ],
)
def test_ports_that_do_not_exist_or_are_not_connected(start: str, target: str, kind: type, says: str) -> None:
    with pytest.raises(kind) as info:
        enabled_ports(figure2(scope(start, target)))
    assert says in str(info.value)
