"""Answers that an operator which is made anew takes over from its earlier generations, so that nothing is paid twice.

The sets of another generation are other sets, so an answer is found by its question: the function and the arguments.
Each answer is used once, in the order in which they were given; what this generation has answers to already, in its
own journal, is left out. Where the code of the operator is another one, the rows of `map_rows` are made anew: what
its function made is no answer of the outside, only what it asked with `ctx.call` is.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logline.engine.sets import Answer, bare
from logline.names import InstanceName
from logline.store.seam import Reader

Question = tuple[str, str]
"""The function, and a digest of its arguments."""


class Inherits(NamedTuple):
    """From whom an instance takes answers over."""

    former: tuple[InstanceName, ...]
    """Its earlier generations, the oldest first."""
    rows: bool
    """Whether what the function of a `map_rows` made counts too: its code is the same."""


class InheritedAnswers:
    """The answers of earlier generations, read when one is first asked for. Any thread may ask."""

    def __init__(self, inherits: Inherits, own: InstanceName, read: Callable[[InstanceName], Reader]) -> None:
        self._inherits = inherits
        self._own = own
        self._read = read
        self._lock = threading.Lock()
        self._known: dict[Question, deque[bytes]] | None = None

    def take(self, fn: str, digest: str) -> bytes | None:
        """The next answer to this question; None if there is none, or none any more."""
        with self._lock:
            if self._known is None:
                self._known = self._load()
            found = self._known.get((bare(fn), digest))
            return found.popleft() if found else None

    def _load(self) -> dict[Question, deque[bytes]]:
        used = Counter((bare(answer.fn), answer.digest) for answer in _answers(self._read(self._own)))
        found: dict[Question, deque[bytes]] = {}
        for instance in self._inherits.former:
            for answer in _answers(self._read(instance)):
                question = (bare(answer.fn), answer.digest)
                if answer.row >= 0 and answer.n == 0 and not self._inherits.rows:
                    continue
                if used[question]:
                    used[question] -= 1
                else:
                    found.setdefault(question, deque()).append(answer.value)
        return found


def _answers(reader: Reader) -> Iterator[Answer]:
    """All that a journal has: of sets that are done, as far as lineage keeps them, and of those that are not."""
    for done in reader.history():
        yield from reader.answers(done.serial)
    for answers in reader.image().answers.values():
        yield from answers
