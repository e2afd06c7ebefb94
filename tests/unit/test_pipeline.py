from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from logline.connectors import sinks, sources
from logline.errors import (
    BadName,
    DefinitionError,
    GraphError,
    GuaranteeError,
    LoglineError,
    OptionError,
    SchemaError,
    ShippingError,
)
from logline.graph.model import ERRORS_SCHEMA, Retry
from logline.graph.operator import Emit, Operator, Write
from logline.names import OperatorName, PortName
from logline.operators import events, tumbling
from logline.pipeline import Pipeline, Stream

SALES = pa.schema([("item", pa.string()), ("amount", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


def sales() -> tuple[Pipeline, Stream]:
    p = Pipeline("sales")
    return p, p.source("orders", sources.batches([], schema=SALES), rows=500, within="2s")


def channels(p: Pipeline) -> list[str]:
    return [str(c) for c in p.graph().connections]


def node(stream: Stream) -> Any:
    return stream.pipeline.graph().nodes[stream.operator]


def refused(kind: type[LoglineError], call: Any, *args: Any, **more: Any) -> str:
    with pytest.raises(LoglineError) as info:
        call(*args, **more)
    assert type(info.value) is kind, repr(info.value)
    return str(info.value)


class Split(Operator[pa.RecordBatch, None]):
    """One input port, two output ports."""

    outputs = {"small": "amount long", "large": pa.schema([("amount", pa.int64())])}  # noqa: RUF012

    def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Iterator[Any]:
        yield Emit(acc.select(["amount"]), "small")


class Join(Operator[Any, None]):
    inputs = ("left", "right")

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, Any]:
        return {"out": pa.schema([*inputs["left"], *(f.with_name(f"r_{f.name}") for f in inputs["right"])])}

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        yield acc


class Writer(Operator[Any, None]):
    def generate(self, inset: Any, acc: Any, ctx: Any) -> Iterator[Any]:
        yield Write(acc, to="audit")


# ---- building -----------------------------------------------------------------------------------------


def test_a_source_is_a_stream_with_a_schema() -> None:
    _, orders = sales()
    assert (orders.name, orders.schema) == ("orders", SALES)
    made = node(orders)
    assert (made.kind, list(made.outputs)) == ("source", ["out"])
    assert (made.options.rows, made.options.within) == (500, timedelta(seconds=2))


def test_operators_are_chained_and_ports_fan_out() -> None:
    p, orders = sales()
    large = orders.filter("large", pc.field("amount") > 10)
    large.sink("store", sinks.collect())
    large.sink("copy", sinks.collect())
    both = orders.union("both", large)
    both.rebatch("blocks", rows=10, within="1s")
    assert channels(p) == [
        "orders.out>large.in",
        "large.out>store.in",
        "large.out>copy.in",
        "orders.out>both.in",
        "large.out>both.in",
        "both.out>blocks.in",
    ]
    assert both.schema == SALES


def test_every_operator_has_a_port_for_errors_and_a_source_has_none() -> None:
    p, orders = sales()
    large = orders.filter("large", pc.field("amount") > 10)
    assert large["errors"].name == "large.errors"
    assert large["errors"].schema == ERRORS_SCHEMA
    large["errors"].sink("failed", sinks.collect())
    assert "large.errors>failed.in" in channels(p)
    message = refused(BadName, orders.__getitem__, "errors")
    assert message == "operator 'orders' has no output port 'errors'; it has out"


def test_map_batches_is_probed_for_its_schema() -> None:
    _, orders = sales()
    doubled = orders.map_batches("doubled", lambda b: pa.table({"twice": pc.multiply(b["amount"], 2)}))
    assert doubled.schema == pa.schema([("twice", pa.int64())])
    declared = orders.map_batches("declared", lambda b: None, schema="n long")
    assert declared.schema == pa.schema([("n", pa.int64())])
    assert "operator 'none': its schema is not known" in refused(
        SchemaError, orders.map_batches, "none", lambda b: None
    )
    assert "pass schema=" in refused(SchemaError, orders.map_batches, "fails", lambda b: b["nope"])
    assert "operator 'bad': the schema 'n lnog' is not Spark DDL" in refused(
        SchemaError, orders.map_batches, "bad", lambda b: b, schema="n lnog"
    )


def test_map_rows_honours_rate_and_timeout_and_tries_each_row_by_itself() -> None:
    _, orders = sales()
    scored = orders.map_rows(
        "scored",
        lambda row, ctx: {"score": 1.0},
        schema="score double",
        concurrency=50,
        rate="600/min",
        timeout="5s",
        retry=Retry(attempts=4),
        on_error="divert",
    )
    assert scored.schema == pa.schema([("score", pa.float64())])
    options = node(scored).options
    assert (options.concurrency, options.rate, options.timeout) == (50, "600/min", timedelta(seconds=5))
    assert options.retry is None
    assert options.on_error == "divert"
    assert "use map_rows or map_batches" in refused(
        OptionError, orders.filter, "f", pc.field("amount") > 1, rate="1/s"
    )


def test_windows_have_a_port_for_late_records() -> None:
    _, orders = sales()
    hourly = orders.window("hourly", tumbling("1h", on="at"), by=["item"], agg={"total": ("amount", "sum")})
    assert hourly.schema.names == ["window_start", "window_end", "item", "total"]
    assert hourly["late"].schema == SALES
    assert hourly["late"]["out"].name == "hourly"
    blocks = orders.window("blocks", events(100), agg={"total": ("amount", "sum")})
    assert blocks.schema.names == ["total"]


def test_what_a_ready_made_operator_refuses_is_said_with_its_name() -> None:
    _, orders = sales()
    assert refused(SchemaError, orders.filter, "f", pc.field("nope") > 1).startswith("operator 'f': ")
    assert refused(OptionError, orders.rebatch, "r", rows=0, within="1s").startswith("operator 'r': ")
    assert refused(
        SchemaError, orders.window, "w", tumbling("1h", on="nope"), agg={"n": ("item", "count")}
    ).startswith("operator 'w': ")


def test_a_custom_operator_with_several_output_ports() -> None:
    _, orders = sales()
    small = orders.apply("split", Split())
    assert (small.name, small["large"].schema.names) == ("split.small", ["amount"])
    assert list(node(small).outputs) == ["small", "large", "errors"]


def test_a_custom_operator_with_several_input_ports() -> None:
    p, orders = sales()
    other = p.source("other", sources.batches([pa.table({"x": [1]})]))
    joined = p.operator("joined", Join(), {"right": other, "left": orders})
    assert joined.schema.names == ["item", "amount", "at", "r_x"]
    assert "apply() connects one; use Pipeline.operator" in refused(GraphError, orders.apply, "j", Join())


def test_an_operator_with_targets() -> None:
    _, orders = sales()
    written = orders.apply("writer", Writer(), targets={"audit": sinks.collect()})
    assert (written.name, node(written).kind, list(node(written).targets)) == (
        "writer.errors",
        "sink",
        ["audit"],
    )
    fn = sinks.call(lambda batch, number, write_id: None)
    assert "only guarantees at_least_once" in refused(
        GuaranteeError, orders.apply, "w2", Writer(), targets={"audit": fn}
    )
    orders.apply("w2", Writer(), targets={"audit": fn}, accept="at_least_once")


# ---- what is refused at definition --------------------------------------------------------------------


def test_names() -> None:
    p, orders = sales()
    assert "'my pipe' can't name a pipeline" in refused(BadName, Pipeline, "my pipe")
    assert "'a.b' can't name an operator" in refused(BadName, orders.filter, "a.b", pc.field("amount") > 1)
    assert refused(BadName, p.source, "orders", sources.batches([], schema=SALES)) == (
        "there is already an operator 'orders' in pipeline 'sales': recovery goes by names, choose another one"
    )


def test_ports() -> None:
    p, orders = sales()
    inputs = {"left": orders, "right": orders, "middle": orders}
    assert "has no input port 'middle'; it has left, right" in refused(BadName, p.operator, "j", Join(), inputs)
    message = refused(GraphError, p.operator, "j", Join(), {"left": orders})
    assert "operator 'j': the input port 'right' is not connected" in message
    assert "orders.out is connected twice to u.in" in refused(GraphError, orders.union, "u", orders)
    assert "needs at least one other stream" in refused(GraphError, orders.union, "u")


class TakesErrors(Split):
    outputs = {"errors": "x long"}  # noqa: RUF012


def test_the_port_errors_is_reserved() -> None:
    _, orders = sales()
    assert "the port 'errors' is Logline's own" in refused(GraphError, orders.apply, "x", TakesErrors())


def test_streams_stay_in_their_pipeline() -> None:
    _, orders = sales()
    other = Pipeline("other").source("more", sources.batches([], schema=SALES))
    message = refused(GraphError, orders.union, "u", other)
    assert "the stream 'more' belongs to pipeline 'other', this is 'sales'" in message
    assert "is not a stream" in refused(GraphError, orders.union, "u", "more")


def test_schemas_that_do_not_match_in_a_union() -> None:
    p, orders = sales()
    other = p.source("other", sources.batches([pa.table({"x": [1]})]))
    message = refused(SchemaError, orders.union, "u", other)
    assert "orders has (item string, amount int64" in message
    assert "other has (x int64)" in message


def test_things_of_the_wrong_kind() -> None:
    p, orders = sales()
    assert "is not an Operator: make an instance" in refused(DefinitionError, orders.apply, "s", Split)
    assert "list is not a Source: take one of logline.sources" in refused(DefinitionError, p.source, "s", [])
    assert "the target 'out' is a list, not a Sink" in refused(DefinitionError, orders.sink, "s", [])


@pytest.mark.parametrize(
    ("word", "value", "form"),
    [
        ("inputs", "in", 'as a tuple, as in inputs = ("in",)'),
        ("inputs", None, 'as a tuple, as in inputs = ("in",)'),
        ("inputs", (1,), 'as a tuple, as in inputs = ("in",)'),
        ("outputs", ["out"], 'outputs = {"out": "id long"}'),
        ("outputs", "id long", 'outputs = {"out": "id long"}'),
        ("time", "at", 'time = {"in": "at"}'),
        ("depends", ["item"], 'depends = {"item": "item"}'),
    ],
)
def test_class_variables_of_another_form(word: str, value: Any, form: str) -> None:
    p, orders = sales()
    wrong = type("Wrong", (Split,), {word: value})()
    for message in (
        refused(DefinitionError, orders.apply, "w", wrong),
        refused(DefinitionError, p.operator, "w", wrong, {"in": orders}),
    ):
        assert message.startswith(f"operator 'w': {word} of Wrong is {value!r}: ")
        assert form in message


def test_arguments_that_are_no_mapping() -> None:
    p, orders = sales()
    wrong = type("Wrong", (Split,), {"schemas": lambda self, inputs: ["out"]})()
    assert "schemas() of Wrong gave a list: return a mapping" in refused(DefinitionError, orders.apply, "w", wrong)
    assert "operator 's': inputs= is a list: write a mapping, as in inputs={\"in\": stream}" in refused(
        DefinitionError, p.operator, "s", Split(), [orders]
    )
    assert 'targets= is a Collect: write a mapping, as in targets={"audit": sink}' in refused(
        DefinitionError, orders.apply, "s", Split(), targets=sinks.collect()
    )


def test_by_is_not_honoured_yet() -> None:
    _, orders = sales()
    said = refused(OptionError, orders.apply, "s", Split(), by=["item"])
    assert "option by is planned and not honoured yet: it would split events over replicas" in said


class Client(Split):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def test_what_can_not_be_shipped_is_refused_at_once_and_leaves_no_trace() -> None:
    p, orders = sales()
    message = refused(ShippingError, orders.apply, "split", Client())
    assert "operator 'split': attribute 'lock' (lock) can't be shipped to a worker: create it in open()" in message
    lock = threading.Lock()
    message = refused(ShippingError, orders.map_batches, "m", lambda b: b.slice(bool(lock)))
    assert "operator 'm': variable 'lock' used by <lambda>() (lock)" in message
    assert list(p.graph().nodes) == ["orders"]
    orders.apply("split", Split())  # the name is still free


def test_one_object_for_one_operator() -> None:
    _, orders = sales()
    op = Split()
    orders.apply("one", op)
    assert "operators 'one' and 'two' share one Operator object" in refused(GraphError, orders.apply, "two", op)


def test_at_least_once_has_to_be_accepted() -> None:
    _, orders = sales()
    target = sinks.call(lambda batch, number, write_id: None)
    message = refused(GuaranteeError, orders.sink, "store", target)
    assert "operator 'store', target 'out' (Call) only guarantees at_least_once" in message
    orders.sink("store", target, accept="at_least_once")


# ---- lineage, check, drawing --------------------------------------------------------------------------


def test_lineage_scopes_by_stream_or_by_name() -> None:
    p, orders = sales()
    hourly = orders.window("hourly", tumbling("1h", on="at"), agg={"n": ("item", "count")})
    p.lineage(orders, hourly["late"], keep="1d")
    p.lineage("orders", "hourly.late")
    p.lineage()
    first, second, third = p.graph().scopes
    late = (OperatorName("hourly"), PortName("late"))
    assert (first.start, first.target, first.keep) == (("orders", "out"), late, timedelta(days=1))
    assert (second.start, second.target, second.keep) == (("orders", "out"), late, timedelta(days=7))
    assert (third.start, third.target) == (None, None)
    assert "there is no operator 'x'; there are orders, hourly" in refused(BadName, p.lineage, "x")
    assert "'hourly' has no output port 'x'" in refused(BadName, p.lineage, "hourly.x")
    assert "lineage: keep: 'x' is not a duration" in refused(OptionError, p.lineage, keep="x")


def test_check_reports_and_moves_nothing() -> None:
    p, orders = sales()
    orders.filter("large", pc.field("amount") > 1, group="g").sink("store", sinks.collect(), group="g")
    found = p.check()
    assert found.guarantees == {"store": "positioned"}
    assert found.groups == {"orders": ("orders",), "g": ("large", "store")}
    assert found.changes is None


def test_check_and_start_refuse_what_can_not_run() -> None:
    assert "has no source" in refused(GraphError, Pipeline("empty").check)
    assert "has no source" in refused(GraphError, Pipeline("empty").start, engine="inline")


def test_a_pipeline_shows_itself() -> None:
    p, orders = sales()
    orders.sink("store", sinks.collect())
    assert str(p) == "pipeline 'sales'\n  orders  source Batches -> store\n  store   sink Collect"
    assert repr(p) == "Pipeline('sales', 2 operators)"
    assert p._repr_html_().startswith("<svg")
    assert repr(orders) == "Stream('orders': item string, amount int64, at timestamp[us, tz=UTC])"


# ---- starting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"engine": "flink"}, "engine='flink': take one of 'spark', 'inline'"),
        ({"engine": "inline", "resume": "maybe"}, "resume='maybe': take one of 'auto', 'never', 'must'"),
        ({"engine": "inline", "until": "noon"}, "until='noon': take one of 'end', 'now'"),
        ({"engine": "inline", "durability": "none"}, "durability='none': take one of 'disk', 'process'"),
        ({"engine": "inline", "durability": "process"}, "durability= is for logs on disk"),
        ({"engine": "inline", "spark": object()}, "spark= is of no use without engine='spark'"),
        (
            {"spark": "local[2]"},
            "spark='local[2]': expected a SparkSession, not a str: make one with ll.session(master=",
        ),
    ],
)
def test_settings_that_are_wrong_or_not_honoured(settings: dict[str, Any], says: str) -> None:
    p, orders = sales()
    orders.sink("store", sinks.collect())
    assert says in refused(OptionError, p.start, **settings)
    assert says in refused(OptionError, p.run, **settings)


def test_a_session_of_spark_connect_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class needs grpc to be imported: one with its name stands for it."""
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    p, orders = sales()
    orders.sink("store", sinks.collect())
    assert "this is a session of Spark Connect" in refused(OptionError, p.start, spark=connect)
    log = p.run(engine="inline").log
    assert "this is a session of Spark Connect" in refused(OptionError, log.frame, connect, "orders")
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "active", lambda: connect)  # as SPARK_REMOTE makes it
    assert "make the session with ll.session(master=" in refused(OptionError, p.start)


def test_preview_wants_a_row() -> None:
    _, orders = sales()
    assert "ask for at least one row" in refused(OptionError, orders.preview, 0)
    assert "preview(rows='5'): ask for a whole number" in refused(OptionError, orders.preview, "5")
