"""A pipeline as OpenLineage sees it: the pipeline and each operator are jobs, what they read and write are datasets.

An output port is a dataset, `sales.hourly.out`, since the log holds its events. What a source reads and a sink writes
has the name that the connector gives it (`Source.dataset`, `Sink.dataset`), or one of ours, `sales.orders.source`.
The columns of a dataset are made of those that `depends` says, as for lineage of records; where nothing is known,
nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from logline.engine.spec import write_port
from logline.graph.dependencies import dependencies
from logline.graph.instances import Expansion, expand
from logline.graph.model import Graph, Node
from logline.lineage.openlineage.facets import Field, How
from logline.names import ERRORS, OUT, ChannelName, InstanceName, OperatorName, PortName, TargetName

Port = tuple[InstanceName, PortName]

_HOW = {
    "same": How.IDENTITY,
    "from": How.TRANSFORMATION,
    "until": How.TRANSFORMATION,
    "of": How.AGGREGATION,
}


@dataclass(frozen=True)
class Dataset:
    """One dataset, and where the log counts what goes through it."""

    namespace: str
    name: str
    schema: pa.Schema | None
    counted: tuple[Port | ChannelName, ...]
    """The ports that put it out or, for what an operator takes, the channels by which it comes; one per instance."""
    columns: Mapping[str, list[Field]] = field(default_factory=dict)
    """Of which columns of inputs its columns are made, as far as known."""


@dataclass(frozen=True)
class Job:
    """An operator, or the pipeline."""

    name: str
    inputs: tuple[Dataset, ...]
    outputs: tuple[Dataset, ...]
    ports: tuple[Port, ...]
    """Where it puts out or writes."""


def operator_jobs(graph: Graph, namespace: str) -> dict[str, Job]:
    """A job per operator, by the operator's name."""
    expansion = expand(graph)
    return {str(node.name): _job(graph, expansion, node, namespace) for node in graph.nodes.values()}


def pipeline_job(graph: Graph, jobs: Mapping[str, Job]) -> Job:
    """The pipeline as one job, from what its sources read to what its sinks write."""
    inside = {_key(d) for name, node in graph.nodes.items() if node.source is None for d in jobs[name].inputs}
    made = {_key(d): d.columns for job in jobs.values() for d in job.outputs}
    inputs = [d for name, node in graph.nodes.items() if node.source is not None for d in jobs[name].inputs]
    outputs = [d for name, node in graph.nodes.items() for d in jobs[name].outputs if _is_target(d)]

    def origins(one: Field) -> Iterator[Field]:
        key = (one.namespace, one.dataset)
        if key not in inside:
            yield one
            return
        for before in made.get(key, {}).get(one.column, ()):
            yield from origins(before._replace(how=max(before.how, one.how)))

    return Job(
        graph.name,
        tuple(inputs),
        tuple(
            Dataset(
                d.namespace,
                d.name,
                d.schema,
                d.counted,
                {
                    column: found
                    for column, made_of in d.columns.items()
                    if (found := list(dict.fromkeys(o for one in made_of for o in origins(one))))
                },
            )
            for d in outputs
        ),
        tuple(port for job in jobs.values() for port in job.ports),
    )


def _key(dataset: Dataset) -> tuple[str, str]:
    return dataset.namespace, dataset.name


def _is_target(dataset: Dataset) -> bool:
    return any(isinstance(counted, tuple) and counted[1].startswith("@") for counted in dataset.counted)


def _ports(expansion: Expansion, node: Node, port: PortName) -> tuple[Port, ...]:
    """This port of each instance of an operator."""
    return tuple((instance.name, port) for instance in expansion.instances_of(node.name))


def _dataset(graph: Graph, operator: OperatorName, port: PortName) -> str:
    """The name of the dataset that an operator's output port is."""
    return f"{graph.name}.{operator}.{port}"


def _job(graph: Graph, expansion: Expansion, node: Node, namespace: str) -> Job:
    name = f"{graph.name}.{node.name}"
    if node.source is not None:
        columns = node.outputs[OUT]
        outside = node.source.dataset() or (namespace, f"{name}.source")
        counted = _ports(expansion, node, OUT)
        read = Dataset(*outside, columns, counted)
        same = {column: [Field(*outside, column, How.IDENTITY)] for column in columns.names}
        put = Dataset(namespace, _dataset(graph, node.name, OUT), columns, counted, same)
        return Job(name, (read,), (put,), counted)
    ports = [port for port in node.outputs if port != ERRORS]
    outputs = [
        Dataset(
            namespace,
            _dataset(graph, node.name, port),
            node.outputs[port],
            _ports(expansion, node, port),
            _columns(graph, node, namespace, set(node.outputs[port].names), first=port == ports[0]),
        )
        for port in ports
    ]
    targets = [_target(graph, expansion, node, target, namespace) for target in node.targets]
    inputs = {
        (c.sender, c.out): Dataset(
            namespace,
            _dataset(graph, c.sender, c.out),
            graph.nodes[c.sender].outputs[c.out],
            tuple(channel.name for channel in expansion.channels_of(c)),
        )
        for c in graph.into(node.name)
    }
    made = (*ports, *map(write_port, node.targets))
    put_out = [one for port in made for one in _ports(expansion, node, port)]
    return Job(name, tuple(inputs.values()), (*outputs, *targets), tuple(put_out))


def _target(graph: Graph, expansion: Expansion, node: Node, target: TargetName, namespace: str) -> Dataset:
    """What a sink knows of its columns is of those that it writes; it has no others."""
    outside = node.targets[target].dataset() or (namespace, f"{graph.name}.{node.name}.target.{target}")
    counted = _ports(expansion, node, write_port(target))
    if node.kind != "sink":
        return Dataset(*outside, None, counted)
    columns = _columns(graph, node, namespace, None)
    known = {f.name: f for c in graph.into(node.name) for f in graph.nodes[c.sender].outputs[c.out]}
    fields = [known[f.column].with_name(column) for column, made_of in columns.items() for f in made_of[:1]]
    return Dataset(*outside, pa.schema(fields) if fields else None, counted, columns)


def _columns(
    graph: Graph, node: Node, namespace: str, there: set[str] | None, *, first: bool = True
) -> dict[str, list[Field]]:
    found: dict[str, list[Field]] = {}
    for known in dependencies(graph, node):
        if (there is not None and known.out not in there) or (known.how == "of" and not first):
            continue
        for c in graph.into(node.name):
            if known.port in (None, c.port) and known.into in graph.nodes[c.sender].outputs[c.out].names:
                one = Field(namespace, _dataset(graph, c.sender, c.out), known.into, _HOW[known.how])
                if one not in found.setdefault(known.out, []):
                    found[known.out].append(one)
    return found
