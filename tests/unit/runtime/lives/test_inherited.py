"""Answers that an operator which is made anew takes over from its earlier generations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from logline.engine.sets import Answer
from logline.names import InstanceName, Serial
from logline.runtime.lives.inherited import InheritedAnswers, Inherits

OLD, NEW = InstanceName("ask"), InstanceName("ask@2")


def journal(done: list[Answer], due: list[Answer]) -> Any:
    """A reader: each answer of a set of its own."""
    return SimpleNamespace(
        history=lambda: [SimpleNamespace(serial=answer.serial) for answer in done],
        answers=lambda serial: [answer for answer in done if answer.serial == serial],
        image=lambda: SimpleNamespace(answers={answer.serial: [answer] for answer in due}),
    )


def answer(serial: int, fn: str, value: bytes, row: int = -1, n: int = 0) -> Answer:
    return Answer(Serial(serial), row, n, fn, "digest", value)


def inherited(own: Any, old: Any, *, rows: bool = True) -> InheritedAnswers:
    return InheritedAnswers(Inherits((OLD,), rows), NEW, {OLD: old, NEW: own}.__getitem__)


def test_each_answer_is_used_once_in_the_order_in_which_they_were_given() -> None:
    old = journal([answer(1, "dice", b"6"), answer(2, "dice", b"1")], [answer(3, "dice", b"4")])
    found = inherited(journal([], []), old)
    assert [found.take("dice", "digest") for _ in range(4)] == [b"6", b"1", b"4", None]
    assert found.take("dice", "another") is None
    assert found.take("coin", "digest") is None


def test_a_further_life_does_not_use_again_what_the_first_one_has_used() -> None:
    old = journal([answer(1, "dice", b"6"), answer(2, "dice", b"1")], [])
    used = journal([answer(1, "dice", b"6")], [])
    assert inherited(used, old).take("dice", "digest") == b"1"


def test_rows_of_other_code_are_made_anew_and_their_calls_are_not() -> None:
    old = journal([answer(1, "score", b"row", row=0), answer(2, "ask", b"paid", row=0, n=1)], [])
    found = inherited(journal([], []), old, rows=False)
    assert found.take("score", "digest") is None
    assert found.take("ask", "digest") == b"paid"
