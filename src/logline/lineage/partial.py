"""Announces that the log does not hold all events of a port: those that nothing needs any more are collected (R12).

Whoever reads a whole port would take the rest for everything. So `Log.sql`, `Log.frame` and `Log.read` warn:

    PartialData: orders holds 10..12 of 1..12: the other events are collected, ...
"""

from __future__ import annotations

import sys
import warnings

from logline.errors import PACKAGE, PartialData
from logline.lineage.view import LogView, Port, port_text


def announce_partial(view: LogView, port: Port) -> None:
    """Warns, at the line of the user's that asks, if events of the port are collected."""
    text = partial_text(view, port)
    if text is not None:
        warnings.warn(text, PartialData, stacklevel=_outside())


def partial_text(view: LogView, port: Port) -> str | None:
    """What the log holds of the port; None if it holds all that was put out."""
    reader = view.reader(port[0])
    put_out = reader.put_out(port[1])  # first: a pipeline that runs puts more out meanwhile
    held = [ssn for _, _, ssn in view.events(port_text(port))]
    if len(held) >= put_out:
        return None
    last = max(reader.head(port[1]).last - reader.outline().ended, put_out)
    kept = "none"
    if held:
        whole = len(held) == held[-1] - held[0] + 1
        kept = f"{held[0]}..{held[-1]}" if whole else f"{len(held)} events among {held[0]}..{held[-1]}"
    return (
        f"{port_text(port)} holds {kept} of 1..{last}: the other events are collected, since no operator needs them "
        "any more. To keep events of a port for later queries, put it into a lineage scope: p.lineage(start, target, "
        'keep="7d")'
    )


def _outside() -> int:
    """How far up the caller is that is not part of Logline, as `warnings` counts from `announce_partial`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
