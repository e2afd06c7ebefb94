"""Rules that every row must meet. What becomes of rows that don't is up to `on_fail`; each rule counts its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from logline.errors import OptionError, RuleBroken
from logline.graph.operator import Batch, Context, Dependency, Emit, Operator, Reject, SchemaLike
from logline.names import InsetId
from logline.operators.computed import Computation, Conditions
from logline.operators.tables import same_columns

OnFail = Literal["divert", "drop", "count", "stop"]
"""Rows that break a rule: to port `errors`, nowhere, on with the others, or the run ends."""


class CheckRows(Operator[Batch, None]):
    """Passes rows on that meet all rules."""

    reuses_memory = False

    def __init__(self, rules: Mapping[str, Computation], on_fail: OnFail = "divert") -> None:
        if on_fail not in get_args(OnFail):
            raise OptionError(f"on_fail={on_fail!r}: use {', '.join(get_args(OnFail))}")
        self.rules = Conditions("check_rows", rules)
        self.on_fail = on_fail

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, SchemaLike]:
        self.rules.types(inputs["in"])
        return {"out": inputs["in"]}

    def dependencies(self, inputs: Mapping[str, pa.Schema]) -> Iterable[Dependency]:
        return same_columns(inputs["in"])

    def generate(self, inset: InsetId, acc: Batch, ctx: Context[None]) -> Iterator[Emit | Reject]:
        if not acc.num_rows:
            return
        broken = {name: pc.invert(mask) for name, mask in self.rules.masks(acc).items()}
        for name, mask in broken.items():
            if many := pc.sum(mask).as_py():
                ctx.count(f"failed_{name}", many)
        names = [pc.if_else(mask, f"{name}, ", "") for name, mask in broken.items()]
        reasons = pc.utf8_rtrim(pc.binary_join_element_wise(*names, ""), ", ")
        bad = pc.not_equal(reasons, "")
        if self.on_fail == "stop" and pc.any(bad).as_py():
            at = pc.index(bad, True).as_py()
            row = acc.slice(at, 1).to_pylist()[0]
            raise RuleBroken(f"row {at} of its event breaks the rule {reasons[at].as_py()}: {row!r:.500}")
        kept = acc if self.on_fail == "count" else acc.filter(pc.invert(bad))
        if kept.num_rows:
            yield Emit(kept)
        if self.on_fail == "divert":
            for reason in pc.unique(reasons.filter(bad)).to_pylist():
                which = pc.equal(reasons, reason)
                yield Reject(acc.filter(which), reason, rows=pc.indices_nonzero(which).to_pylist())
