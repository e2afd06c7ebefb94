"""How changes are put together. Each field of a structure of changes declares its rule, once:

    >>> @changes
    ... @dataclasses.dataclass(eq=False, repr=False)
    ... class Counts:
    ...     seen: list[str] = extend()
    ...     newest: dict[str, int] = update()
    ...     highest: int = maximum()

    >>> first, later = Counts(["a"], {"a": 1}, 3), Counts(["b"], {"a": 2}, 1)
    >>> merge(first, later)
    >>> first
    Counts(seen=['a', 'b'], newest={'a': 2}, highest=3)
    >>> changes_nothing(Counts())
    True

`merge`, `changes_nothing` and equality follow from the declarations, so that a new field is one line. A field without
a rule is refused when the class is made. What belongs to one subject is a structure of its own, a `Part`. Most of
the changes have nothing to say about most subjects, so a part is made when it is first used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")
_RULE = "rule"


class Rule(NamedTuple):
    """What a field declares."""

    merge: Callable[[Any, str, Any], None] | None
    """(structure, name of the field, value of the later one); None if the owner of the structure merges it."""
    counts: bool
    """Whether a value that is not the default is a change; other fields say more about one."""
    into: str | None
    """The field of the image whose entries are replaced by these, if that is all that they mean."""


def _field(default: Any, merge: Callable[[Any, str, Any], None] | None, counts: bool, into: str | None = None) -> Any:
    metadata = {_RULE: Rule(merge, counts, into)}
    if isinstance(default, type):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _extend(mine: Any, name: str, later: Any) -> None:
    getattr(mine, name).extend(later)


def _update(mine: Any, name: str, later: Any) -> None:
    getattr(mine, name).update(later)


def _gather(mine: Any, name: str, later: Any) -> None:
    known = getattr(mine, name)
    for key, values in later.items():
        known.setdefault(key, []).extend(values)


def _minimum(mine: Any, name: str, later: Any) -> None:
    known = getattr(mine, name)
    for key, value in later.items():
        known[key] = min(value, known.get(key, value))


def _maximum(mine: Any, name: str, later: Any) -> None:
    setattr(mine, name, max(getattr(mine, name), later))


def _raise(mine: Any, name: str, later: Any) -> None:
    setattr(mine, name, later)


def _last(mine: Any, name: str, later: Any) -> None:
    setattr(mine, name, later)


def extend(*, counts: bool = True) -> Any:
    """A list; the later one's items come after."""
    return _field(list, _extend, counts)


def update(*, into: str | None = None, counts: bool = True) -> Any:
    """A dict; the later one's values replace. `into` is for fields that replace entries of the image and mean nothing
    else: the image and the stores need no code for them."""
    return _field(dict, _update, counts, into)


def gather(*, counts: bool = True) -> Any:
    """A dict of lists; the later one's items come after, by key."""
    return _field(dict, _gather, counts)


def minima(*, counts: bool = True) -> Any:
    """A dict of numbers; the lower one stays, by key."""
    return _field(dict, _minimum, counts)


def maximum(*, counts: bool = True) -> Any:
    """A number that never goes back."""
    return _field(0, _maximum, counts)


def last() -> Any:
    """A value, or None for no change; the later one wins."""
    return _field(None, _last, True)


def either() -> Any:
    """A flag that stays once it is raised."""
    return _field(False, _raise, True)


def own(default: Any, *, counts: bool) -> Any:
    """A rule of its own: whoever owns the structure merges this field by hand, or not at all."""
    return _field(default, None, counts)


class Part(Generic[T]):
    """A structure within a structure, made when it is first used. From then on it is a plain attribute."""

    def __init__(self, make: type[T]) -> None:
        self.make = make
        self._nothing = make()

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def peek(self, whole: object) -> T:
        """The part, to be read only; one that was never used is not made. `Step.reads.peek(step).staged`"""
        found: T = whole.__dict__.get(self._name, self._nothing)
        return found

    @overload
    def __get__(self, whole: None, owner: type) -> Part[T]: ...

    @overload
    def __get__(self, whole: object, owner: type) -> T: ...

    def __get__(self, whole: object | None, owner: type) -> T | Part[T]:
        if whole is None:
            return self
        made = whole.__dict__[self._name] = self.make()
        return made


class _Plan(NamedTuple):
    """What follows from the declarations of a class."""

    values: Callable[[Any], tuple[Any, ...]]
    """Of the fields that `merges` is about."""
    merges: tuple[tuple[str, Callable[[Any, str, Any], None]], ...]
    counting: Callable[[Any], tuple[Any, ...]]
    optional: tuple[str, ...]
    """Fields where None is no change and anything else is."""
    parts: tuple[str, ...]
    fields: tuple[str, ...]


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda found: (getattr(found, names[0]),)) if names else (lambda found: ())


def changes(cls: type[T]) -> type[T]:
    """Makes a structure of changes of a dataclass whose fields all have rules."""
    rules: dict[str, Rule] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if _RULE not in field.metadata:
            raise TypeError(f"{cls.__name__}.{field.name} declares no rule for merging")
        rules[field.name] = field.metadata[_RULE]
    optional = [name for name, rule in rules.items() if rule.merge is _last]
    plain = [name for name, rule in rules.items() if rule.merge is not None and name not in optional]
    counting = [name for name, rule in rules.items() if rule.counts and name not in optional]
    plan = _Plan(
        _getter(plain),
        tuple((name, merge) for name in plain if (merge := rules[name].merge) is not None),
        _getter(counting),
        tuple(optional),
        tuple(name for name, value in vars(cls).items() if isinstance(value, Part)),
        tuple(rules),
    )
    for name, value in (("_plan", plan), ("__eq__", _equal), ("__repr__", _shown), ("__hash__", None)):
        setattr(cls, name, value)
    return cls


def merge(mine: Any, later: Any) -> None:
    """Every field of `later` after what is here, by its rule."""
    plan: _Plan = mine._plan
    for (name, rule), value in zip(plan.merges, plan.values(later), strict=True):
        if value:
            rule(mine, name, value)
    there = later.__dict__
    for name in plan.optional:
        if there[name] is not None:
            setattr(mine, name, there[name])
    for name in plan.parts:
        if name in there:
            merge(getattr(mine, name), there[name])


def changes_nothing(found: Any) -> bool:
    """Whether every field that counts is as it was made."""
    plan: _Plan = found._plan
    if any(plan.counting(found)):
        return False
    there = found.__dict__
    for name in plan.optional:
        if there[name] is not None:
            return False
    for name in plan.parts:
        part = there.get(name)
        if part is not None and not changes_nothing(part):
            return False
    return True


def replacing(cls: type) -> list[tuple[str | None, str, str]]:
    """The fields that replace entries of the image: part (None for the structure itself), field, image's field."""
    found: list[tuple[str | None, str, str]] = []
    for field in dataclasses.fields(cls):
        into = field.metadata[_RULE].into
        if into is not None:
            found.append((None, field.name, into))
    for name, part in vars(cls).items():
        if isinstance(part, Part):
            found += [(name, field, into) for _, field, into in replacing(part.make)]
    return found


def _equal(mine: Any, other: Any) -> Any:
    if type(other) is not type(mine):
        return NotImplemented
    plan: _Plan = mine._plan
    return all(getattr(mine, name) == getattr(other, name) for name in (*plan.fields, *plan.parts))


def _shown(found: Any) -> str:
    """Only what is not as it was made."""
    plan: _Plan = found._plan
    there = found.__dict__
    empty = type(found)()
    shown = {name: there[name] for name in plan.fields if there[name] != getattr(empty, name)}
    shown.update({name: there[name] for name in plan.parts if name in there and there[name] != getattr(empty, name)})
    return f"{type(found).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"
