"""The options of an operator, checked when it is defined.

An option that is wrong, unknown, or not honoured yet is refused; none is silently ignored. Which options
mean something depends on what is made: writes are in order, so a sink has no `concurrency`; a source has
no input sets, so nothing of it can be generated at once.

    >>> resolve("lookup", "operator", {"concurrency": 8, "on_error": "divert"}).concurrency
    8
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, get_args

from logline.errors import OptionError
from logline.graph.durations import duration, rate
from logline.graph.eventual import Eventual, check_eventual
from logline.graph.model import NodeOptions, OnError, Policy, Retry
from logline.graph.operator import Duration
from logline.names import NAME_RULE, OperatorName, may_name
from logline.planned import ONE_INSTANCE

Kind = Literal["source", "operator", "rows", "stateful", "writer", "sink"]
"""What takes options: `rows` is map_rows or map_batches, `writer` an operator with targets."""
Honoured = Literal["pessimistic", "eventual", "ephemeral"]
"""The policies that are honoured yet."""
PLANNED_POLICIES = (*(policy for policy in get_args(Policy) if policy not in get_args(Honoured)), "auto")


class Options(TypedDict, total=False):
    """The options that everything takes that makes an operator."""

    deterministic: bool
    """Whether the same input set always gives the same output set."""
    group: str
    """Operators of one group share a process."""
    retry: Retry
    """How often code that raised an exception is tried."""
    version: str
    """The version of the code; by default a digest of it."""
    was: str
    """Its name before a rename: it goes on with what the log holds under that one."""


class PessimisticOptions(TypedDict, total=False):
    """The policy of what has no input sets that stay open: there is nothing to checkpoint."""

    policy: Literal["pessimistic"]
    """How it survives a failure."""


class SourceOptions(Options, PessimisticOptions, total=False):
    """The options that a source takes, beside its `rows` and `within`."""

    time: str
    """The column of the event time: what follows knows how far time is."""
    lateness: Duration
    """How far behind the greatest time of its partition a row may be, and still be in time."""
    idle: Duration
    """After how long without anything to read a partition is not waited for any more."""


class InputOptions(Options, total=False):
    """The options that whatever has inputs takes, and generates something of them."""

    concurrency: int
    """Input sets (`map_rows`: rows) in generation at once."""
    ordered: bool
    """Commit in arrival order (default), or in order of completion."""
    on_error: OnError
    """After the last try: stop the pipeline, divert the set to port `errors`, or drop it."""
    depends: Mapping[str, str]
    """Output column -> the input column that it depends on alone: lineage of records (LOG.io Example 11)."""


class OperatorOptions(InputOptions, total=False):
    """The options that an operator with inputs takes."""

    policy: Honoured
    """How it survives a failure."""
    eventual: Eventual
    """With `policy="eventual"`: when open input sets have checkpoints."""


class RowOptions(InputOptions, total=False):
    """The options that `map_rows` and `map_batches` take: they call a function, for a row or for a batch."""

    policy: Literal["pessimistic", "ephemeral"]
    """How it survives a failure."""
    rate: str
    """At most so many calls: "600/min"."""
    timeout: Duration
    """How long one call may take, without the time in which answers wait for the log."""


class WriterOptions(OperatorOptions, total=False):
    """The options that a custom operator takes, which may have targets."""

    accept: Literal["at_least_once"]
    """Accepts a target that may write twice after a crash. Only with targets."""


class SinkOptions(Options, PessimisticOptions, total=False):
    """The options that a sink takes."""

    accept: Literal["at_least_once"]
    """Accepts a target that may write twice after a crash."""


# What an editor completes is what is honoured: there is one list.
_HONOURED: Mapping[Kind, frozenset[str]] = {
    "source": SourceOptions.__optional_keys__ | {"rows", "within"},
    "operator": OperatorOptions.__optional_keys__,
    "rows": RowOptions.__optional_keys__,
    "stateful": RowOptions.__optional_keys__,
    "writer": WriterOptions.__optional_keys__,
    "sink": SinkOptions.__optional_keys__,
}
KEPT_BY_KEY = "the state of each key is in the log as it is, so there is nothing to checkpoint and to take in again"
_WHY_NOT = {
    ("sink", "concurrency"): "a sink writes in order",
    ("sink", "ordered"): "a sink writes in order",
    ("sink", "on_error"): "a write that was committed is never dropped; put a filter before the sink",
    ("source", "concurrency"): "a source has no input sets",
    ("source", "ordered"): "a source has no input sets",
    ("source", "on_error"): "a source has no input sets that could be set aside",
    ("source", "accept"): "a source has no target",
    ("source", "depends"): "a source has no input",
    ("sink", "depends"): "a sink puts out nothing",
    ("source", "eventual"): "a source has no input sets, so nothing of them can be in a checkpoint",
    ("sink", "eventual"): "a sink takes each event by itself, and has no input sets that stay open",
    ("rows", "eventual"): "it takes each event by itself, and has no input sets that stay open",
    ("source", "ephemeral"): "what it has read is logged, so that it is read once; the operators behind it can be it",
    ("sink", "ephemeral"): "a write is logged before it is made; the operators before it can be it",
    ("operator", "accept"): "it has no target",
    ("stateful", "eventual"): KEPT_BY_KEY,
    ("rows", "accept"): "it has no target",
    ("stateful", "accept"): "it has no target",
}


def resolve(name: str, kind: Kind, options: Mapping[str, Any]) -> NodeOptions:
    """The checked options of the operator `name`."""
    honoured = _HONOURED[kind]
    values: dict[str, Any] = {}
    for option, value in options.items():
        if option not in honoured and option != "replicas":
            raise not_honoured(name, kind, option)
        try:
            if option == "policy":
                values[option] = _policy(kind, value)
            elif option == "replicas":
                _replicas(value)
            else:
                values[option] = _CHECKS[option](value)
        except OptionError as error:
            raise OptionError(f"operator {name!r}: option {option}: {error}") from None
    policy = values.get("policy", "pessimistic")
    if (why := _WHY_NOT.get((kind, policy))) is not None:
        raise OptionError(f"operator {name!r}: the policy {policy!r} is refused: {why}; leave it out")
    if "eventual" in values and values.get("policy") != "eventual":
        raise OptionError(f"operator {name!r}: option eventual: it says when to checkpoint: add policy='eventual'")
    return NodeOptions(**values)


def not_honoured(name: str, kind: Kind, option: str) -> OptionError:
    """The refusal of an option, with the reason and what to do."""
    if (why := _WHY_NOT.get((kind, option))) is not None:
        return OptionError(f"operator {name!r}: option {option} is refused: {why}")
    if (today := _NOT_YET.get(option)) is not None:
        return OptionError(f"operator {name!r}: option {option} is planned and not honoured yet: {today}")
    if option in ("rate", "timeout"):
        return OptionError(f"operator {name!r}: option {option} is not honoured here: use map_rows or map_batches")
    honoured = _HONOURED[kind]
    close = get_close_matches(option, honoured, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(honoured))}"
    return OptionError(f"operator {name!r}: there is no option {option!r}: {hint}")


def _policy(kind: Kind, value: Any) -> Any:
    if value in get_args(Honoured):
        return value
    honoured = [policy for policy in get_args(Honoured) if (kind, policy) not in _WHY_NOT]
    take = f"leave it out, or take {' or '.join(map(repr, honoured))}"
    if value in PLANNED_POLICIES:
        raise OptionError(f"the policy {value!r} is planned and not honoured yet: {take}")
    raise OptionError(f"{value!r} is not a policy: {take}")


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{value!r} is neither True nor False")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OptionError(f"{value!r} is not a whole number of at least 1")
    return value


def _replicas(value: Any) -> None:
    if isinstance(value, str) or _count(value) != 1:  # "1..8" will be as many as it takes
        raise OptionError(f"more than one is planned and not honoured yet: {ONE_INSTANCE}")


def _group(value: Any) -> str:
    if not isinstance(value, str) or not may_name(value):
        raise OptionError(f"{value!r} is not a name: {NAME_RULE}")
    return value


def _version(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise OptionError(f"{value!r} is not a version: write a text, for example '2024-05-01'")
    return value


def _was(value: Any) -> OperatorName:
    if not isinstance(value, str) or not may_name(value):
        raise OptionError(f"{value!r} is not a name: {NAME_RULE}")
    return OperatorName(value)


def _rate(value: Any) -> str:
    rate(value)
    return str(value)


def _timeout(value: Any) -> timedelta:
    limit = duration(value)
    if not limit:
        raise OptionError("a timeout of zero would fail every call: leave it out for no timeout")
    return limit


def _retry(value: Any) -> Retry:
    if not isinstance(value, Retry):
        raise OptionError(f"{value!r} is not a Retry: write Retry(attempts=3, wait='1s')")
    _count(value.attempts)
    factor: Any = value.factor
    if not isinstance(factor, int | float) or factor < 1:
        raise OptionError(f"factor={factor!r} is less than 1: waits must not shrink")
    on: Any = value.on
    kinds = on if isinstance(on, tuple) else (on,)
    if not kinds or not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise OptionError(f"on={value.on!r} is not a tuple of exception types")
    return replace(value, wait=duration(value.wait), on=kinds)


def _on_error(value: Any) -> Any:
    if value not in get_args(OnError):
        raise OptionError(f"{value!r} is not one of {', '.join(get_args(OnError))}")
    return value


def _accept(value: Any) -> str:
    if value != "at_least_once":
        raise OptionError(f"{value!r} is no guarantee to accept: write accept='at_least_once'")
    return "at_least_once"


def _depends(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(c, str) for pair in value.items() for c in pair):
        raise OptionError(f"{value!r} is not a mapping of output columns to input columns")
    return dict(value)


def _column(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise OptionError(f"{value!r} is no column: give the name of the column that holds the event time")
    return value


def _idle(value: Any) -> timedelta:
    span = duration(value)
    if not span:
        raise OptionError("a partition that is idle at once is never waited for: give a time, or leave it out")
    return span


_WITH_POLICY = "leave it out; it belongs to the policy {!r}, which is planned too"
_CHECKS = {
    "eventual": check_eventual,
    "deterministic": _flag,
    "group": _group,
    "concurrency": _count,
    "ordered": _flag,
    "rate": _rate,
    "timeout": _timeout,
    "retry": _retry,
    "on_error": _on_error,
    "version": _version,
    "was": _was,
    "accept": _accept,
    "depends": _depends,
    "rows": _count,
    "within": duration,
    "time": _column,
    "lateness": duration,
    "idle": _idle,
}
_NOT_YET: Mapping[str, str] = {
    "by": f"it would split events over replicas, but {ONE_INSTANCE}",
    "groups": f"it would split keys over replicas, but {ONE_INSTANCE}",
    "scale": ONE_INSTANCE,
    "standby": "leave it out; a life that dies is begun anew, where its log ends",
    "resources": "give cores and memory to the whole session, with ll.session(**conf)",
    "on": "take Stream.sql for input sets that Spark jobs generate",
    "spill": "leave it out; every event is in the log",
    "payload": _WITH_POLICY.format("replay"),
    "depth": _WITH_POLICY.format("causal"),
    "on_orphan": _WITH_POLICY.format("causal"),
    "epoch": _WITH_POLICY.format("aligned"),
    "selective": _WITH_POLICY.format("aligned"),
    "on_loss": _WITH_POLICY.format("ephemeral"),
}
"""Options to come, with what to do today. No kind lists them, so that no editor offers them; whoever knows of them is
told. So is whoever asks for several `replicas`."""
