import inspect
import typing
from datetime import timedelta
from typing import Any, get_args, get_type_hints

import pytest

import logline as ll
from logline.errors import OptionError
from logline.graph.eventual import Eventual
from logline.graph.model import NodeOptions, Policy, Retry
from logline.graph.options import (
    Kind,
    OperatorOptions,
    Options,
    RowOptions,
    SinkOptions,
    SourceOptions,
    WriterOptions,
    resolve,
)

TAKES: dict[Any, Any] = {
    "source": SourceOptions,
    "operator": OperatorOptions,
    "rows": RowOptions,
    "stateful": RowOptions,
    "writer": WriterOptions,
    "sink": SinkOptions,
}
RIGHT: dict[str, Any] = {
    "policy": "pessimistic", "deterministic": True, "group": "g1", "concurrency": 8, "ordered": False,
    "rate": "600/min", "timeout": "2s", "retry": Retry(), "on_error": "drop", "version": "7", "depends": {},
    "accept": "at_least_once", "was": "old", "eventual": Eventual(), "time": "date", "lateness": "5m", "idle": "1m",
}  # fmt: skip
"""A right value for every option that something honours."""


def refused(options: dict[str, Any], kind: Any = "operator") -> str:
    with pytest.raises(OptionError) as info:
        resolve("enrich", kind, options)
    assert "operator 'enrich'" in str(info.value)
    return str(info.value)


def test_without_options_the_defaults_hold() -> None:
    assert resolve("enrich", "operator", {}) == NodeOptions()


@pytest.mark.parametrize("kind", get_args(Kind))
def test_an_editor_completes_what_is_honoured_and_nothing_else(kind: Any) -> None:
    completed = set(get_type_hints(TAKES[kind]))
    assert completed == {option for option, value in RIGHT.items() if _is_honoured(kind, option, value)}
    assert set(get_type_hints(Options)) <= completed


def _is_honoured(kind: Any, option: str, value: Any) -> bool:
    try:
        needs = {"policy": "eventual"} if option == "eventual" else {}
        found = resolve("enrich", kind, {option: value, **needs})
    except OptionError:
        return False
    assert hasattr(found, option)
    return True


@pytest.mark.parametrize("kind", get_args(Kind))
def test_an_editor_completes_the_policies_that_are_honoured(kind: Any) -> None:
    completed = get_args(get_type_hints(TAKES[kind])["policy"])
    assert set(completed) == {p for p in get_args(Policy) if _is_honoured(kind, "policy", p)}


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("policy", ["replay", "auto", "optimistic", None])
def test_a_policy_that_is_refused_names_those_that_are_honoured(kind: Any, policy: Any) -> None:
    said = refused({"policy": policy}, kind)
    for name in (*get_args(Policy), "auto"):
        assert (repr(name) in said) == (name == policy or _is_honoured(kind, "policy", name))
    assert ("is planned and not honoured yet" in said) == (policy in ("replay", "auto"))
    assert ("is not a policy" in said) == (policy in ("optimistic", None))


TO_COME: dict[str, Any] = {
    "by": ["item"], "groups": 32, "scale": object(), "standby": 1, "resources": {"gpu": 1}, "on": "spark",
    "spill": "never", "payload": "later", "depth": 2, "on_orphan": "restart", "epoch": "1s", "selective": True,
    "on_loss": "skip", "replicas": 2,
}  # fmt: skip


@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("option", TO_COME)
def test_options_to_come_are_not_completed_and_say_what_to_do_today(kind: Any, option: str) -> None:
    assert option not in get_type_hints(TAKES[kind])
    said = refused({option: TO_COME[option]}, kind)
    assert f"option {option}" in said and "planned and not honoured yet: " in said and "did you mean" not in said
    assert any(today in said for today in ("leave it out", "concurrency=", "ll.session", "Stream.sql"))


def test_everything_that_makes_an_operator_takes_the_options_of_its_kind() -> None:
    wanted: dict[str, Any] = {"source": SourceOptions, "operator": WriterOptions, "apply": WriterOptions,
                              "map_rows": RowOptions, "map_batches": RowOptions,
                              "stateful": RowOptions, "sink": SinkOptions}  # fmt: skip
    found: dict[str, Any] = {}
    for owner in (ll.Pipeline, ll.Stream):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            taken = inspect.signature(method).parameters.get("options")
            if taken is not None and taken.kind is inspect.Parameter.VAR_KEYWORD:
                (found[name],) = get_args(eval(taken.annotation, vars(typing) | vars(inspect.getmodule(method))))
    assert set(wanted) < set(found)
    assert found == {name: wanted.get(name, OperatorOptions) for name in found}


def test_honoured_options_are_resolved() -> None:
    found = resolve(
        "enrich",
        "rows",
        {
            "policy": "pessimistic",
            "deterministic": True,
            "group": "g1",
            "concurrency": 8,
            "ordered": False,
            "rate": "600/min",
            "timeout": "2s",
            "retry": Retry(attempts=5, wait="100ms", on=(OSError,)),
            "on_error": "divert",
            "replicas": 1,
            "version": "7",
        },
    )
    assert found == NodeOptions(
        deterministic=True,
        group="g1",
        concurrency=8,
        ordered=False,
        rate="600/min",
        timeout=timedelta(seconds=2),
        retry=Retry(attempts=5, wait=timedelta(milliseconds=100), on=(OSError,)),
        on_error="divert",
        version="7",
    )


def test_a_source_has_rows_and_within() -> None:
    found = resolve("orders", "source", {"rows": 10, "within": "1s"})
    assert (found.rows, found.within) == (10, timedelta(seconds=1))


def test_an_unknown_option_gets_the_closest_name() -> None:
    assert "there is no option 'concurency': did you mean 'concurrency'?" in refused({"concurency": 2})
    assert "known are concurrency, depends, deterministic" in refused({"zzz": 2})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eventual": Eventual()}, "option eventual: it says when to checkpoint: add policy='eventual'"),
        ({"policy": "eventual", "eventual": 5}, "5 is not an Eventual"),
        ({"policy": "eventual", "eventual": Eventual(replay="all")}, "replay='all': give a number of events"),
        ({"policy": "eventual", "eventual": Eventual(records=0)}, "records=0 is not a whole number of at least 1"),
        ({"policy": "eventual", "eventual": Eventual(budget=2)}, "budget=2: give a share of the time"),
        ({"policy": "replay"}, "the policy 'replay' is planned and not honoured yet"),
        ({"replicas": 2}, "more than one is planned and not honoured yet: there is one instance"),
        ({"replicas": "1..8"}, "more than one is planned and not honoured yet"),
        ({"was": "no name"}, "'no name' is not a name"),
        ({"rate": "10/s"}, "rate is not honoured here: use map_rows or map_batches"),
        ({"timeout": "1s"}, "timeout is not honoured here: use map_rows or map_batches"),
        ({"accept": "at_least_once"}, "accept is refused: it has no target"),
        ({"rows": 3}, "there is no option 'rows'"),
    ],
)
def test_what_is_not_honoured_is_refused(options: dict[str, Any], says: str) -> None:
    assert says in refused(options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": "hope"}, "'hope' is not a policy: leave it out, or take 'pessimistic'"),
        ({"deterministic": 1}, "1 is neither True nor False"),
        ({"ordered": "no"}, "'no' is neither True nor False"),
        ({"group": "a b"}, "'a b' is not a name"),
        ({"concurrency": 0}, "0 is not a whole number of at least 1"),
        ({"concurrency": True}, "True is not a whole number"),
        ({"concurrency": 1.5}, "1.5 is not a whole number"),
        ({"replicas": 0}, "0 is not a whole number"),
        ({"rate": "fast"}, "'fast' is not a rate"),
        ({"timeout": "soon"}, "'soon' is not a duration"),
        ({"timeout": "0s"}, "a timeout of zero would fail every call"),
        ({"retry": 3}, "3 is not a Retry: write Retry(attempts=3"),
        ({"retry": Retry(attempts=0)}, "0 is not a whole number"),
        ({"retry": Retry(wait="x")}, "'x' is not a duration"),
        ({"retry": Retry(factor=0.5)}, "waits must not shrink"),
        ({"retry": Retry(on=("OSError",))}, "is not a tuple of exception types"),  # type: ignore[arg-type]
        ({"on_error": "ignore"}, "'ignore' is not one of stop, divert, drop"),
        ({"version": ""}, "'' is not a version"),
        ({"accept": "anything"}, "write accept='at_least_once'"),
    ],
)
def test_wrong_values_are_named_with_their_option(options: dict[str, Any], says: str) -> None:
    message = refused(options, "writer" if "accept" in options else "rows")
    assert says in message
    assert f"option {next(iter(options))}" in message


def test_one_exception_type_is_as_good_as_a_tuple_of_one() -> None:
    found = resolve("enrich", "operator", {"retry": Retry(on=OSError)})  # type: ignore[arg-type]
    assert found.retry is not None
    assert found.retry.on == (OSError,)


def test_a_sink_writes_in_order() -> None:
    assert "concurrency is refused: a sink writes in order" in refused({"concurrency": 2}, "sink")
    assert "ordered is refused: a sink writes in order" in refused({"ordered": False}, "sink")
    assert "a write that was committed is never dropped" in refused({"on_error": "drop"}, "sink")
    assert resolve("store", "sink", {"accept": "at_least_once"}).accept == "at_least_once"


def test_a_source_has_no_input_sets() -> None:
    assert "a source has no input sets" in refused({"concurrency": 2}, "source")
    assert "a source has no target" in refused({"accept": "at_least_once"}, "source")
