"""The run events of one run: of the pipeline, and of each operator below it.

A run of the log is a run here; its id follows from the log's id and the run's name, so that a later run can say of
one that was killed that it is over. Job names follow from the pipeline alone: they stay, whatever log it runs on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from logline.graph.instances import expand
from logline.graph.model import Graph
from logline.lineage.openlineage import facets
from logline.lineage.openlineage.facets import PRODUCER, SPEC, Json
from logline.lineage.openlineage.jobs import Dataset, Job, Port, operator_jobs, pipeline_job
from logline.names import OUT, ChannelName, Ssn, port_name
from logline.store.address import reach_of

Kind = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]


class Moved(NamedTuple):
    """What went through a port or a channel in a window."""

    first: Ssn
    last: Ssn
    nbytes: int
    rows: int | None = None
    """None if it is not known."""


Counts = Mapping[Port | ChannelName, Moved]
"""Of those through which something went."""


class Failure(NamedTuple):
    """Why a run failed."""

    operator: str
    message: str
    traceback: str


@dataclass(frozen=True)
class RunOf:
    """Which run of which log."""

    log: str
    """Its address, without secrets."""
    log_id: str
    run: str

    def run_id(self, operator: str | None = None) -> str:
        """The id of the pipeline's run, or of an operator's in it."""
        run = f"urn:logline:{self.log_id}/{self.run}"
        return str(uuid5(NAMESPACE_URL, run if operator is None else f"{run}/{operator}"))


class Events:
    """Makes the events of a run."""

    def __init__(self, graph: Graph, of: RunOf, namespace: str, seconds: int) -> None:
        self._of = of
        self._namespace = namespace
        self._seconds = seconds
        self._traced = bool(graph.scopes)
        self._expansion = expand(graph)
        self._operators = operator_jobs(graph, namespace)
        self._pipeline = pipeline_job(graph, self._operators)

    def window(
        self, kind: Kind, start: datetime, end: datetime, counts: Counts, failure: Failure | None = None
    ) -> Iterable[Json]:
        """The events at the end of a window: the pipeline's, then those of the operators.

        While it runs, an operator that has put out nothing has nothing to tell; the pipeline shows that it lives.
        """
        yield self._event(kind, self._pipeline, None, (start, end), counts, failure)
        for operator, job in self._operators.items():
            mine = kind
            if failure is not None and failure.operator != operator:
                mine = "ABORT"
            if kind != "RUNNING" or any(port in counts for port in job.ports):
                yield self._event(mine, job, operator, (start, end), counts, failure if mine == "FAIL" else None)

    def lost(self, run: str, operators: Iterable[str], now: datetime) -> Iterable[Json]:
        """The end of an earlier run that could not tell it: its process died."""
        dead = RunOf(self._of.log, self._of.log_id, run)
        for operator in (None, *operators):
            job = self._pipeline.name if operator is None else f"{self._pipeline.name}.{operator}"
            yield {
                **self._head("ABORT", now),
                "run": {"runId": dead.run_id(operator), "facets": self._parent(dead, operator)},
                "job": {"namespace": self._namespace, "name": job, "facets": self._job_facets(operator)},
                "inputs": [],
                "outputs": [],
            }

    def _event(
        self,
        kind: Kind,
        job: Job,
        operator: str | None,
        window: tuple[datetime, datetime],
        counts: Counts,
        failure: Failure | None,
    ) -> Json:
        of = self._of
        moved = [(port, counts[port]) for port in job.ports if port in counts]
        called = self._expansion.called
        ports = [
            {"port": port_name(called(port[0]), port[1]), "firstSsn": m.first, "lastSsn": m.last} for port, m in moved
        ]
        run_facets = {
            **self._parent(of, operator),
            "processing_engine": facets.processing_engine(),
            "logline_log": facets.log_facet(of.log, of.log_id, of.run, window, ports, self._query(moved)),
        }
        if failure is not None:
            run_facets["errorMessage"] = facets.error_message(failure.message, failure.traceback)
        return {
            **self._head(kind, window[1]),
            "run": {"runId": of.run_id(operator), "facets": run_facets},
            "job": {"namespace": self._namespace, "name": job.name, "facets": self._job_facets(operator)},
            "inputs": [{**_dataset(d), "inputFacets": _statistics(d, counts, "inputStatistics")} for d in job.inputs],
            "outputs": [
                {**_dataset(d), "outputFacets": _statistics(d, counts, "outputStatistics")} for d in job.outputs
            ],
        }

    def _head(self, kind: Kind, now: datetime) -> Json:
        return {
            "eventType": kind,
            "eventTime": now.isoformat(),
            "producer": PRODUCER,
            "schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        }

    def _job_facets(self, operator: str | None) -> Json:
        return {"jobType": facets.job_type("PIPELINE" if operator is None else "OPERATOR", self._seconds)}

    def _parent(self, of: RunOf, operator: str | None) -> Json:
        if operator is None:
            return {}
        return {"parent": facets.parent(of.run_id(), self._namespace, self._pipeline.name)}

    def _query(self, moved: list[tuple[Port, Moved]]) -> str | None:
        """How to ask for the last events of the stream; a log in memory can't be asked from a command line."""
        address = self._of.log
        ports = [(port, m) for port, m in moved if not port[1].startswith("@")]
        if not ports or reach_of(address) == "process":
            return None
        (instance, port), m = ports[-1]
        if not self._traced:
            return f"logline show {address} {self._expansion.event_name(instance, port, m.last)}"
        sender = self._expansion.called(instance)
        name = sender if port == OUT else port_name(sender, port)
        return f"logline lineage {address} {name}:{m.first}..{m.last}"


def _dataset(dataset: Dataset) -> Json:
    found: Json = {}
    if dataset.schema is not None:
        found["schema"] = facets.schema(dataset.schema)
    if dataset.columns:
        found["columnLineage"] = facets.column_lineage(dataset.columns)
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": found}


def _statistics(dataset: Dataset, counts: Counts, name: Literal["inputStatistics", "outputStatistics"]) -> Json:
    moved = [counts[at] for at in dataset.counted if at in counts]
    if not moved:
        return {}
    make = facets.input_statistics if name == "inputStatistics" else facets.output_statistics
    known = [one.rows for one in moved if one.rows is not None]
    rows = sum(known) if len(known) == len(moved) else None
    return {name: make(rows, sum(one.nbytes for one in moved))}
