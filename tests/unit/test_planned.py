"""What is planned is refused by name, with what to do today; nobody takes it for something that is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.operators.harness import FakeContext
from typer.testing import CliRunner

import logline as ll
from logline.cli.app import app
from logline.errors import LoglineError, NotYet
from logline.planned import PLANNED


def owners() -> dict[str, object]:
    stream = ll.Pipeline("planned").source("rows", ll.sources.batches([pa.table({"n": [1]})]))
    ctx = FakeContext()
    return {"Stream": stream, "ll": ll, "ll.sources": ll.sources, "ll.sinks": ll.sinks, "Run": ll.Run, "ctx": ctx}


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in PLANNED.items() for name in names])
def test_what_is_planned_says_what_to_do_today(owner: str, name: str) -> None:
    asked = owners()[owner]
    assert not hasattr(asked, name) and name not in dir(asked)
    if owner == "Run":  # a class: what an object of it says is below
        return
    with pytest.raises(NotYet, match=f"{name} is planned and not there yet: [a-z]"):
        getattr(asked, name)


def test_it_is_an_error_of_logline_and_of_a_missing_attribute() -> None:
    assert issubclass(NotYet, LoglineError) and issubclass(NotYet, AttributeError)
    run = ll.Pipeline("planned")
    run.source("rows", ll.sources.batches([pa.table({"n": [1]})])).sink("store", ll.sinks.collect())
    with pytest.raises(NotYet, match=r"Run\.scale is planned .* concurrency="):
        run.run(engine="inline").scale  # type: ignore[attr-defined]  # noqa: B018


class Asks(ll.Operator[pa.RecordBatch, None]):
    outputs = {"out": "n long"}  # noqa: RUF012

    def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Iterator[Any]:
        for name in ("http", "service"):
            with pytest.raises(NotYet, match=rf"ctx\.{name} is planned and not there yet: .* ctx\.call"):
                getattr(ctx, name)
        with pytest.raises(AttributeError, match="object has no attribute 'htpp'"):
            ctx.htpp  # noqa: B018
        with pytest.raises(TypeError, match="declare Keyed"):
            ctx.keys  # noqa: B018
        yield acc


def test_the_context_of_a_run_says_so_too() -> None:
    op = ll.testing.drive(Asks()).send(pa.record_batch({"n": [1]}))
    assert op.out().num_rows == 1


def test_a_mistake_in_the_users_own_state_is_shown() -> None:
    """An AttributeError inside a property of the context must not become "no attribute 'state'"."""

    class State:
        def __init__(self) -> None:
            self.n = ll.tmubling  # type: ignore[attr-defined]

    class Stateful(ll.Operator[pa.RecordBatch, Any]):
        outputs = {"out": "n long"}  # noqa: RUF012

        def generate(self, inset: Any, acc: pa.RecordBatch, ctx: Any) -> Iterator[Any]:
            ctx.state  # noqa: B018
            yield acc

    Stateful.State = State
    with pytest.raises(Exception, match="tmubling"):
        ll.testing.drive(Stateful()).send(pa.record_batch({"n": [1]}))


def test_the_command_says_so_too() -> None:
    said = CliRunner().invoke(app, ["scale", "lmdb:sales.log", "hourly", "2"])
    assert said.exit_code == 1
    assert "logline scale is planned and not there yet: there is one instance of each operator" in said.output
    assert "scale" not in CliRunner().invoke(app, ["--help"]).output


def test_what_is_not_planned_is_a_plain_mistake() -> None:
    stream = owners()["Stream"]
    for asked, says in ((stream, "'Stream' object has no attribute 'jion'"), (ll.sources, "has no attribute 'jion'")):
        with pytest.raises(AttributeError, match=says) as info:
            asked.jion  # type: ignore[attr-defined]  # noqa: B018
        assert not isinstance(info.value, NotYet)
