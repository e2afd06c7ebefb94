"""What a lineage query found, as Arrow: one row per way by which an event was found.

| column | |
|---|---|
| event | `orders:17`; of a call `score:3!rate` (the function `rate`, called to make `score:3`) |
| kind | `event`, or `call`: an answer that the outside gave to `ctx.call` |
| operator, port, ssn | its parts; a call has no port and no SSN |
| depth | how many operators away; 0 for what was asked for |
| of | the event it was found from: backward what was made of it, forward what it was made of |
| by | the operator that made the one of the other |
| inset | that operator's input set, as in EVENT_LOG |
| rows, nbytes | how much it holds |
| kept | whether its records are still in the log |
| ends | why the lineage does not go on here, see `trace.End`; null where it does |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from logline.engine import codec
from logline.engine.history import Finished
from logline.engine.sets import CARRIED, Answer
from logline.lineage.levels import Levels
from logline.lineage.trace import Link, Trace
from logline.lineage.view import Event, LogView, Port, name_of
from logline.names import Called

FOUND = pa.schema(
    [
        ("event", pa.string()),
        ("kind", pa.string()),
        ("operator", pa.string()),
        ("port", pa.string()),
        ("ssn", pa.int64()),
        ("depth", pa.int32()),
        ("of", pa.string()),
        ("by", pa.string()),
        ("inset", pa.string()),
        ("rows", pa.int64()),
        ("nbytes", pa.int64()),
        ("kept", pa.bool_()),
        ("ends", pa.string()),
    ]
)
EDGES = pa.schema([(c, pa.string()) for c in ("event", "input", "operator", "inset")])
CALLS = pa.schema(
    [
        ("event", pa.string()),
        ("operator", pa.string()),
        ("inset", pa.string()),
        ("row", pa.int64()),
        ("call", pa.int64()),
        ("function", pa.string()),
        ("answer", pa.string()),
    ]
)


def found_table(found: Trace, to: Port | None = None) -> pa.Table:
    """A trace; with `to` only the events of that port."""
    rows = []
    if to is None:
        rows += [_row(found, event, None) for event in found.asked]
    links = [link for link in found.links if to is None or link.event[:2] == to]
    rows += [_row(found, link.event, link) for link in sorted(links, key=lambda link: found.depths[link.event])]
    if to is None and found.direction == "backward":
        rows += _call_rows(found)
    return pa.Table.from_pylist(rows, schema=FOUND)


def _row(found: Trace, event: Event, link: Link | None) -> dict[str, Any]:
    header = found.headers[event]
    return {
        "event": name_of(event),
        "kind": "event",
        "operator": event[0],
        "port": event[1],
        "ssn": event[2],
        "depth": found.depths[event],
        "of": None if link is None else name_of(link.of),
        "by": None if link is None else link.operator,
        "inset": None if link is None else link.inset,
        "rows": None if header is None else header.rows,
        "nbytes": None if header is None else header.nbytes,
        "kept": header is not None,
        "ends": found.ends.get(event),
    }


def _call_rows(found: Trace) -> Iterable[dict[str, Any]]:
    for (operator, serial), answers in found.calls.items():
        made = dict.fromkeys(link.of for link in found.links if link[2:4] == (operator, serial))
        inset = next(link.inset for link in found.links if link[2:4] == (operator, serial))
        for event in made:
            for answer in answers:
                yield {
                    "event": f"{name_of(event)}!{answer.fn}",
                    "kind": "call",
                    "operator": operator,
                    "depth": found.depths[event] + 1,
                    "of": name_of(event),
                    "by": operator,
                    "inset": inset,
                    "rows": 1,
                    "nbytes": len(answer.value),
                    "kept": True,
                    "ends": "source",
                }


def edges(view: LogView) -> pa.Table:
    """Every pair of an output event and an event it was made of, as far as lineage is captured and kept."""
    rows: list[tuple[str, str, str, str]] = []
    for node in view.expansion.instances.values():
        instance = node.called
        enabled = view.ports_enabled(instance)
        reader = view.reader(instance)
        for port in sorted(enabled.outputs):
            headers = [h for h in reader.headers(port, reader.stored(port)) if h is not None and h.serial]
            insets = reader.insets(list({header.serial: None for header in headers}))
            known = {serial: _members(view, instance, inset) for serial, inset in insets.items()}
            for header in headers:
                inset, members = known.get(header.serial, ("", []))
                event = name_of((instance, port, header.ssn))
                rows += [(event, member, node.operator, inset) for member in members]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table([pa.array(c, pa.string()) for c in columns], schema=EDGES)


def _members(view: LogView, instance: Called, inset: Finished) -> tuple[str, list[str]]:
    members = dict.fromkeys((m.channel, m.ssn) for m in inset.members if view.traced_in(m.channel))
    names = [name_of((*view.sender(channel), ssn)) for channel, ssn in members]
    return view.inset(instance, inset), names


def calls(view: LogView, events: Iterable[Event]) -> pa.Table:
    """The answers that `ctx.call` got while these events were made (R9), as text."""
    rows: list[dict[str, Any]] = []
    events, known = list(events), Levels(view)
    known.ask_headers(events)
    known.ask_backward(events)
    for event in events:
        instance, header = event[0], known.headers[event]
        inset = None if header is None else known.insets.get((instance, header.serial))
        if inset is None:
            continue
        rows += [
            {
                "event": name_of(event),
                "operator": instance,
                "inset": view.inset(instance, inset),
                "row": None if answer.row < 0 else answer.row,
                "call": answer.n % CARRIED,
                "function": answer.fn,
                "answer": answer_text(answer),
            }
            for answer in known.answers[instance, inset.serial]
        ]
    return pa.Table.from_pylist(rows, schema=CALLS)


def answer_text(answer: Answer) -> str:
    """The value as Python shows it."""
    return repr(codec.decode(answer.value))
