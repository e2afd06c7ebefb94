"""`ctx.merge`, `ctx.open_sets` and `fire(keep=True)` as authors see them: what takes effect when, what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.engine.open_sets import OpenSets
from logline.names import Serial


class Words(ll.Operator[Any, Any]):
    """An event says what is to be done: "open a", "merge a b", "keep a", "fire a", "wait a", "see"."""

    outputs = {"out": "said string, cause string, version long, changed boolean"}  # noqa: RUF012

    def assign(self, event: ll.Event, ctx: ll.Context[Any]) -> Any:
        word, *ids = event.batch["word"][0].as_py().split()
        if word == "merge":
            ctx.merge(*ids)
        if word in ("keep", "fire"):
            ctx.fire(ids[0], keep=word == "keep")
        if word == "wait":
            ctx.fire(ids[0], after="10s")
        if word == "see":
            return {"see": [f"{inset}={acc}" for inset, acc in ctx.open_sets().items()]}
        return ids[:1]

    def update(self, inset: Any, acc: Any, event: ll.Event) -> Any:
        return [*(acc or ()), *(event.note or [event.batch["word"][0].as_py()])]

    def merge(self, acc: Any, other: Any) -> Any:
        return [*acc, *other]

    def ready(self, inset: Any, acc: Any, ctx: ll.Context[Any]) -> bool:
        return bool(inset == "see")

    def generate(self, inset: Any, acc: Any, ctx: ll.Context[Any]) -> Any:
        said = f"{inset}: {', '.join(acc)}"
        row = {"said": [said], "cause": [ctx.cause], "version": [ctx.version], "changed": [ctx.changed]}
        yield pa.record_batch(row)


def told(*words: str, op: type[Words] = Words, **options: Any) -> ll.testing.Drive:
    """With a crash after every event; what a recovery makes is compared."""
    driven = ll.testing.drive(op(), **options)
    for word in words:
        if word.startswith("+"):
            driven.advance(word[1:])
        else:
            driven.send(pa.record_batch({"word": [word]}))
    return driven


def said(driven: ll.testing.Drive) -> list[str]:
    return list(driven.out()["said"].to_pylist())


def test_members_move_in_order_and_before_the_update_of_the_event() -> None:
    driven = told("open a", "open b", "open c", "open b", "merge b c a", "see", "fire b")
    assert said(driven) == [
        "see: b=['open b', 'open b', 'open c', 'open a', 'merge b c a']",
        "b: open b, open b, open c, open a, merge b c a, fire b",
    ]


def test_a_merged_id_opens_a_new_set() -> None:
    driven = told("open a", "open b", "merge a b", "open b", "fire b")
    assert said(driven) == ["b: open b, fire b"]
    assert said(driven.end())[1:] == ["a: open a, open b, merge a b"]


def test_the_timer_of_the_one_stays_and_that_of_the_other_is_gone() -> None:
    driven = told("wait a", "+5s", "wait b", "+2s", "merge b a", "+4s")
    assert said(driven) == []
    assert said(driven.advance("4s")) == ["b: wait b, wait a, merge b a"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["open a", "merge a b"], "no set 'b' is open"),
        (["open a", "merge b a"], "no set 'b' is open"),
        (["open a", "open b", "fire b", "merge a b"], "no set 'b' is open"),
        (["open a", "open b", "merge a b b"], "give each set once"),
        (["open a", "merge a a"], "give each set once"),
    ],
)
def test_what_can_not_merge_is_said_and_changes_nothing(words: list[str], why: str) -> None:
    driven = told(*words, on_error="divert")
    (error,) = driven.out("errors").to_pylist()
    assert why in error["reason"]
    assert [line for line in said(driven.end()) if line.startswith("a")] == ["a: open a"]


def test_an_operator_without_merge_is_told() -> None:
    class Without(Words):
        merge = ll.Operator.merge

    driven = told("open a", "open b", "merge a b", op=Without, on_error="divert")
    assert "Without needs merge()" in driven.out("errors")["reason"][0].as_py()


def test_a_merge_that_fails_takes_its_set_with_it() -> None:
    class Failing(Words):
        def merge(self, acc: Any, other: Any) -> Any:
            raise ValueError("they do not fit")

    driven = told("open a", "open b", "merge a b", op=Failing, on_error="divert")
    (error,) = driven.out("errors").to_pylist()
    assert "they do not fit" in error["reason"]
    assert len(error["events"]) == 2  # of both sets
    assert said(driven.end()) == ["a: merge a b"]


def test_a_set_that_is_kept_goes_on_with_its_members() -> None:
    driven = told("open a", "keep a", "open a", "keep a").end()
    assert driven.out().to_pylist() == [
        {"said": "a: open a, keep a", "cause": "kept", "version": 1, "changed": True},
        {"said": "a: open a, keep a, open a, keep a", "cause": "kept", "version": 2, "changed": True},
        {"said": "a: open a, keep a, open a, keep a", "cause": "end", "version": 3, "changed": False},
    ]


def test_the_sets_of_one_key_are_found_without_looking_at_others() -> None:
    sets = OpenSets()
    for n in range(1000):
        sets["user", n, "session"] = Serial(n + 1)
    sets["all"] = Serial(2000)
    assert sets.beginning(("user", 7)) == [("user", 7, "session")]
    assert len(sets.beginning(("user",))) == 1000
    for n in range(1000):
        del sets["user", n, "session"]
    assert sets.beginning(("user", 7)) == sets.beginning(("user",)) == []
    assert not any(known for known in sets._prefixes.values())  # a key that is gone leaves nothing behind
    sets["user", 7, "next"] = Serial(2001)
    assert sets.beginning(("user", 7)) == [("user", 7, "next")]
