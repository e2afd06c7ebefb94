"""Retries or drops an event on port `errors`: claims its operator's journal and commits the step that
`engine/error_resolution.py` makes.

The claim fences off the operator's life, if it has one (R10); whoever runs the pipeline begins a new one. On a log
that does not run, the next run finds the retried set due.
"""

from __future__ import annotations

import uuid
from typing import Literal, NamedTuple

import pyarrow as pa

from logline.engine.error_resolution import drop_step, retry_step
from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.step import Step
from logline.errors import BadName, Collected, Fenced, LogError
from logline.graph.instances import Expansion, expand
from logline.graph.record import GraphRecord, graph_of
from logline.names import ERRORS, Called, InstanceName, Ssn, event_name, parse_events
from logline.runtime.control.reopening import reopen_after, spec_of, specs_of
from logline.store.seam import Store

What = Literal["retry", "drop"]


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


def is_open(store: Store, event: str, what: What) -> bool:
    """Whether there is something to be done. Raises LogError if it can't be; changes nothing."""
    wanted = parse_error(store, event)
    error = _find(store, wanted)
    return error is not None and not _step(store, wanted, error, what, store.read(wanted.instance).image()).empty


def resolve(store: Store, event: str, what: What) -> list[InstanceName]:
    """The instances whose lives, if they had one, are fenced off now: the operator's, and if its end was taken back
    for it, those of all that is downstream (R11'). Empty if nothing was to be done. For the holder of the lease:
    nobody else may decide what lives."""
    if not is_open(store, event, what):  # a look that fences nobody; mistakes are found by it too
        return []
    wanted = parse_error(store, event)
    while True:
        error = _find(store, wanted)
        if error is None:
            return []
        journal = store.claim(wanted.instance)
        try:
            step = _step(store, wanted, error, what, journal.image)
            step.number = journal.image.commits + 1
            journal.commit(step)
            break
        except Fenced:
            continue  # a life of the operator began in between: it is fenced off by the next claim
        finally:
            journal.close()
    return [wanted.instance, *(_reopen_after(store, wanted.instance) if step.reopened else ())]


def _reopen_after(store: Store, instance: InstanceName) -> list[InstanceName]:
    meta = store.meta()
    assert meta is not None
    return reopen_after(store, specs_of(meta.graph), [instance])


def resolve_at_rest(store: Store, event: str, what: What) -> bool:
    """The same on a log that nobody runs; raises LogInUse if somebody does."""
    lease = store.lease(f"{what}-{uuid.uuid4().hex[:8]}")
    try:
        return bool(resolve(store, event, what))
    finally:
        lease.release()


def _find(store: Store, wanted: Wanted) -> Output | None:
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


def _step(store: Store, wanted: Wanted, error: Output, what: What, image: Image) -> Step:
    if what == "drop":
        return drop_step(image, wanted.instance, error)
    meta = store.meta()
    assert meta is not None
    expansion = expand(graph_of(meta.graph))
    spec = spec_of(meta.graph, expansion, wanted.instance)
    step = retry_step(image, spec, error, wanted.name)
    if spec.stateless and error.serial not in image.sets and not step.empty:
        _check_rows(meta.graph, expansion, wanted, error.payload)
    return step


def _check_rows(record: GraphRecord, expansion: Expansion, wanted: Wanted, error: pa.RecordBatch) -> None:
    """Rejected rows go in again: they must look like what the operator takes."""
    data = error.column("data")[0].as_py()
    columns = None
    if data is not None:
        columns = [(field.name, str(field.type)) for field in pa.ipc.open_stream(data).schema]
    for channel in expansion.into(wanted.instance):
        sender = record.operators[expansion.operator_of(channel.sender)]
        if columns != [(column.name, column.type) for column in sender.outputs[channel.out]]:
            raise LogError(
                f"{wanted.name} can't be retried: the rejected rows don't have the columns that "
                f"{expansion.called(wanted.instance)!r} takes; "
                "read them with `logline show`, or drop it"
            )
