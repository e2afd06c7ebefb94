"""A drawing of a graph: inline SVG for notebooks, lines of text for terminals.

Layered from left to right: an operator stands one column after the last of its senders, in the order of
definition within its column. Good enough for graphs that a person wrote; a lineage export draws larger ones.
"""

from __future__ import annotations

from html import escape

from logline.graph.model import Connection, Graph, Node
from logline.names import IN, OUT, OperatorName

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 130, 40, 70, 24, 12
_FILL = {"source": "#dcefe0", "middle": "#e6ecf5", "sink": "#f6e6d8"}


def layers(graph: Graph) -> dict[OperatorName, int]:
    """The column of each operator. Nodes are in the order of definition, senders before receivers."""
    found: dict[OperatorName, int] = {}
    for name in graph.nodes:
        found[name] = max((found.get(c.sender, 0) + 1 for c in graph.into(name)), default=0)
    return found


def draw_svg(graph: Graph) -> str:
    """The graph as one `<svg>` element; every text is escaped."""
    columns = layers(graph)
    filled: dict[int, int] = {}
    places: dict[OperatorName, tuple[int, int]] = {}
    for name, column in columns.items():
        row = filled[column] = filled.get(column, -1) + 1
        places[name] = (_MARGIN + column * (_WIDTH + _GAP_X), _MARGIN + row * (_HEIGHT + _GAP_Y))
    width = 2 * _MARGIN + (max(columns.values(), default=0) + 1) * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + (max(filled.values(), default=0) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"',
        ' font-family="sans-serif" font-size="12" text-anchor="middle">',
        f"<title>{escape(graph.name)}</title>",
        *(_draw_connection(c, places) for c in graph.connections),
        *(_draw_node(node, places[name]) for name, node in graph.nodes.items()),
        "</svg>",
    ]
    return "".join(parts)


def _draw_node(node: Node, place: tuple[int, int]) -> str:
    x, y = place
    middle = x + _WIDTH // 2
    ports = ", ".join(f"{port}: {_columns(node, port)}" for port in node.outputs)
    return (
        f"<g><title>{escape(f'{node.name} ({node.kind}) {ports}')}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="{_FILL[node.kind]}" '
        'stroke="#667"/>'
        f'<text x="{middle}" y="{y + 18}">{escape(_short(node.name))}</text>'
        f'<text x="{middle}" y="{y + 32}" fill="#667" font-size="10">{escape(_what(node))}</text></g>'
    )


def _draw_connection(c: Connection, places: dict[OperatorName, tuple[int, int]]) -> str:
    x1, y1 = places[c.sender][0] + _WIDTH, places[c.sender][1] + _HEIGHT // 2
    x2, y2 = places[c.receiver][0], places[c.receiver][1] + _HEIGHT // 2
    bend = _GAP_X // 2
    label = _label(c)
    x, y = (x1 + x2) // 2, (y1 + y2) // 2 - 4
    text = f'<text x="{x}" y="{y}" fill="#667" font-size="10">{escape(label)}</text>'
    return (
        f'<path d="M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}" fill="none" stroke="#889"/>'
        f'<circle cx="{x2}" cy="{y2}" r="3" fill="#889"/>{text if label else ""}'
    )


def draw_text(graph: Graph) -> str:
    """One line per operator: what it is and where its output goes."""
    lines = [f"pipeline {graph.name!r}"]
    wide = max((len(name) for name in graph.nodes), default=0)
    for name, node in graph.nodes.items():
        to = ", ".join(f"{_from(c)}{c.receiver}{_into(c)}" for c in graph.out_of(name))
        lines.append(f"  {name:<{wide}}  {_what(node)}{f' -> {to}' if to else ''}")
    return "\n".join(lines)


def _what(node: Node) -> str:
    held = node.source if node.source is not None else node.op
    if node.kind == "sink" and node.targets:
        held = next(iter(node.targets.values()))  # type: ignore[assignment]
    return f"{node.kind} {type(held).__name__}"


def _from(c: Connection) -> str:
    return "" if c.out == OUT else f"({c.out}) "


def _into(c: Connection) -> str:
    return "" if c.port == IN else f".{c.port}"


def _label(c: Connection) -> str:
    return "" if (c.out, c.port) == (OUT, IN) else f"{c.out} → {c.port}"


def _short(name: str) -> str:
    return name if len(name) <= 18 else f"{name[:17]}…"


def _columns(node: Node, port: str) -> str:
    return "(" + ", ".join(f"{f.name} {f.type}" for f in node.outputs[port]) + ")"  # type: ignore[index]
