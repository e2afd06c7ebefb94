"""The facade: `Pipeline` and `Stream`, with which an author puts a graph together and starts it.

An *event* is a batch of records. Every call makes one operator, checks it as far as it can be checked by
itself, and adds it to the graph; a call that fails adds nothing. `check` and `start` check the whole graph.

>>> import pyarrow as pa
>>> import pyarrow.compute as pc
>>> from logline.connectors import sinks, sources
>>> p = Pipeline("sales")
>>> orders = p.source("orders", sources.batches([pa.table({"item": ["a", "b"], "amount": [3, 40]})]))
>>> large = orders.filter("large", pc.field("amount") > 10)
>>> large.sink("store", sinks.collect())
>>> print(p)
pipeline 'sales'
  orders  source Batches -> large
  large   middle Filter -> store
  store   sink Collect
>>> print(p.check())
pipeline 'sales'
  guarantees:
    store: exactly once (positioned)
  groups:
    orders: orders
    large: large
    store: store
  slots:
    3 for a process per group, at least 1
  policies:
    orders: pessimistic: goes on where its log ends
    large: pessimistic: comes back to its last commit
    store: pessimistic: comes back to its last commit
  warnings: none
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from logline.errors import BadName, DefinitionError, GraphError, OptionError, SchemaError, a_kind
from logline.everyday import EverydayOperators
from logline.everyday import made as _made
from logline.graph.authored import place_of
from logline.graph.connector import Sink, Source
from logline.graph.drawing import draw_svg, draw_text
from logline.graph.durations import keep as read_keep
from logline.graph.ephemeral import logged
from logline.graph.event_time import declared_time
from logline.graph.functions import check_takes
from logline.graph.model import ERRORS_SCHEMA, Connection, Graph, Node, NodeOptions, Scope
from logline.graph.operator import Duration, Operator, SchemaLike
from logline.graph.options import (
    OperatorOptions,
    RowOptions,
    SinkOptions,
    SourceOptions,
    WriterOptions,
    not_honoured,
    resolve,
)
from logline.graph.probe import probe
from logline.graph.report import Report, report
from logline.graph.sample import sample_of
from logline.graph.schemas import schema as read_schema
from logline.graph.secrets import Secret
from logline.graph.validate import check_declared, check_node, port_schema, validate
from logline.joining import JoinOperators
from logline.keyed import KeyedOperators
from logline.names import ERRORS, IN, NAME_RULE, OUT, OperatorName, PortName, TargetName, may_name
from logline.operators import (
    Agg,
    AsyncMapFn,
    Filter,
    MapFn,
    MapRows,
    Rebatch,
    RowFn,
    SinkOperator,
    Union,
    Where,
    Window,
    WindowAggregate,
    map_batches,
    waited_for,
)
from logline.planned import missing
from logline.runtime.control import launch, loading
from logline.runtime.control.evolution import changes
from logline.runtime.control.progress import follow
from logline.runtime.control.settings import Settings, check_settings
from logline.runtime.log.log import open_log

if TYPE_CHECKING:
    from logline.runtime.control.run import Run
    from logline.runtime.log.rerun import Rerun
    from logline.spark.sql import FrameFn

Keep = Duration | tuple[Duration, str]
"""How long lineage is kept: a time, a size, or one of each."""
logger = logging.getLogger("logline")


class Stream(EverydayOperators, KeyedOperators, JoinOperators):
    """One output port of an operator, as sources and operators return it. Its methods add operators that read it.

    `stream["late"]` and `stream["errors"]` are other output ports of the same operator.

    >>> from logline.connectors import sources
    >>> orders = Pipeline("sales").source("orders", sources.batches([pa.table({"item": ["a", "b"]})]))
    >>> items = orders.map_batches("items", lambda batch: batch.rename_columns(["name"]))
    >>> items
    Stream('items': name string)
    >>> items.preview().to_pylist()
    [{'name': 'a'}, {'name': 'b'}]
    """

    def __init__(self, pipeline: Pipeline, operator: OperatorName, port: PortName) -> None:
        self.pipeline = pipeline
        self.operator = operator
        self.port = port

    @property
    def name(self) -> str:
        """The port's name: `hourly`, or `hourly.late`."""
        return self.operator if self.port == OUT else f"{self.operator}.{self.port}"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the port's events."""
        return self._ports[self.port]

    @property
    def _ports(self) -> Mapping[PortName, pa.Schema]:
        return self.pipeline.graph().nodes[self.operator].outputs

    def __getitem__(self, port: str) -> Stream:
        """Another output port of the same operator."""
        if port not in self._ports:
            raise BadName(f"operator {self.operator!r} has no output port {port!r}; it has {', '.join(self._ports)}")
        return Stream(self.pipeline, self.operator, PortName(port))

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self.schema)
        return f"Stream({self.name!r}: {columns})"

    if not TYPE_CHECKING:  # a type checker and an editor see what there is

        def __getattr__(self, name):
            raise missing("Stream", name, f"'Stream' object has no attribute {name!r}")

    # ---- operators ------------------------------------------------------------------------------------

    def map_batches(
        self,
        name: str,
        fn: MapFn | AsyncMapFn,
        *,
        schema: SchemaLike | None = None,
        **options: Unpack[RowOptions],
    ) -> Stream:
        """Applies `fn`, a `def` or an `async def`, to each batch. It returns a table, several tables (each becomes an
        event), or None.

        Without `schema=` this calls `fn` once with an empty batch, to see what it makes.
        """
        resolved = resolve(name, "rows", options)
        _made(name, check_takes, fn, "map_batches", "batch")
        declared = probe(name, waited_for(fn), self.schema) if schema is None else _made(name, read_schema, schema)
        return self._then(name, map_batches(fn, declared, resolved), resolved)

    def map_rows(self, name: str, fn: RowFn, *, schema: SchemaLike, **options: Unpack[RowOptions]) -> Stream:
        """Applies `fn(row, ctx)`, a `def` or an `async def`, to each row. It returns a row or None.

        Use it for slow or paid calls to the outside. At most `concurrency` rows are in flight at once. Each answer
        is logged as it comes, so that a crash does not pay again for rows that were answered.
        """
        resolved = resolve(name, "rows", options)
        op = _made(
            name,
            MapRows,
            fn,
            _made(name, read_schema, schema),
            concurrency=resolved.concurrency,
            rate=resolved.rate,
            timeout=resolved.timeout,
            retry=resolved.retry,
            on_error=resolved.on_error,
        )
        # A row is tried again by itself; were its event tried again too, attempts would multiply.
        return self._then(name, op, replace(resolved, retry=None))

    def filter(self, name: str, where: Where, **options: Unpack[OperatorOptions]) -> Stream:
        """Keeps the rows for which an Arrow expression, or a function of the batch, is true."""
        return self._then(name, _made(name, Filter, where), resolve(name, "operator", options))

    def rebatch(self, name: str, *, rows: int, within: Duration, **options: Unpack[OperatorOptions]) -> Stream:
        """Makes events of exactly `rows` records. Records that have waited for `within` leave as a smaller event."""
        return self._then(name, _made(name, Rebatch, rows, within), resolve(name, "operator", options))

    def window(
        self,
        name: str,
        window: Window,
        *,
        by: Sequence[str] = (),
        agg: Mapping[str, Agg],
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Computes aggregates over windows, grouped by the columns `by`: `agg={"total": ("amount", "sum")}`.

        Windows of time add the columns window_start and window_end; late records leave on port `late`.
        """
        op = _made(name, WindowAggregate, window, by, agg)
        return self._then(name, op, resolve(name, "operator", options))

    def union(self, name: str, *others: Stream, **options: Unpack[OperatorOptions]) -> Stream:
        """Joins this stream and others with the same schema into one, event by event as they come."""
        if not others:
            raise GraphError(f"operator {name!r}: a union needs at least one other stream")
        return self.pipeline._add(name, Union(), {IN: (self, *others)}, resolve(name, "operator", options))

    def apply(
        self,
        name: str,
        op: Operator[Any, Any],
        *,
        by: Sequence[str] = (),
        targets: Mapping[str, Sink] | None = None,
        **options: Unpack[WriterOptions],
    ) -> Stream:
        """Adds a custom operator with one input port, and returns its first output port.

        `targets` are the sinks that it writes to, by name: `targets={"audit": ll.sinks.collect()}`.
        """
        if isinstance(op, Operator):
            check_declared(name, op)
        inputs = tuple(getattr(op, "inputs", (IN,)))
        if len(inputs) != 1:
            raise GraphError(
                f"operator {name!r} has the input ports {', '.join(inputs)}: "
                "apply() connects one; use Pipeline.operator(name, op, inputs={port: stream})"
            )
        keys = {inputs[0]: by} if by else {}
        return self.pipeline.operator(name, op, {inputs[0]: self}, by=keys, targets=targets, **options)

    def sql(
        self,
        name: str,
        fn: FrameFn,
        window: Window | None = None,
        *,
        schema: SchemaLike | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Applies `fn`, a function from DataFrame to DataFrame, to each event or to the events of each window, as a
        Spark job.

        Without `schema=` this asks Spark what `fn` makes of an empty DataFrame, so a session must be there already.
        The operator lives in the driver's process. With `concurrency` it runs several jobs at once.
        """
        from logline.spark.sql import sql_operator  # Spark is an extra

        declared = None if schema is None else _made(name, read_schema, schema)
        op = _made(name, sql_operator, name, fn, window, declared)
        return self._then(name, op, resolve(name, "operator", options))

    def sink(self, name: str, target: Sink, **options: Unpack[SinkOptions]) -> None:
        """Writes each event to `target`, in order, and exactly once if the target can tell a repeated write apart."""
        resolved = resolve(name, "sink", options)
        try:
            if isinstance(target, Sink):  # `_add` says what is wrong with another one
                target.check_schema(self.schema)
        except SchemaError as error:
            raise SchemaError(f"operator {name!r}: {error}") from error
        self.pipeline._add(name, SinkOperator(), {IN: (self,)}, resolved, {"out": target})

    def _then(self, name: str, op: Operator[Any, Any], options: NodeOptions) -> Stream:
        return self.pipeline._add(name, op, {IN: (self,)}, options)

    def _with(self, name: str, op: Operator[Any, Any], other: Stream, options: NodeOptions) -> Stream:
        return self.pipeline._add(name, op, dict(zip(op.inputs, ((self,), (other,)), strict=True)), options)

    def preview(self, rows: int = 20) -> pa.Table:
        """Computes the first rows of this stream in this process, on a sample of the sources. Writes nothing."""
        asked: object = rows
        if not isinstance(asked, int) or isinstance(asked, bool):
            raise OptionError(f"preview(rows={rows!r}): ask for a whole number of rows, for example 20")
        if rows < 1:
            raise OptionError(f"preview(rows={rows}): ask for at least one row")
        sample = sample_of(self.pipeline.graph(), self.operator)
        validate(sample)
        return launch.preview(sample, self.operator, self.port, rows)


class Pipeline:
    """A pipeline that an author puts together, and starts. Its name stands in its log: only a pipeline of the same
    name goes on with it.

    >>> from logline.connectors import sinks, sources
    >>> p = Pipeline("sales")
    >>> p.source("orders", sources.batches([pa.table({"n": [1, 2]})])).sink("store", sinks.collect())
    >>> p.run(engine="inline").result("store").to_pylist()
    [{'n': 1}, {'n': 2}]
    """

    def __init__(self, name: str) -> None:
        if not _is_name(name):
            raise BadName(f"{name!r} can't name a pipeline: {NAME_RULE}")
        self.name = name
        self._nodes: dict[OperatorName, Node] = {}
        self._connections: list[Connection] = []
        self._scopes: list[Scope] = []
        self._script = place_of(sys._getframe(1))

    def graph(self) -> Graph:
        """The graph as it is now; for tools and tests."""
        return Graph(self.name, dict(self._nodes), tuple(self._connections), tuple(self._scopes), script=self._script)

    def _runs(self) -> Graph:
        """The graph of what runs and is logged; raises what is wrong with it."""
        graph = self.graph()
        validate(graph)
        return logged(graph)

    # ---- building -------------------------------------------------------------------------------------

    def source(
        self,
        name: str,
        source: Source,
        *,
        rows: int = 10_000,
        within: Duration = "100ms",
        **options: Unpack[SourceOptions],
    ) -> Stream:
        """Adds a source, and returns its output. An event has up to `rows` records, gathered for up to `within`.

        With `time="date"` its events carry how far event time is: up to the greatest `date` seen, minus `lateness`.
        """
        self._check_free(name)
        if not isinstance(source, Source):
            raise DefinitionError(
                f"source {name!r}: {type(source).__name__} is not a Source: take one of logline.sources"
            )
        resolved = resolve(name, "source", {"rows": rows, "within": within, **options})
        declared = getattr(source, "schema", pa.schema([]))
        outputs = {OUT: _made(name, read_schema, declared, what="source") if isinstance(declared, str) else declared}
        resolved = declared_time(name, source, outputs[OUT], resolved, tuple(options))
        return self._commit(Node(OperatorName(name), source, None, (), outputs, {}, resolved), ())

    def operator(
        self,
        name: str,
        op: Operator[Any, Any],
        inputs: Mapping[str, Stream],
        *,
        by: Mapping[str, Sequence[str]] | None = None,
        targets: Mapping[str, Sink] | None = None,
        **options: Unpack[WriterOptions],
    ) -> Stream:
        """Adds a custom operator, and returns its first output port. `inputs` connects streams to its input ports."""
        if by:
            raise not_honoured(name, "writer" if targets else "operator", "by")
        _check_mapping(name, "inputs", inputs, '{"in": stream}')
        _check_mapping(name, "targets", targets or {}, '{"audit": sink}')
        resolved = resolve(name, "writer" if targets else "operator", options)
        return self._add(name, op, {port: (stream,) for port, stream in inputs.items()}, resolved, targets)

    def lineage(
        self, start: Stream | str | None = None, target: Stream | str | None = None, *, keep: Keep = "7d"
    ) -> None:
        """Captures lineage on all paths between two output ports, or everywhere.

        The log keeps an event of the target, with all that it was made of, for `keep`. That is a time ("7d"), a size
        for each port on the paths ("10GB"), or both, whichever is reached first: ("7d", "10GB").
        """
        try:
            span, size = read_keep(keep)
        except OptionError as error:
            raise OptionError(f"lineage: keep: {error}") from None
        self._scopes.append(Scope(self._port(start), self._port(target), span, size))

    def _port(self, port: Stream | str | None) -> tuple[OperatorName, PortName] | None:
        if port is None:
            return None
        if isinstance(port, str):
            operator, _, out = port.partition(".")
            if OperatorName(operator) not in self._nodes:
                known = ", ".join(self._nodes) or "none"
                raise BadName(f"lineage: there is no operator {operator!r}; there are {known}")
            port = Stream(self, OperatorName(operator), OUT)[out or OUT]
        self._check_ours("lineage", port)
        return port.operator, port.port

    def _add(
        self,
        name: str,
        op: Operator[Any, Any],
        inputs: Mapping[str, Sequence[Stream]],
        options: NodeOptions,
        targets: Mapping[str, Sink] | None = None,
    ) -> Stream:
        self._check_free(name)
        if not isinstance(op, Operator):
            raise DefinitionError(
                f"operator {name!r}: {op!r} is not an Operator: make an instance of a subclass of Operator"
            )
        check_declared(name, op)
        ports = tuple(PortName(port) for port in op.inputs)
        for port, streams in inputs.items():
            if port not in ports:
                raise BadName(f"operator {name!r} has no input port {port!r}; it has {', '.join(ports)}")
            for stream in streams:
                self._check_ours(f"operator {name!r}", stream)
        for port in ports:
            if port not in inputs:
                raise GraphError(
                    f"operator {name!r}: the input port {port!r} is not connected: "
                    f"connect a stream to it, as in inputs={{{str(port)!r}: stream}}"
                )
        for target, sink in (targets or {}).items():
            if not isinstance(sink, Sink):
                raise DefinitionError(
                    f"operator {name!r}: the target {target!r} is a {type(sink).__name__}, not a Sink: "
                    "take one of logline.sinks"
                )
        node = Node(
            OperatorName(name),
            None,
            op,
            ports,
            _outputs(name, op, inputs),
            {TargetName(target): sink for target, sink in (targets or {}).items()},
            options,
        )
        return self._commit(
            node,
            tuple(
                Connection(stream.operator, stream.port, node.name, PortName(port))
                for port, streams in inputs.items()
                for stream in streams
            ),
        )

    def _commit(self, node: Node, connections: tuple[Connection, ...]) -> Stream:
        """Checks an operator and adds it. One that is wrong leaves no trace, so that a notebook can try again."""
        graph = Graph(self.name, {**self._nodes, node.name: node}, (*self._connections, *connections))
        check_node(graph, node)
        self._nodes[node.name] = node
        self._connections.extend(connections)
        return Stream(self, node.name, next(iter(node.outputs)))

    def _check_free(self, name: str) -> None:
        if not _is_name(name):
            raise BadName(f"{name!r} can't name an operator: {NAME_RULE}")
        if name in self._nodes:
            raise BadName(
                f"there is already an operator {name!r} in pipeline {self.name!r}: recovery goes by names, "
                "choose another one"
            )

    def _check_ours(self, what: str, stream: Stream) -> None:
        if not isinstance(stream, Stream):
            raise GraphError(f"{what}: {stream!r} is not a stream: pass what source() or an operator returned")
        if stream.pipeline is not self:
            raise GraphError(
                f"{what}: the stream {stream.name!r} belongs to pipeline {stream.pipeline.name!r}, "
                f"this is {self.name!r}: a stream can't cross pipelines"
            )

    # ---- looking --------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return draw_text(self.graph())

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {len(self._nodes)} operators)"

    def _repr_html_(self) -> str:
        return draw_svg(self.graph())

    def check(self, log: str | Secret | None = None, *, fresh: Sequence[str] = ()) -> Report:
        """Says whether the pipeline can run, with which guarantees, which operators share a process (in the slots of
        the active Spark session, if there is one), and what changed against `log`: what a run would accept or
        refuse, if it made the operators `fresh` anew. Moves no data."""
        graph = self._runs()
        slots, spare = _room(graph)
        found = None if log is None else changes(graph, log, [OperatorName(name) for name in fresh])
        return report(graph, found, slots, spare)

    def rerun(self, log: str | Secret, event: str, *, ask: bool = False) -> Rerun:
        """Runs the operator that made a logged event again, with this pipeline's code, on exactly the same input set.

        It runs in the foreground, so that a debugger works, and logs, sends and writes nothing. `ctx.call` gets its
        answers from the log; with `ask` it calls again. A lineage scope must keep the event and its inputs.
        """
        from logline.runtime.log.rerun import rerun

        return rerun(open_log(log).store, logged(self.graph()), event, ask=ask)

    # ---- running --------------------------------------------------------------------------------------

    def start(self, log: str | Secret | None = None, **settings: Unpack[Settings]) -> Run:
        """Starts the pipeline on `log`, or goes on with what the log holds. Without `log` it uses a temporary one.

        - `engine="spark"` (default) runs on Spark: in the session `spark`, the active one, or one that it makes for
          the run. "processes" runs in processes on this machine, "inline" all in this process.
        - `durability="disk"` (default): a commit survives a power cut; "process": it survives kill -9.
        - `resume="auto"` (default) goes on with a used log; "never" wants a fresh log, "must" a used one.
        - `until="end"` (default) reads the sources to their end; "now" reads what is there at the start, then ends.
        - `takeover=True` fences off another run that holds the log.
        - `fresh=["hourly"]` makes operators anew, with all that is downstream of them, from what the log still has.
        - `openlineage` exports the run as OpenLineage events to "file:PATH" or "http://HOST:PORT" (`ll.OpenLineage`).
          Without it, the environment variable OPENLINEAGE_URL counts, if it is set.
        """
        checked = check_settings(log, settings)
        graph = self._runs()
        loading.refuse_start(self)
        if checked.engine == "spark":
            from logline.spark.session import check_pyspark

            check_pyspark()
            from logline.spark import launch as on_spark

            return on_spark.start(graph, checked)
        return launch.start(graph, checked, launch.inline if checked.engine == "inline" else launch.processes)

    def run(self, log: str | Secret | None = None, **settings: Unpack[Settings]) -> Run:
        """Starts the pipeline and waits until it has finished. The settings are those of `start`.

        It shows how the run goes: a table in a terminal, lines through logging elsewhere. Ctrl-C stops the run as
        `Run.stop` does and raises KeyboardInterrupt then; a second Ctrl-C does not wait for calls under way.
        """
        run = self.start(log, **settings)
        follow(run, self.name)
        return run


def _room(graph: Graph) -> tuple[int | None, int]:
    """How many tasks the Spark session of this process can run at once, None without a session; and how many slots
    the pipeline leaves free."""
    if "pyspark" not in sys.modules:
        return None, 0
    from logline.spark.room import active_room

    found = active_room(graph)
    return found.slots, found.spare


def _outputs(name: str, op: Operator[Any, Any], inputs: Mapping[str, Sequence[Stream]]) -> dict[PortName, pa.Schema]:
    """Every output port with its schema; `errors` comes last, so that the first one is the author's."""
    schemas = {
        str(port): port_schema(name, port, [(stream.name, stream.schema) for stream in streams])
        for port, streams in inputs.items()
    }
    declared = _made(name, op.schemas, schemas)
    if not isinstance(declared, Mapping):
        raise DefinitionError(
            f"operator {name!r}: schemas() of {type(op).__name__} gave {a_kind(declared)}: "
            'return a mapping of output ports to schemas, as in {"out": "id long"}'
        )
    if ERRORS in declared:
        raise GraphError(f"operator {name!r}: the port 'errors' is Logline's own: give your output port another name")
    outputs = {PortName(port): _made(name, read_schema, like) for port, like in declared.items()}
    return {**outputs, ERRORS: ERRORS_SCHEMA}


def _check_mapping(name: str, option: str, value: object, form: str) -> None:
    if not isinstance(value, Mapping):
        raise DefinitionError(
            f"operator {name!r}: {option}= is {a_kind(value)}: write a mapping, as in {option}={form}"
        )


def _is_name(value: object) -> bool:
    return isinstance(value, str) and may_name(value)
