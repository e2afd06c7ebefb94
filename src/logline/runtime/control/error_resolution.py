"""Retries or drops events on ports `errors`: claims their operator's journal and commits the steps that
`engine/error_resolution.py` makes.

The claim fences off the operator's life, if it has one (R10). Whoever runs the pipeline ends that life in order
before (`runtime/control/live_resolution.py`), and begins a new one. On a log that does not run, the next run finds
the retried sets due.

    resolve(store, [Request("retry", "enrich.errors:3"), Request("drop", "enrich.errors:4")])
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple

from logline.engine.error_resolution import check_takes_rows, drop_step, retry_step
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.step import Step
from logline.errors import BadName, Collected, Fenced, LogError
from logline.graph.instances import expand
from logline.graph.record import GraphRecord, graph_of
from logline.names import ERRORS, Called, InstanceName, Ssn, event_name, parse_events
from logline.runtime.control.fixed_rows import Fixed, check_rows, fixed_event
from logline.runtime.control.reopening import receivers_after, reopen_after, spec_of, specs_of
from logline.runtime.lives.dead_letters import answers_of
from logline.runtime.log.error_states import error_states
from logline.store.seam import Store

What = Literal["retry", "drop"]


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants to become of one error."""

    what: What
    event: str
    """The name of the error: `enrich.errors:3`."""
    ask: bool = False
    """A retry: ask again what was answered before, too."""
    fixed: Fixed | None = None
    """A retry: the rows to take instead."""


class Resolved(NamedTuple):
    """What came of requests."""

    events: list[str]
    """The errors that are retried or dropped now; the others were before."""
    fenced: list[InstanceName]
    """Instances whose lives, if they had one, are fenced off now: the operators', and if an end was taken back, all
    that is downstream (R11')."""


def waiting(store: Store, operator: str | None = None) -> list[str]:
    """The names of the errors that wait to be retried or dropped."""
    return [one.event for one in error_states(store, operator) if one.state == "waiting"]


def chosen(store: Store, events: str | Iterable[str] | None) -> list[str]:
    """The errors that somebody means: one, several, or None for all that wait."""
    if events is None:
        return waiting(store)
    return list(dict.fromkeys([events] if isinstance(events, str) else events))


class Wanted(NamedTuple):
    """One event on a port `errors`."""

    instance: InstanceName
    ssn: Ssn
    name: str
    """As users call it."""


def parse_error(store: Store, event: str) -> Wanted:
    """The name of one event on a port `errors`, as `enrich.errors:3`."""
    wanted = parse_events(event)
    meta = store.meta()
    known = {} if meta is None else _with_errors(meta.graph)
    if wanted.called not in known:
        there = ", ".join(known)
        raise BadName(f"there is no port {wanted.called}.{ERRORS}; operators that have one are {there}")
    if wanted.port != ERRORS or wanted.first != wanted.last:
        raise BadName(
            f"{event!r} is not one event on a port 'errors': they are named as {wanted.called}.{ERRORS}:1, "
            "and log.errors() or `logline errors LOG` lists them"
        )
    return Wanted(known[wanted.called], wanted.first, event_name(wanted.called, ERRORS, wanted.first))


def _with_errors(record: GraphRecord) -> dict[Called, InstanceName]:
    instances = expand(graph_of(record)).instances.values()
    return {one.called: one.name for one in instances if ERRORS in record.operators[one.operator].outputs}


def is_open(store: Store, request: Request) -> bool:
    """Whether there is something to be done. Raises LogError if it can't be; changes nothing."""
    wanted = parse_error(store, request.event)
    error = find_error(store, wanted)
    return error is not None and not _step(store, wanted, error, request, store.read(wanted.instance).image()).empty


def lives_in_the_way(store: Store, requests: Sequence[Request]) -> list[InstanceName]:
    """The instances that `resolve` would claim now: none if there is nothing to be done. Raises LogError if something
    can't be done; changes nothing."""
    todo = [request for request in requests if is_open(store, request)]
    found = {parse_error(store, request.event).instance: request.what for request in todo}
    ended = [name for name, what in found.items() if what == "retry" and store.read(name).outline().ended]
    meta = store.meta()
    down = receivers_after(specs_of(meta.graph), ended) if ended and meta is not None else []
    return list(dict.fromkeys((*found, *(spec.name for spec in down))))


def resolve(store: Store, requests: Sequence[Request]) -> Resolved:
    """Does what is asked, all of one operator under one claim. For the holder of the lease: nobody else may decide
    what lives."""
    found = Resolved([], [])
    todo = [request for request in requests if is_open(store, request)]  # fences nobody; mistakes are found by it too
    instances = {request.event: parse_error(store, request.event).instance for request in todo}
    for instance, group in groupby(sorted(todo, key=lambda one: instances[one.event]), lambda r: instances[r.event]):
        done, reopened = _resolve_of(store, instance, list(group))
        found.events.extend(done)
        if done:
            found.fenced.append(instance)
        if reopened:
            found.fenced.extend(_reopen_after(store, instance))
    return found


def _resolve_of(store: Store, instance: InstanceName, requests: list[Request]) -> tuple[list[str], bool]:
    """What was done, and whether the instance's end was taken back for it."""
    done: list[str] = []
    reopened = False
    while requests:
        journal = store.claim(instance)
        image = journal.image
        try:
            while requests:
                request = requests[0]
                wanted = parse_error(store, request.event)
                error = find_error(store, wanted)
                step = Step() if error is None else _step(store, wanted, error, request, image)
                if not step.empty:
                    step.number = image.commits + 1
                    journal.commit(step)
                    image.apply(step)
                    image.commits += 1
                    reopened |= step.reopened
                    done.append(request.event)
                requests.pop(0)
        except Fenced:
            continue  # a life of the operator began in between: it is fenced off by the next claim
        finally:
            journal.close()
    return done, reopened


def _reopen_after(store: Store, instance: InstanceName) -> list[InstanceName]:
    meta = store.meta()
    assert meta is not None
    return reopen_after(store, specs_of(meta.graph), [instance])


def resolve_at_rest(store: Store, requests: Sequence[Request]) -> list[str]:
    """The same on a log that nobody runs; raises LogInUse if somebody does. Returns what is resolved now."""
    lease = store.lease(f"errors-{uuid.uuid4().hex[:8]}")
    try:
        return resolve(store, requests).events
    finally:
        lease.release()


def find_error(store: Store, wanted: Wanted) -> Output | None:
    """The event; None if it is collected, since it was resolved long ago."""
    reader = store.read(wanted.instance)
    last = reader.head(ERRORS).last
    if wanted.ssn > last:
        there = f"has put out 1..{last}" if last else "has put out nothing yet"
        raise LogError(f"{wanted.name} is not in the log: {wanted.name.partition(':')[0]} {there}")
    try:
        (error,) = reader.pick(ERRORS, [wanted.ssn])
    except Collected:
        return None
    if error.mark:
        raise LogError(f"{wanted.name} is the end of the stream, not an error")
    return error


def _step(store: Store, wanted: Wanted, error: Output, request: Request, image: Image) -> Step:
    instance = wanted.instance
    if request.what == "drop":
        return drop_step(image, instance, error)
    meta = store.meta()
    assert meta is not None
    expansion = expand(graph_of(meta.graph))
    spec = spec_of(meta.graph, expansion, instance)
    answers = answers_of(error.payload) if spec.stateless else ()
    if request.fixed is None:
        step = retry_step(image, spec, error, wanted.name, answers=answers, ask=request.ask)
        if spec.stateless and error.serial not in image.sets and not step.empty:
            check_rows(meta.graph, instance, wanted.name, error.payload)
        return step
    check_takes_rows(spec, wanted.name)
    fixed = fixed_event(meta.graph, instance, wanted.name, request.fixed)
    return retry_step(image, spec, error, wanted.name, answers=answers, ask=request.ask, fixed=fixed)
