"""The functions of `agg=`: what is kept of each group for them, and what it comes to in the end.

>>> spec("p90", ("ms", "quantile", 0.9)).said
'quantile'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, SchemaError
from logline.graph.schemas import schema
from logline.operators.checks import at_least_one
from logline.operators.custom_aggregate import Aggregate
from logline.operators.grouping import Groups, by_value, count_to, flat, lists
from logline.operators.parts import Collected, Distinct, Edge, Moments, Own, Part, Top
from logline.operators.tdigest import Digest, quantile

Agg: TypeAlias = "tuple[str, str] | tuple[str, str, float] | tuple[str, Aggregate[Any]]"
"""(column, function), (column, function, its argument), or (column, an aggregate of your own)."""
Finish = Callable[[Sequence[pa.Array]], pa.Array]
"""Makes the result of the parts."""


class Spec(NamedTuple):
    """How one aggregate of a window is computed: its column, the parts that are kept, and what is made of them."""

    column: str
    said: str
    """The function as the author calls it."""
    parts: tuple[str | Part, ...]
    """What is kept for it: the name of a kernel of Arrow, or a part of ours."""
    finish: Finish
    in_order: bool = False
    """Whether the order of the values counts."""


def _one(parts: Sequence[pa.Array]) -> pa.Array:
    return parts[0]


def _mean(parts: Sequence[pa.Array]) -> pa.Array:
    total, count = (part.cast(pa.float64(), safe=False) for part in parts)
    return pc.divide(total, count)  # of nothing but nulls: the sum is null, and so is the mean


def _variance(parts: Sequence[pa.Array]) -> pa.Array:
    return Moments.variance(parts[0])


def _stddev(parts: Sequence[pa.Array]) -> pa.Array:
    return pc.sqrt(Moments.variance(parts[0]))


def _length(parts: Sequence[pa.Array]) -> pa.Array:
    return pc.list_value_length(parts[0]).cast(pa.int64())


def _sorted(parts: Sequence[pa.Array]) -> pa.Array:
    groups = Groups(count_to(len(parts[0])), len(parts[0]))
    of, values = flat(parts[0], groups)
    order = by_value(of, values)
    return lists(of.take(order), values.take(order), groups.many)


def _quantile(parts: Sequence[pa.Array], q: float) -> pa.Array:
    return quantile(parts[0], q)


def _own(parts: Sequence[pa.Array], part: Own, kind: pa.DataType) -> pa.Array:
    return part.results(parts[0], kind)


_FUNCTIONS: Mapping[str, tuple[tuple[str | Part, ...], Finish]] = {
    "sum": (("sum",), _one),
    "count": (("count",), _one),
    "min": (("min",), _one),
    "max": (("max",), _one),
    "mean": (("sum", "count"), _mean),
    "first": ((Edge("min"),), _one),
    "last": ((Edge("max"),), _one),
    "count_distinct": ((Distinct(),), _length),
    "variance": ((Moments(),), _variance),
    "stddev": ((Moments(),), _stddev),
    "median": ((Digest(),), partial(_quantile, q=0.5)),
    "collect_list": ((Collected(),), _one),
    "collect_set": ((Distinct(),), _sorted),
}
"""The function an author names -> the parts that are kept for it, and what is made of them."""
_IN_ORDER = ("first", "last", "collect_list")
_EXAMPLES = {"quantile": '("ms", "quantile", 0.9)', "top": '("amount", "top", 3)'}
"""Functions that take an argument."""


def spec(name: str, given: object) -> Spec:
    """What an author wrote as an aggregate, checked."""
    match given:
        case Spec():
            return given
        case (str(column), Aggregate() as own):
            return _own_spec(name, column, own)
        case (str(column), str(function)) if function in _FUNCTIONS:
            return Spec(column, function, *_FUNCTIONS[function], function in _IN_ORDER)
        case (str(column), "quantile", q):
            return Spec(column, "quantile", (Digest(),), partial(_quantile, q=_share(name, q)))
        case (str(column), "top", n):
            return Spec(column, "top", (Top(at_least_one(n, f"agg={{{name!r}: ...}}: n")),), _one)
        case (str(), str(function)) if function in _EXAMPLES:
            raise OptionError(f"agg={{{name!r}: ...}}: {function} takes an argument, as in {_EXAMPLES[function]}")
        case (str(), str(function), *_) if function in _FUNCTIONS:
            raise OptionError(f"agg={{{name!r}: ...}}: {function} takes no argument")
        case (str(), str(function), *_):
            known = ", ".join([*_FUNCTIONS, *_EXAMPLES])
            raise OptionError(
                f"agg={{{name!r}: ...}}: there is no function {function!r}; use {known}, or an ll.Aggregate"
            )
        case (str(), type() as kind) if issubclass(kind, Aggregate):
            raise OptionError(f"agg={{{name!r}: ...}}: {kind.__name__} is a class: give an object, {kind.__name__}()")
    raise OptionError(f'agg={{{name!r}: {given!r}}}: write (column, function), as in ("amount", "sum")')


def _share(name: str, q: Any) -> float:
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise OptionError(f"agg={{{name!r}: ...}}: the quantile {q!r} is not a number from 0 to 1")
    return float(q)


def _own_spec(name: str, column: str, own: Aggregate[Any]) -> Spec:
    said, declared = type(own).__name__, getattr(own, "type", None)
    if isinstance(declared, str):
        try:
            declared = schema(f"result {declared}").field(0).type
        except SchemaError as error:
            raise OptionError(f"agg={{{name!r}: ...}}: the type of {said}: {error}") from error
    if not isinstance(declared, pa.DataType):
        raise OptionError(f'agg={{{name!r}: ...}}: {said} needs the type of its result, as in type = "double"')
    part = Own(column, own)
    return Spec(column, said, (part,), partial(_own, part=part, kind=declared), own.in_order)
