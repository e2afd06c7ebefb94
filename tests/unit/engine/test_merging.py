"""Fields that declare how they are merged."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from logline.engine.merging import (
    Part,
    changes,
    changes_nothing,
    either,
    extend,
    gather,
    last,
    maximum,
    merge,
    minima,
    own,
    replacing,
    update,
)


@changes
@dataclass(eq=False, repr=False)
class Inner:
    by_key: dict[str, list[int]] = gather()
    lowest: dict[str, int] = minima(counts=False)


@changes
@dataclass(eq=False, repr=False)
class Outer:
    number: int = own(0, counts=False)
    items: list[int] = extend()
    newest: dict[str, int] = update(into="newest_of_all")
    top: int = maximum()
    value: bytes | None = last()
    flag: bool = either()

    inner = Part(Inner)


def test_each_field_is_merged_by_its_rule() -> None:
    first = Outer(1, [1], {"a": 1, "b": 1}, 5, b"old", True)
    later = Outer(2, [2], {"a": 2}, 3, b"", False)
    first.inner.by_key["x"] = [1]
    first.inner.lowest.update(x=1, y=7)
    later.inner.by_key.update(x=[2], y=[3])
    later.inner.lowest.update(x=2, y=4, z=9)
    merge(first, later)
    wanted = Outer(1, [1, 2], {"a": 2, "b": 1}, 5, b"", True)  # the owner merges `number`, or nobody does
    wanted.inner.by_key.update(x=[1, 2], y=[3])
    wanted.inner.lowest.update(x=1, y=4, z=9)
    assert first == wanted


def test_nothing_is_shared_with_the_later_one() -> None:
    first, later = Outer(), Outer(items=[1], newest={"a": 1})
    later.inner.by_key["x"] = [1]
    merge(first, later)
    later.items.append(2)
    later.newest["a"] = 2
    later.inner.by_key["x"].append(2)
    assert (first.items, first.newest, first.inner.by_key) == ([1], {"a": 1}, {"x": [1]})


@pytest.mark.parametrize("change", [{"items": [1]}, {"newest": {"a": 0}}, {"top": 1}, {"value": b""}, {"flag": True}])
def test_a_field_that_counts_is_a_change(change: dict[str, object]) -> None:
    assert not changes_nothing(Outer(**change))  # type: ignore[arg-type]


def test_a_field_that_does_not_count_is_no_change() -> None:
    found = Outer(number=3)
    found.inner.lowest["x"] = 1
    assert changes_nothing(found)
    found.inner.by_key["x"] = []
    assert not changes_nothing(found)


def test_a_part_is_made_when_it_is_used() -> None:
    found = Outer()
    assert "inner" not in vars(found)
    assert changes_nothing(found) and "inner" not in vars(found)
    assert found.inner is found.inner
    assert found == Outer()
    assert repr(found) == "Outer()"


def test_a_field_without_a_rule_is_refused() -> None:
    @dataclass
    class Forgotten:
        items: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match=r"Forgotten\.items declares no rule for merging"):
        changes(Forgotten)


def test_what_replaces_entries_of_the_image() -> None:
    assert replacing(Outer) == [(None, "newest", "newest_of_all")]
