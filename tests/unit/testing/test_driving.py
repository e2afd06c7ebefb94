"""`drive`: what it takes, and what may follow what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.errors import DefinitionError


class Total(ll.Operator[int, None]):
    outputs = {"out": "total long"}  # noqa: RUF012

    def assign(self, event: ll.Event, ctx: Any) -> list[str]:
        return ["all"]

    def update(self, inset: Any, acc: int | None, event: ll.Event) -> int:
        return (acc or 0) + int(sum(event.batch["n"].to_pylist()))

    def generate(self, inset: Any, acc: int, ctx: Any) -> Iterator[Any]:
        yield pa.record_batch({"total": [acc]})


def wrong(**variables: Any) -> Any:
    return type("Wrong", (Total,), variables)()


@pytest.mark.parametrize(
    ("op", "says"),
    [
        (Total, "drive() takes an instance of a subclass of Operator, not <class"),
        (Total, ": drive(Total(...))"),
        (7, "not 7"),
        (wrong(inputs="in"), "operator 'op': inputs of Wrong is 'in'"),
        (wrong(outputs=["out"]), "operator 'op': outputs of Wrong is ['out']"),
    ],
)
def test_what_can_not_be_driven(op: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(says)):
        ll.testing.drive(op)


@pytest.mark.parametrize("crashes", [True, False])
def test_an_operator_that_has_left_may_crash(crashes: bool) -> None:
    """A life that begins on a journal that was left ends at once: nothing comes twice."""
    with ll.testing.drive(Total(), crashes=crashes) as op:
        op.send(pa.record_batch({"n": [1, 2]})).end().crash().crash()
        assert op.out().to_pylist() == [{"total": 3}]
