"""Approximate quantiles of groups by t-digests that merge, after Dunning: "Computing extremely accurate quantiles".

Neither Arrow's `tdigest` kernel nor DuckDB's `approx_quantile` gives out the sketch that it makes, so partials could
not be merged. A digest here is a list of *centroids* for each group: a mean, and how many values it stands for.
Centroids are sorted, and those whose quantiles fall in the same of `_BUCKETS` intervals become one. The intervals are
short near 0 and 1 (the arcsine of Dunning's k1), and the least and the greatest value stay by themselves.

Up to `_EXACT` values of a group are kept as they are: their quantile is exact, interpolated between neighbours as
Spark's `percentile` and DuckDB's `quantile_cont` do it. NaN counts as the greatest value.

    >>> groups = Groups(pa.array([0, 0, 0, 1]), 2)
    >>> quantile(Digest().of(pa.array([1, 5, 3, None]), groups), 0.5).to_pylist()
    [3.0, None]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from logline.operators.grouping import Groups, by_value, count_to, ends, flat, lists, reduce, sizes

_BUCKETS = 200
_EXACT = 400


@dataclass(frozen=True)
class Digest:
    """The digests of groups, as a struct of two lists: means and weights."""

    def of(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Each value is a centroid at first."""
        there = pc.is_valid(values)
        means = values.filter(there).cast(pa.float64(), safe=False)
        weights = pa.repeat(pa.scalar(1.0), len(means))
        return _digests(groups.of.filter(there), means, weights, groups.many)

    def merge(self, states: pa.Array, groups: Groups) -> pa.Array:
        """The centroids of several digests as one digest."""
        of, means = flat(states.field("mean"), groups)
        return _digests(of, means, pc.list_flatten(states.field("weight")), groups.many)


def _digests(of: pa.Array, means: pa.Array, weights: pa.Array, many: int) -> pa.Array:
    order = by_value(of, means)
    of, means, weights = of.take(order), means.take(order), weights.take(order)
    counts = sizes(of, many)
    if len(of) and pc.max(counts).as_py() > _EXACT:
        of, means, weights = _compressed(of, means, weights, counts)
    return pa.StructArray.from_arrays([lists(of, means, many), lists(of, weights, many)], ["mean", "weight"])


def _compressed(
    of: pa.Array, means: pa.Array, weights: pa.Array, counts: pa.Array
) -> tuple[pa.Array, pa.Array, pa.Array]:
    many = len(counts)
    rank = pc.subtract(count_to(len(of)), _starts(counts).take(of))
    last = pc.equal(rank, pc.subtract(counts, 1).take(of))
    totals = pc.fill_null(reduce(of, weights, many, "sum"), 0.0)
    middle = pc.subtract(pc.cumulative_sum(weights), pc.add(_starts(totals).take(of), pc.divide(weights, 2.0)))
    share = pc.subtract(pc.multiply(pc.divide(middle, totals.take(of)), 2.0), 1.0)
    scaled = pc.add(pc.divide(pc.asin(share), math.pi), 0.5)
    bucket = pc.add(pc.floor(pc.multiply(scaled, float(_BUCKETS))).cast(pa.int64()), 1)
    bucket = pc.if_else(pc.equal(rank, 0), -1, pc.if_else(last, _BUCKETS + 3, bucket))
    few = pc.less_equal(counts, _EXACT).take(of)
    table = pa.table(
        {"g": of, "b": pc.if_else(few, rank, bucket), "w": weights, "wm": pc.multiply(weights, means)}
    ).group_by(["g", "b"], use_threads=False)
    made = table.aggregate([("w", "sum"), ("wm", "sum")]).combine_chunks()
    of, weights, weighted = (made[name].combine_chunks() for name in ("g", "w_sum", "wm_sum"))
    return of, pc.divide(weighted, weights), weights


def quantile(digests: pa.Array, q: float) -> pa.Array:
    """The value below which the share `q` of a group lies; null for a group without values."""
    groups = Groups(count_to(len(digests)), len(digests))
    of, means = flat(digests.field("mean"), groups)
    weights = pc.list_flatten(digests.field("weight"))
    counts = sizes(of, groups.many)
    totals = pc.fill_null(reduce(of, weights, groups.many, "sum"), 0.0)
    before = pc.subtract(pc.cumulative_sum(weights), pc.add(weights, _starts(totals).take(of)))
    centres = pc.add(before, pc.divide(pc.subtract(weights, 1.0), 2.0))
    wanted = pc.multiply(pc.subtract(totals, 1.0), q)
    places = pc.if_else(pc.less_equal(centres, wanted.take(of)), count_to(len(of)), None)
    low = reduce(of, places, groups.many, "max")
    high = pc.min_element_wise(pc.add(low, 1), pc.subtract(ends(counts), 1), skip_nulls=False)
    below, above = means.take(low), means.take(high)
    gap = pc.subtract(centres.take(high), centres.take(low))
    share = pc.divide(pc.subtract(wanted, centres.take(low)), gap)
    between = pc.add(below, pc.multiply(pc.subtract(above, below), share))
    # Not between: infinities and NaN would make NaN of what is there.
    there = pc.or_(pc.less_equal(pc.subtract(wanted, centres.take(low)), 0.0), pc.equal(below, above))
    return pc.if_else(pc.or_(there, pc.equal(low, high)), below, between)


def _starts(counts: pa.Array) -> pa.Array:
    return pc.subtract(ends(counts), counts)
