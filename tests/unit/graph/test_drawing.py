from xml.etree import ElementTree

import pyarrow as pa
from tests.unit.graph.graphs import graph, middle, sink, source

from logline.graph.drawing import draw_svg, draw_text, layers

SVG = "{http://www.w3.org/2000/svg}"
ODD = pa.schema([('<script>"&', pa.int64())])
GRAPH = graph(
    [
        source("a"),
        source("b"),
        middle("join", "left right", "out late", schema=ODD),
        sink("store"),
        sink("late"),
    ],
    "a>join.left b>join.right join>store join.late>late",
)


def test_an_operator_stands_after_its_last_sender() -> None:
    assert layers(GRAPH) == {"a": 0, "b": 0, "join": 1, "store": 2, "late": 2}
    skip = graph([source("a"), middle("b"), middle("c", "x y")], "a>b a>c.x b>c.y")
    assert layers(skip) == {"a": 0, "b": 1, "c": 2}


def test_the_drawing_is_well_formed_and_escaped() -> None:
    drawing = draw_svg(GRAPH)
    assert "<script>" not in drawing
    root = ElementTree.fromstring(drawing)
    assert len(root.findall(f".//{SVG}rect")) == 5
    assert len(root.findall(f".//{SVG}path")) == 4
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a", "b", "join", "store"} <= set(texts)
    assert "late → in" in texts
    assert any("<script>" in (title.text or "") for title in root.iter(f"{SVG}title"))


def test_boxes_do_not_overlap_and_lie_inside() -> None:
    root = ElementTree.fromstring(draw_svg(GRAPH))
    boxes = [tuple(int(r.attrib[k]) for k in ("x", "y", "width", "height")) for r in root.iter(f"{SVG}rect")]
    assert len({(x, y) for x, y, _, _ in boxes}) == len(boxes)
    assert max(x + w for x, _, w, _ in boxes) <= int(root.attrib["width"])
    assert max(y + h for _, y, _, h in boxes) <= int(root.attrib["height"])


def test_an_empty_graph_can_be_drawn() -> None:
    ElementTree.fromstring(draw_svg(graph([])))


def test_text() -> None:
    assert draw_text(GRAPH) == (
        "pipeline 'sales'\n"
        "  a      source Numbers -> join.left\n"
        "  b      source Numbers -> join.right\n"
        "  join   middle Pass -> store, (late) late\n"
        "  store  sink Keep\n"
        "  late   sink Keep"
    )
