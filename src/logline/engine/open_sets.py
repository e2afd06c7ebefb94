"""The open sets of an operator by id, by how their ids begin, and which of them `assign` wants to merge (R7, R32).

An operator with a set for each key and session asks for the sets of one key, while a hundred thousand others are
open. So ids that are tuples are found by their first parts. The index of a length is made when somebody first asks
for prefixes of that length; an operator that never asks pays nothing for it.

    >>> sets = OpenSets()
    >>> sets["ann", 3] = Serial(1)
    >>> sets["bob", 5] = Serial(2)
    >>> sets["ann", 9] = Serial(3)
    >>> sets.beginning(("ann",))
    [('ann', 3), ('ann', 9)]
    >>> _ = sets.pop(("ann", 3))
    >>> sets.beginning(("ann",)), list(sets)
    ([('ann', 9)], [('bob', 5), ('ann', 9)])
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping

from logline.names import InsetId, Serial

_Prefix = tuple[object, ...]


class OpenSets(MutableMapping[InsetId, Serial]):
    """The serial of each open set, in the order in which they were opened."""

    __slots__ = ("_prefixes", "_serials")

    def __init__(self) -> None:
        self._serials: dict[InsetId, Serial] = {}
        self._prefixes: dict[int, dict[_Prefix, dict[InsetId, None]]] = {}
        """By length, then by prefix: the ids, in order."""

    def beginning(self, prefix: _Prefix) -> list[InsetId]:
        """The ids that are tuples and begin so, in the order in which their sets were opened."""
        length = len(prefix)
        if not length:
            return [inset for inset in self._serials if isinstance(inset, tuple)]
        known = self._prefixes.get(length)
        if known is None:
            known = self._prefixes[length] = {}
            for inset in self._serials:
                if isinstance(inset, tuple) and len(inset) >= length:
                    known.setdefault(inset[:length], {})[inset] = None
        return list(known.get(prefix, ()))

    def __getitem__(self, inset: InsetId) -> Serial:
        return self._serials[inset]

    def __setitem__(self, inset: InsetId, serial: Serial) -> None:
        self._serials[inset] = serial
        if self._prefixes and isinstance(inset, tuple):
            for length, known in self._prefixes.items():
                if len(inset) >= length:
                    known.setdefault(inset[:length], {})[inset] = None

    def __delitem__(self, inset: InsetId) -> None:
        del self._serials[inset]
        if self._prefixes and isinstance(inset, tuple):
            for length, known in self._prefixes.items():
                if len(inset) >= length:
                    sharing = known[inset[:length]]
                    del sharing[inset]
                    if not sharing:
                        del known[inset[:length]]

    def __iter__(self) -> Iterator[InsetId]:
        return iter(self._serials)

    def __len__(self) -> int:
        return len(self._serials)

    def get(self, inset: InsetId, default: Serial | None = None) -> Serial | None:  # type: ignore[override]
        """At the price of a dict: it is asked for every membership."""
        return self._serials.get(inset, default)


class Merges:
    """The merges that one `assign` asks for. They take effect when it has come to its end, so that one that raises
    has changed nothing.

    >>> merges = Merges({"a", "b", "c", "d"})
    >>> merges.ask("a", "b", "c")
    >>> merges.ask("d", "b")
    Traceback (most recent call last):
    ...
    ValueError: ctx.merge('d', 'b'): the set 'b' is merged into another one by now
    >>> merges.take(), merges.take()
    ([('a', 'b'), ('a', 'c')], [])
    """

    __slots__ = ("_gone", "_open", "_wanted")

    def __init__(self, open_sets: Collection[InsetId]) -> None:
        self._open = open_sets
        self._wanted: list[tuple[InsetId, InsetId]] = []
        self._gone: set[InsetId] = set()

    def ask(self, into: InsetId, *others: InsetId) -> None:
        """Checks a merge and remembers it."""
        said = f"ctx.merge({', '.join(map(repr, (into, *others)))})"
        for inset in (into, *others):
            if inset in self._gone:
                raise ValueError(f"{said}: the set {inset!r} is merged into another one by now")
            if inset not in self._open:
                raise ValueError(f"{said}: no set {inset!r} is open; ctx.open_sets() has those that are")
        if into in others or len(set(others)) < len(others):
            raise ValueError(f"{said}: give each set once")
        self._wanted += [(into, other) for other in others]
        self._gone.update(others)

    def take(self) -> list[tuple[InsetId, InsetId]]:
        """What was asked for, each as (into, other), in that order; nothing is left."""
        wanted, self._wanted = self._wanted, []
        self._gone.clear()
        return wanted
