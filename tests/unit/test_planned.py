"""What is planned is refused by name, with what to do today; nobody takes it for something that is there."""

from __future__ import annotations

import pyarrow as pa
import pytest

import logline as ll
from logline.errors import LoglineError, NotYet
from logline.planned import PLANNED


def owners() -> dict[str, object]:
    stream = ll.Pipeline("planned").source("rows", ll.sources.batches([pa.table({"n": [1]})]))
    return {"Stream": stream, "ll": ll, "ll.sources": ll.sources, "ll.sinks": ll.sinks, "Run": ll.Run}


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


def test_what_is_not_planned_is_a_plain_mistake() -> None:
    stream = owners()["Stream"]
    for asked, says in ((stream, "'Stream' object has no attribute 'jion'"), (ll.sources, "has no attribute 'jion'")):
        with pytest.raises(AttributeError, match=says) as info:
            asked.jion  # type: ignore[attr-defined]  # noqa: B018
        assert not isinstance(info.value, NotYet)
