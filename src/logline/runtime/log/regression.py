"""A regression test from production: changed code on all that a log still has, compared with what came out then.

`rerun_since` goes through the input sets that operators have generated since a version of their code was first
started, and runs each again with the code at hand (`runtime/log/rerun.py`). Nothing is logged, sent or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from logline.errors import BadName, LogError
from logline.graph.model import Graph
from logline.graph.record import VersionRecord, ids_in
from logline.lineage.view import Event, LogView, name_of
from logline.names import ERRORS, Called, PortName, Serial, Ssn, parse_called
from logline.runtime.log.rerun import Rerun, rerun
from logline.store.seam import Store

SHOWN = 3
"""Differences of an operator that are kept."""


@dataclass
class Compared:
    """One operator: how many of its sets came out the same."""

    operator: Called
    total: int
    """Sets that it has generated since then and the log still knows."""
    same: int = 0
    different: int = 0
    skipped: int = 0
    """Sets that could not be run: something that they were made of is collected, or only the outside knows."""
    why: str = ""
    """Of the first that was skipped."""
    shown: list[tuple[str, list[str]]] = field(default_factory=list)
    """The first events that are different, with how."""

    @property
    def done(self) -> int:
        """How many were looked at."""
        return self.same + self.different + self.skipped


def rerun_since(
    store: Store, graph: Graph, version: str, *, operator: str | None = None, limit: int | None = None
) -> Iterator[Compared]:
    """Yields an operator's tally after each of its sets, so that a caller can show progress; the last of each counts.
    BadName if no operator has had that version."""
    view = LogView(store)
    wanted = None if operator is None else parse_called(operator)
    known = [
        called for called in view.instances if wanted in (None, called) and view.operator(called).kind != "source"
    ]
    since = {called: after for called in known if (after := _after(view, called, version)) is not None}
    if not since:
        versions = sorted({one.version for called in known for one in _versions(view, called)})
        raise BadName(f"no operator has had the version {version!r}; there are {', '.join(versions) or 'none'}")
    for called, after in since.items():
        events = _events(view, called, after)
        chosen = events if limit is None else events[-limit:]
        found = Compared(called, len(chosen))
        for event in chosen:
            _compare(store, graph, name_of(event), found)
            yield found


def _versions(view: LogView, called: Called) -> Sequence[VersionRecord]:
    return view.record.versions.get(ids_in(view.record)[view.expansion.operator_of(view.expansion.find(called))], ())


def _after(view: LogView, called: Called, version: str) -> Mapping[PortName, Ssn] | None:
    """The last event of each port before the version was first started; None if it never was."""
    return next((one.after for one in _versions(view, called) if one.version == version), None)


def _events(view: LogView, called: Called, after: Mapping[PortName, Ssn]) -> list[Event]:
    """One event of each set that the operator has put something out for, in the order of the sets."""
    reader, found = view.reader(called), dict[Serial, Event]()
    for port in (port for port in view.operator(called).outputs if port != ERRORS):
        ssns = [ssn for ssn in reader.stored(port) if ssn > after.get(port, 0)]
        for header in reader.headers(port, ssns):
            if header is not None and not header.mark and header.serial:
                found.setdefault(header.serial, (called, port, header.ssn))
    return [found[serial] for serial in sorted(found)]


def _compare(store: Store, graph: Graph, event: str, found: Compared) -> None:
    try:
        made: Rerun = rerun(store, graph, event)
    except (LogError, BadName) as error:  # something is collected, say
        found.skipped += 1
        found.why = found.why or str(error).splitlines()[0]
        return
    except Exception as error:  # of the operator at hand
        found.different += 1
        if len(found.shown) < SHOWN:
            found.shown.append((event, [f"{type(error).__name__}: {error}"]))
        return
    if made.rows_kept and not made.rows_run:
        found.skipped += 1
        found.why = found.why or f"{event}: the function asks the outside itself, without ctx.call"
    elif made.same:
        found.same += 1
    else:
        found.different += 1
        if len(found.shown) < SHOWN:
            found.shown.append((event, made.differences()))
