from tests.unit.graph.graphs import Keep, graph, middle, sink, source

from logline.graph.evolve import Changes
from logline.graph.model import NodeOptions
from logline.graph.report import report


def test_guarantees_groups_and_warnings() -> None:
    nodes = [
        source("a"),
        middle("b", outputs="out late", targets={"audit": Keep("guarded")}, options=NodeOptions(group="g")),
        sink("s", "at_least_once", NodeOptions(group="g", accept="at_least_once")),
        source("alone"),
    ]
    found = report(graph(nodes, "a>b b>s"))
    assert found.guarantees == {"b.audit": "guarded", "s": "at_least_once"}
    assert found.groups == {"a": ("a",), "g": ("b", "s"), "alone": ("alone",)}
    assert found.warnings == (
        "b.late is connected to nothing: its events are counted, nobody gets them",
        "s: target 'out' may be written twice after a crash, as accepted",
        "alone.out is connected to nothing: its events are counted, nobody gets them",
        "source 'alone' reaches no target",
    )
    assert found.can_resume


def test_it_reads_as_text() -> None:
    changes = Changes(["operator 'x' was added"], ["source 'y' was removed"])
    found = report(graph([source("a"), sink("s")], "a>s"), changes)
    assert not found.can_resume
    assert str(found) == (
        "pipeline 'sales'\n"
        "  guarantees:\n"
        "    s: exactly once (named)\n"
        "  groups:\n"
        "    a: a\n"
        "    s: s\n"
        "  slots:\n"
        "    2 for a process per group, at least 1\n"
        "  policies:\n"
        "    a: pessimistic: goes on where its log ends\n"
        "    s: pessimistic: comes back to its last commit\n"
        "  warnings: none\n"
        "  changed, accepted:\n"
        "    operator 'x' was added\n"
        "  changed, refused:\n"
        "    source 'y' was removed"
    )


def test_it_is_shown_as_html_with_its_texts_escaped() -> None:
    found = report(graph([source("a"), sink("s")], "a>s"), Changes(["<b> & co"], []))
    html = found._repr_html_()
    assert html.startswith("<table>")
    assert "&lt;b&gt; &amp; co" in html
    assert "<b>" not in html


def test_a_pipeline_that_writes_nowhere() -> None:
    assert "the pipeline writes nowhere: no operator has a target" in report(graph([source("a")])).warnings
