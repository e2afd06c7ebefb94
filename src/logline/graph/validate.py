"""Checks whether a graph can run, before any data moves.

Each check yields errors that name the operator and port and say what to do. One error is raised as it is;
several are raised together, so that an author does not have to find them one run at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, get_args

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from logline.errors import (
    BadName,
    DefinitionError,
    GraphError,
    GuaranteeError,
    LoglineError,
    OptionError,
    SchemaError,
)
from logline.graph.connector import Guarantee, Sink
from logline.graph.dependencies import check_depends
from logline.graph.durations import duration
from logline.graph.ephemeral import check_ephemeral, check_riding
from logline.graph.event_states import check_event_state
from logline.graph.lineage_paths import enabled_ports
from logline.graph.model import ERRORS_SCHEMA, Connection, Graph, Node
from logline.graph.operator import Operator, is_stateless
from logline.graph.options import KEPT_BY_KEY
from logline.graph.shipping import check_shippable
from logline.graph.states import check_state
from logline.names import ERRORS, NAME_RULE, may_name


def validate(graph: Graph) -> None:
    """Raises what is wrong with `graph`: the error itself, or a DefinitionError that lists several."""
    errors = list(_structure(graph))
    if not errors:  # the rest relies on names and ports that exist
        errors = list(_meaning(graph))
    _raise(f"pipeline {graph.name!r}", errors)


def check_node(graph: Graph, node: Node) -> None:
    """Raises what is wrong with one operator of `graph`, as soon as it is defined."""
    errors = [*_names(node), *_doubles(graph), *_shared(graph)]
    if not errors:
        errors = list(_node(graph, node))
    _raise(f"operator {node.name!r}", errors)
    check_depends(graph, node)


_FORMS = {"outputs": '{"out": "id long"}', "time": '{"in": "at"}', "depends": '{"item": "item"}'}


def check_declared(name: str, op: Operator[Any, Any]) -> None:
    """Raises if a class variable of an operator is not what it should be, before anybody looks into it."""
    inputs: object = op.inputs
    if not isinstance(inputs, Sequence) or isinstance(inputs, str) or not all(isinstance(p, str) for p in inputs):
        raise DefinitionError(
            f"operator {name!r}: inputs of {type(op).__name__} is {inputs!r}: "
            'write the names of its input ports as a tuple, as in inputs = ("in",)'
        )
    for word, form in _FORMS.items():
        value: object = getattr(op, word)
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise DefinitionError(
                f"operator {name!r}: {word} of {type(op).__name__} is {value!r}: "
                f"write a mapping, as in {word} = {form}"
            )


def _raise(what: str, errors: list[LoglineError]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        listed = "\n".join(f"  - {error}" for error in errors)
        raise DefinitionError(f"{what} has {len(errors)} errors:\n{listed}") from errors[0]


def _structure(graph: Graph) -> Iterator[LoglineError]:
    if not may_name(graph.name):
        yield BadName(f"{graph.name!r} can't name a pipeline: {NAME_RULE}")
    for name, node in graph.nodes.items():
        if name != node.name:
            yield BadName(f"operator {node.name!r} is listed as {name!r}: use one name")
        yield from _names(node)
    if not any(node.source is not None for node in graph.nodes.values()):
        yield GraphError(f"pipeline {graph.name!r} has no source: begin with source(name, ...)")
    for c in graph.connections:
        yield from _connection(graph, c)
    yield from _doubles(graph)


def _doubles(graph: Graph) -> Iterator[LoglineError]:
    seen: set[Connection] = set()
    for c in graph.connections:
        if c in seen:
            yield GraphError(
                f"the port {c.sender}.{c.out} is connected twice to {c.receiver}.{c.port}: "
                "every event would count twice; remove one"
            )
        seen.add(c)


def _names(node: Node) -> Iterator[LoglineError]:
    if not may_name(node.name):
        yield BadName(f"{node.name!r} can't name an operator: {NAME_RULE}")
    for word, names in (
        ("an input port", node.inputs),
        ("an output port", node.outputs),
        ("a target", node.targets),
    ):
        for name in names:
            if not may_name(name):
                yield BadName(f"operator {node.name!r}: {name!r} can't name {word}: {NAME_RULE}")
    for port in node.inputs:
        if node.inputs.count(port) > 1:
            yield BadName(f"operator {node.name!r} has the input port {port!r} twice: rename one")
            return


def _connection(graph: Graph, c: Connection) -> Iterator[LoglineError]:
    for end in (c.sender, c.receiver):
        if end not in graph.nodes:
            yield BadName(f"the connection {c} names an operator {end!r} that is not there")
            return
    if c.out not in graph.nodes[c.sender].outputs:
        yield BadName(
            f"operator {c.sender!r} has no output port {c.out!r}; it has {_list(graph.nodes[c.sender].outputs)}"
        )
    if c.port not in graph.nodes[c.receiver].inputs:
        yield BadName(
            f"operator {c.receiver!r} has no input port {c.port!r}; it has {_list(graph.nodes[c.receiver].inputs)}"
        )


def _meaning(graph: Graph) -> Iterator[LoglineError]:
    yield from _cycles(graph)
    yield from _shared(graph)
    for node in graph.nodes.values():
        yield from _node(graph, node)
    yield from check_riding(graph)
    yield from _caught(enabled_ports, graph)


def _node(graph: Graph, node: Node) -> Iterator[LoglineError]:
    if (node.source is None) == (node.op is None):
        yield GraphError(f"operator {node.name!r} must be either a source or an operator")
    elif node.source is not None:
        yield from _source(node)
    else:
        yield from _operator(graph, node)
    for target, sink in node.targets.items():
        yield from _target(node, target, sink)


def _cycles(graph: Graph) -> Iterator[LoglineError]:
    senders = {name: {c.sender for c in graph.into(name)} for name in graph.nodes}
    try:
        TopologicalSorter(senders).prepare()
    except CycleError as error:
        path = " -> ".join(error.args[1])
        yield GraphError(f"the connections form a cycle: {path}; a pipeline flows one way, remove one of them")


def _shared(graph: Graph) -> Iterator[LoglineError]:
    """One object, one place: `open`, its attributes and a target's position belong to one operator."""
    users: dict[int, str] = {}
    for node in graph.nodes.values():
        for what, held in (("Operator", node.op), *(("Sink", sink) for sink in node.targets.values())):
            if held is None:
                continue
            if (other := users.setdefault(id(held), node.name)) != node.name:
                yield GraphError(f"operators {other!r} and {node.name!r} share one {what} object: make one for each")


def _source(node: Node) -> Iterator[LoglineError]:
    if node.inputs:
        yield GraphError(f"source {node.name!r} has input ports: a source only reads from outside")
    if not isinstance(getattr(node.source, "schema", None), pa.Schema | str):
        yield SchemaError(
            f"source {node.name!r}: {type(node.source).__name__} has no schema: set self.schema to a pyarrow.Schema, "
            "or to a text such as 'id long, name string'"
        )
    yield from _caught(check_shippable, node.name, node.source)


def _operator(graph: Graph, node: Node) -> Iterator[LoglineError]:
    op = node.op
    assert op is not None
    connected = {c.port for c in graph.into(node.name)}
    if not node.inputs:
        yield GraphError(f"operator {node.name!r} has no input port: what only reads from outside is a source")
    for port in node.inputs:
        if port not in connected:
            yield GraphError(
                f"operator {node.name!r}: the input port {port!r} is not connected: "
                f"connect a stream to it, as in inputs={{{str(port)!r}: stream}}"
            )
        else:
            yield from _caught(port_schema, node.name, port, _streams(graph, node.name, port))
    if ERRORS in node.outputs and not node.outputs[ERRORS].equals(ERRORS_SCHEMA):
        yield GraphError(
            f"operator {node.name!r}: the port 'errors' is Logline's own: give your output port another name"
        )
    yield from _phases(node.name, op)
    yield from _time(graph, node, op)
    if op.State is not None:
        yield from _caught(check_state, node.name, op.State)
    yield from _keyed(node, op)
    if node.options.policy == "eventual":
        yield from _eventual(node.name, op)
    if node.options.policy == "ephemeral":
        yield from check_ephemeral(graph, node)
    yield from _caught(check_shippable, node.name, op)


def port_schema(name: str, port: str, streams: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """The one schema of an input port, given the name and schema of each stream into it."""
    (first, schema), *others = streams
    for other, theirs in others:
        if not theirs.equals(schema):
            raise SchemaError(
                f"operator {name!r}: the input port {port!r} gets different schemas: "
                f"{first} has ({_columns(schema)}), {other} has ({_columns(theirs)}); "
                "map one to the other first"
            )
    return schema


def _phases(name: str, op: Operator[Any, Any]) -> Iterator[LoglineError]:
    kind = type(op)
    if kind.generate is Operator.generate:
        yield DefinitionError(f"operator {name!r}: {kind.__name__} needs a generate() method")
    if is_stateless(op):
        for phase in ("update", "ready"):
            if getattr(kind, phase) is not getattr(Operator, phase):
                yield DefinitionError(
                    f"operator {name!r}: {kind.__name__} defines {phase}() but not assign(), "
                    "so it would never be called: define assign() too"
                )
    elif kind.update is Operator.update:
        yield DefinitionError(f"operator {name!r}: {kind.__name__} defines assign() and needs update() too")


def _keyed(node: Node, op: Operator[Any, Any]) -> Iterator[LoglineError]:
    """An operator with a state per key is generated in order, one event at a time (R31)."""
    what = f"operator {node.name!r} ({type(op).__name__})"
    if op.Keyed is None:
        if op.ttl is not None:
            yield DefinitionError(f"{what} has a ttl and no state per key: declare Keyed, the type of a state")
        return
    if node.options.concurrency > 1:
        yield OptionError(
            f"{what} has a state per key, so that each event waits for the one before it: leave concurrency out"
        )
    if not node.options.ordered:
        yield OptionError(f"{what} has a state per key, so that its events are generated in order: leave ordered out")
    if is_dataclass(op.Keyed) or issubclass(op.Keyed, msgspec.Struct):
        yield from _caught(check_state, node.name, op.Keyed)
    if op.ttl is not None:
        try:
            duration(op.ttl)
        except OptionError as error:
            yield OptionError(f"{what}: ttl: {error}")


def _eventual(name: str, op: Operator[Any, Any]) -> Iterator[LoglineError]:
    if op.Keyed is not None:
        yield OptionError(f"operator {name!r}: the policy 'eventual' is refused: {KEPT_BY_KEY}; leave it out")
    elif is_stateless(op):
        yield OptionError(
            f"operator {name!r}: the policy 'eventual' is refused: {type(op).__name__} defines no assign(), so it "
            "takes each event by itself and has no input sets that stay open; leave it out"
        )
    elif op.moves_members:
        yield OptionError(
            f"operator {name!r}: the policy 'eventual' is refused: {type(op).__name__} merges input sets or puts "
            "them out several times, and a set with a checkpoint can't give its members to another one; leave it out"
        )
    else:
        yield from _caught(check_event_state, name, op)


def _time(graph: Graph, node: Node, op: Operator[Any, Any]) -> Iterator[LoglineError]:
    for port, column in op.time.items():
        if port not in node.inputs:
            yield BadName(f"operator {node.name!r}: time names the input port {port!r}; it has {_list(node.inputs)}")
            continue
        for _, schema in _streams(graph, node.name, port):
            yield from _time_column(node.name, port, column, schema)
            break  # that the others have the same schema is checked anyway
    for word, value in (("lateness", op.lateness), ("idle", op.idle)):
        if value is None and word == "idle":
            continue
        try:
            duration(value)  # type: ignore[arg-type]  # lateness = None is an author's mistake
        except OptionError as error:
            yield OptionError(f"operator {node.name!r}: {word}: {error}")


def _time_column(name: str, port: str, column: str, schema: pa.Schema) -> Iterator[LoglineError]:
    if column not in schema.names:
        yield SchemaError(
            f"operator {name!r}: the event-time column {column!r} of port {port!r} does not exist; "
            f"the port has {_list(schema.names)}"
        )
    elif not (pt.is_timestamp(kind := schema.field(column).type) or pt.is_date(kind)):
        yield SchemaError(
            f"operator {name!r}: the event-time column {column!r} of port {port!r} has type {kind}, "
            "expected a timestamp or a date: cast it before"
        )


def _target(node: Node, target: str, sink: Sink) -> Iterator[LoglineError]:
    what = f"operator {node.name!r}, target {target!r} ({type(sink).__name__})"
    guarantee = getattr(sink, "guarantee", None)
    if guarantee not in get_args(Guarantee):
        yield GuaranteeError(f"{what}: guarantee is {guarantee!r}: declare one of {', '.join(get_args(Guarantee))}")
    elif guarantee == "positioned" and type(sink).position is Sink.position:
        yield GuaranteeError(
            f"{what}: a positioned target needs position(), which tells the last number applied; "
            "define it, or declare another guarantee"
        )
    elif guarantee == "at_least_once" and node.options.accept != "at_least_once":
        yield GuaranteeError(
            f"{what} only guarantees at_least_once: after a crash it may write twice; use a target that is "
            "positioned, guarded or named, or accept it with accept='at_least_once'"
        )
    yield from _caught(check_shippable, node.name, sink)


def _streams(graph: Graph, name: str, port: str) -> list[tuple[str, pa.Schema]]:
    return [
        (f"{c.sender}.{c.out}", graph.nodes[c.sender].outputs[c.out])
        for c in graph.connections
        if c.receiver == name and c.port == port
    ]


def _caught(check: Callable[..., object], *args: object) -> Iterator[LoglineError]:
    try:
        check(*args)
    except LoglineError as error:
        yield error


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(str(name)) for name in names) or "none"


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)
