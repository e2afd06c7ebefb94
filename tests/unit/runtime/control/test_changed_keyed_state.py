"""A log with states of keys goes on with another type of state, or says why it can't (R14)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE

import logline as ll
from logline.errors import BadName, PipelineChanged


@dataclass
class Card:
    total: int = 0


@dataclass
class Longer:
    total: int = 0
    limit: int = 7


@dataclass
class Renamed:
    spent: int = 0


def fn(batch: pa.RecordBatch, ctx: ll.KeyContext[Any]) -> pa.Table:
    name = "spent" if isinstance(ctx.state, Renamed) else "total"
    setattr(ctx.state, name, getattr(ctx.state, name) + sum(batch["n"].to_pylist()))
    return pa.table({"n": [getattr(ctx.state, name)]})


def pipeline(rows: list[tuple[str, int]], state: type, by: str = "card", **more: Any) -> ll.Pipeline:
    p = ll.Pipeline("cards")
    given = [pa.table({"card": [card], "other": [card], "n": [n]}) for card, n in rows]
    cards = p.source("rows", ll.sources.batches(lambda: given), rows=1).stateful(
        "cards", fn, by=[by], state=state, schema="n long", **more
    )
    cards.sink("store", ll.sinks.collect())
    return p


def run(p: ll.Pipeline, folder: Path, **settings: Any) -> ll.Run:
    found = p.start(f"lmdb:{folder}/log", engine="inline", until="now", **settings)
    found.wait(PATIENCE)
    return found


FIRST, MORE = [("a", 1), ("b", 2)], [("a", 1), ("b", 2), ("a", 10)]


def test_states_are_there_in_the_next_run(tmp_path: Path) -> None:
    run(pipeline(FIRST, Card), tmp_path)
    again = run(pipeline(MORE, Card), tmp_path)
    assert again.result("store")["n"].to_pylist() == [1, 2, 11]
    assert again.log.state("cards").sort_by("card").to_pylist() == [
        {"card": "a", "total": 11},
        {"card": "b", "total": 2},
    ]
    assert again.status().operators["cards"].keys == 2


def test_a_state_may_gain_fields(tmp_path: Path) -> None:
    run(pipeline(FIRST, Card), tmp_path)
    again = run(pipeline(MORE, Longer), tmp_path)
    assert again.result("store")["n"].to_pylist() == [1, 2, 11]
    assert again.log.state("cards", "a").to_pylist() == [{"card": "a", "total": 11, "limit": 7}]


def test_another_state_is_refused_with_what_to_do(tmp_path: Path) -> None:
    run(pipeline(FIRST, Card), tmp_path)
    with pytest.raises(PipelineChanged, match=r"the states of 2 keys.*migrate=.*fresh="):
        run(pipeline(MORE, Renamed), tmp_path)


def test_migrate_makes_the_new_states_of_the_old_ones(tmp_path: Path) -> None:
    run(pipeline(FIRST, Card), tmp_path)
    run(pipeline(MORE, Renamed, migrate=lambda old: Renamed(old["total"] * 100)), tmp_path)
    again = run(pipeline(MORE, Renamed, migrate=lambda old: Renamed(old["total"] * 100)), tmp_path)  # not again
    assert again.result("store")["n"].to_pylist() == [1, 2, 110]
    assert again.log.state("cards", "a")["spent"].to_pylist() == [110]


def test_another_key_is_refused_while_there_are_states(tmp_path: Path) -> None:
    run(pipeline(FIRST, Card), tmp_path)
    with pytest.raises(PipelineChanged, match=r"by: card and now has by: other.*2 keys.*fresh="):
        run(pipeline(MORE, Card, by="other"), tmp_path)


def test_made_anew_it_has_the_states_of_what_the_log_still_has(tmp_path: Path) -> None:
    run(pipeline(FIRST, Card), tmp_path)
    again = run(pipeline(MORE, Card, by="other"), tmp_path, fresh=["cards"])
    assert again.log.state("cards").sort_by("other").to_pylist() == [
        {"other": "a", "total": 11},
        {"other": "b", "total": 2},
    ]


def test_log_state_says_who_has_states(tmp_path: Path) -> None:
    first = run(pipeline(FIRST, Card), tmp_path)
    with pytest.raises(BadName, match="'store' has no state per key; these have one: cards"):
        first.log.state("store")
    with pytest.raises(BadName, match="has the columns card"):
        first.log.state("cards", ("a", "b"))
    assert first.log.state("cards", "nobody").num_rows == 0
    with pytest.raises(BadName, match="key=7: the column 'card' has the type string: "):
        first.log.state("cards", 7)
