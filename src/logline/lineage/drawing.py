"""A trace as a drawing: a tree for terminals, Graphviz text, and SVG.

In the SVG operators are columns in the order of the stream, so that time goes from left to right whichever way the
question went; events are boxes, and what was asked for is framed. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape

from logline.lineage.trace import Link, Trace
from logline.lineage.view import Event, LogView, name_of
from logline.names import Called

MOST = 12
"""Events under one, or in one column, that are drawn; of the others there is a count."""
_WHY = {
    "source": "read from outside",
    "scope": "nothing is captured beyond",
    "by hand": "rows given by hand",
    "expired": "beyond the retention",
    "sink": "written out",
    "open": "not taken yet, or in a set that is not done",
    "nothing": "nothing came of it",
}
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _TOP = 150, 40, 90, 14, 16, 44
_FILL = {"source": "#dcefe0", "middle": "#e6ecf5", "sink": "#f6e6d8"}


def _by_parent(found: Trace) -> Mapping[Event, list[Link]]:
    nexts: dict[Event, list[Link]] = {}
    for link in found.links:
        nexts.setdefault(link.of, []).append(link)
    return nexts


def _rows(found: Trace, event: Event) -> str:
    header = found.headers[event]
    if header is None:
        return "collected"
    return f"{header.rows:,} record{'' if header.rows == 1 else 's'}"


# ---- a tree ---------------------------------------------------------------------------------------------------


def draw_tree(found: Trace, samples: Callable[[Event], Sequence[str]], most: int = MOST) -> str:
    """Lines of text; `samples` gives a few records of an event. An event is drawn out where it comes first."""
    nexts, drawn = _by_parent(found), set[Event]()
    lines: list[str] = []
    # A stack of what is still to be drawn: (line, how its children are indented, the event or None for a note).
    todo: list[tuple[str, str, Event | None]] = [
        (_tree_line(found, event, None), "", event) for event in reversed(found.asked)
    ]
    while todo:
        line, indent, event = todo.pop()
        if event is not None and event in drawn and nexts.get(event):
            lines.append(f"{line}  (see above)")
            continue
        lines.append(line)
        if event is None:
            continue
        drawn.add(event)
        children = nexts.get(event, [])
        bar = "│  " if children else "   "
        lines += [f"{indent}{bar}  {record}" for record in samples(event)]
        lines += [f"{indent}{bar}  {call}" for call in _calls(found, event, children)]
        more = [f"... and {len(children) - most:,} more"] if len(children) > most else []
        entries: list[tuple[str, Event | None]] = [
            (_tree_line(found, link.event, link), link.event) for link in children[:most]
        ] + [(text, None) for text in more]
        for at in range(len(entries) - 1, -1, -1):
            text, child = entries[at]
            last = at == len(entries) - 1
            todo.append((f"{indent}{'└─ ' if last else '├─ '}{text}", indent + ("   " if last else "│  "), child))
    return "\n".join(lines)


def _tree_line(found: Trace, event: Event, link: Link | None) -> str:
    why = found.ends.get(event)
    text = f"{name_of(event)}  {_rows(found, event)}"
    if link is not None and link.inset not in ("", name_of(link.event), name_of(link.of)):
        text += f", {'in' if found.direction == 'backward' else 'by'} {link.operator}'s set {link.inset}"
    return text + (f"  [{_WHY[why]}]" if why in _WHY else "")


def _calls(found: Trace, event: Event, children: Sequence[Link]) -> Iterator[str]:
    if found.direction == "backward" and children:
        answers = found.calls.get((children[0].operator, children[0].serial), ())
        if answers:
            functions = ", ".join(dict.fromkeys(answer.fn for answer in answers))
            yield f"asked the outside {len(answers):,} times: {functions}"


# ---- Graphviz -------------------------------------------------------------------------------------------------


def draw_dot(found: Trace) -> str:
    """Text for `dot`: events as nodes, from what was used to what was made."""
    lines = ["digraph lineage {", "  rankdir=LR;", '  node [shape=box, style=rounded, fontname="sans-serif"];']
    for event in found.depths:
        label = _dot(f"{name_of(event)}\\n{_rows(found, event)}")
        frame = ", penwidth=2" if event in found.asked else ""
        lines.append(f'  "{_dot(name_of(event))}" [label="{label}"{frame}];')
    for link in found.links:
        made, used = (link.of, link.event) if found.direction == "backward" else (link.event, link.of)
        lines.append(f'  "{_dot(name_of(used))}" -> "{_dot(name_of(made))}" [tooltip="{_dot(link.inset)}"];')
    return "\n".join([*lines, "}"])


def _dot(text: str) -> str:
    return text.replace('"', '\\"')


# ---- SVG ------------------------------------------------------------------------------------------------------


def draw_svg(view: LogView, found: Trace) -> str:
    """Draws what a query found as one `<svg>` element: a column per operator, a box per event."""
    columns: dict[Called, list[Event]] = {}
    for event in sorted(found.depths, key=lambda e: (view.rank[e[0]], e[1], e[2])):
        columns.setdefault(event[0], []).append(event)
    places: dict[Event, tuple[int, int]] = {}
    parts: list[str] = []
    for at, (operator, events) in enumerate(columns.items()):
        x = _MARGIN + at * (_WIDTH + _GAP_X)
        parts.append(_text(x + _WIDTH // 2, _MARGIN + 12, str(operator), size=13, bold=True))
        for row, event in enumerate(events[:MOST]):
            places[event] = (x, _TOP + row * (_HEIGHT + _GAP_Y))
        hidden = len(events) - MOST
        if hidden > 0:
            y = _TOP + MOST * (_HEIGHT + _GAP_Y) + 14
            parts.append(_text(x + _WIDTH // 2, y, f"and {hidden:,} more", fill="#667"))
    links = "".join(_curve(found, link, places) for link in found.links)
    boxes = "".join(_box(view, found, event, place) for event, place in places.items())
    tallest = max((min(len(events), MOST) + (len(events) > MOST) for events in columns.values()), default=0)
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _GAP_X) - _GAP_X
    height = _TOP + tallest * (_HEIGHT + _GAP_Y) + _MARGIN - _GAP_Y
    title = f"{found.direction} lineage of {', '.join(map(name_of, found.asked[:3]))}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12" text-anchor="middle"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{links}{boxes}{"".join(parts)}</svg>'
    )


def _text(x: int, y: int, text: str, *, size: int = 11, bold: bool = False, fill: str = "#223") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"{weight}>{escape(text)}</text>'


def _box(view: LogView, found: Trace, event: Event, place: tuple[int, int]) -> str:
    x, y = place
    kept, asked = found.headers[event] is not None, event in found.asked
    fill = _FILL[view.operator(event[0]).kind] if kept else "#f2f2f2"
    dashes = "" if kept else ' stroke-dasharray="4 3"'
    why = _WHY.get(found.ends.get(event, ""), "")
    tip = f"{name_of(event)}: {_rows(found, event)}{f'; {why}' if why else ''}"
    return (
        f"<g><title>{escape(tip)}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" fill="{fill}" '
        f'stroke="{"#c60" if asked else "#667"}" stroke-width="{2.5 if asked else 1}"{dashes}/>'
        f"{_text(x + _WIDTH // 2, y + 17, name_of(event), size=12)}"
        f"{_text(x + _WIDTH // 2, y + 31, _rows(found, event), size=10, fill='#667')}</g>"
    )


def _curve(found: Trace, link: Link, places: Mapping[Event, tuple[int, int]]) -> str:
    made, used = (link.of, link.event) if found.direction == "backward" else (link.event, link.of)
    if made not in places or used not in places:
        return ""
    x1, y1 = places[used][0] + _WIDTH, places[used][1] + _HEIGHT // 2
    x2, y2 = places[made][0], places[made][1] + _HEIGHT // 2
    bend = max(_GAP_X // 2, (x2 - x1) // 3)
    return (
        f"<g><title>{escape(f'{link.operator}: {link.inset}')}</title>"
        f'<path d="M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}" fill="none" stroke="#9ab" '
        f'stroke-width="1.3"/><circle cx="{x2}" cy="{y2}" r="3" fill="#789"/></g>'
    )
