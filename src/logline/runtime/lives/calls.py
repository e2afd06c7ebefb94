"""The calls of one input set over all of its tries: each has one answer, whichever try it came to (R9).

A try that is given up (it took longer than its time-out, say) may still run, on a thread that nobody can stop. So:

- What it would ask from then on is not asked: the call raises.
- What it handed in before is committed. A further try that asks the same waits for that commit and gets that answer.
- An answer that comes back later is kept too, for the try that comes after, as long as there can be one. If a further
  try has its own answer by then, or has asked something else, the late one is dropped.

Contexts on several threads share one `SetCalls`.

    >>> from logline.names import Serial
    >>> set_of_calls, first = SetCalls(), Attempt()
    >>> slow, quick = Attempt(first), Attempt(first)
    >>> set_of_calls.asks((0, 1), "module.ask", "digest")
    >>> slow.end()
    >>> late = Answer(Serial(7), 0, 1, "module.ask", "digest", b"paid for")
    >>> set_of_calls.hand_in(late, slow) is late             # nobody else has an answer
    True
    >>> other = Answer(Serial(7), 0, 1, "module.ask", "digest", b"paid for again")
    >>> set_of_calls.hand_in(other, quick) is late           # one answer, for all tries
    True
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from logline.engine.sets import CARRIED, Answer, bare

Call = tuple[int, int]
"""The row, and which call of that row it is."""
Waits = Callable[[bool], None]


class Attempt:
    """One try of some user code, within a larger one: a try of a row, a row, a try of the whole set."""

    __slots__ = ("_over", "_waits", "_within")

    def __init__(self, within: Attempt | None = None, waits: Waits | None = None) -> None:
        """`waits` hears when a call begins to wait for the log, and when it goes on."""
        self._over = False
        self._within = within
        self._waits: tuple[Waits, ...] = () if within is None else within._waits
        if waits is not None:
            self._waits = (*self._waits, waits)

    @contextmanager
    def waiting_for_log(self) -> Iterator[None]:
        """Around what is not the user code's own time."""
        for waits in self._waits:
            waits(True)
        try:
            yield
        finally:
            for waits in self._waits:
                waits(False)

    def end(self) -> None:
        """It is over, and all that is within it."""
        self._over = True

    @property
    def over(self) -> bool:
        """Whether nothing may be asked for it any more."""
        return self._over or (self._within is not None and self._within.over)

    @property
    def may_come_again(self) -> bool:
        """Whether another one may come in its place."""
        return self._within is not None and not self._within.over


class SetCalls:
    """What was asked for one set, and the answers."""

    __slots__ = ("_answers", "_asked", "_carried", "_lock", "_pending", "attempt")

    def __init__(self) -> None:
        self.attempt = Attempt()
        """The try of `generate` that is under way."""
        self._answers: dict[Call, Answer] = {}
        self._asked: dict[Call, tuple[str, str]] = {}
        """The function and the arguments that the newest try has asked with."""
        self._carried: dict[int, list[Answer]] = {}
        """By row: the answers of a set that failed, whose retry this one is. They are found by the question."""
        self._pending: set[Call] = set()
        """Answers that are handed in and not committed yet."""
        self._lock = threading.Lock()

    def begin(self, answers: Sequence[Answer]) -> None:
        """Another try of `generate`; these are the answers that the log has."""
        self.attempt.end()
        self.attempt = Attempt()
        if answers:
            with self._lock:
                own = (answer for answer in answers if answer.n < CARRIED)
                self._answers.update(((answer.row, answer.n), answer) for answer in own)
                self._carried = {}
                for answer in sorted(answer for answer in answers if answer.n >= CARRIED):
                    self._carried.setdefault(answer.row, []).append(answer)

    def find(self, call: Call) -> Answer | None:
        """The answer of a call, committed or on its way."""
        return self._answers.get(call)

    @property
    def carries(self) -> bool:
        """Whether this is the retry of a set that was given answers."""
        return bool(self._carried)

    def find_carried(self, row: int, fn: str, digest: str, before: int) -> Answer | None:
        """The answer that an earlier set of the same row was given to this question, asked so many times before."""
        same = [a for a in self._carried.get(row, ()) if (bare(a.fn), a.digest) == (bare(fn), digest)]
        return same[before] if before < len(same) else None

    def of_row(self, row: int) -> list[Answer]:
        """All answers of a row, for a retry of the row."""
        with self._lock:
            own = [answer for (at, _), answer in self._answers.items() if at == row]
        return [*own, *self._carried.get(row, ())]

    def is_pending(self, call: Call) -> bool:
        """Whether its answer is on its way into the log."""
        return call in self._pending

    def asks(self, call: Call, fn: str, digest: str) -> None:
        """A try is about to make this call."""
        with self._lock:
            self._asked[call] = fn, digest

    def hand_in(self, answer: Answer, attempt: Attempt) -> Answer | None:
        """The answer that counts for this call: this one, which is to be committed then, or one that came before it.
        None if this one is of no use to anybody."""
        call = answer.row, answer.n
        with self._lock:
            known = self._answers.get(call)
            question = (bare(answer.fn), answer.digest)
            if known is not None:
                return known if (bare(known.fn), known.digest) == question else None
            asked = self._asked.get(call, ("", ""))
            if attempt.over and (not attempt.may_come_again or (bare(asked[0]), asked[1]) != question):
                return None
            self._answers[call] = answer
            self._pending.add(call)
            return answer

    def rows_answered(self) -> int | None:
        """How many rows have their answer, that of the first call made for each; None if no row has made a call."""
        with self._lock:
            if all(row < 0 for row, _ in (*self._asked, *self._answers)):
                return None
            return sum(row >= 0 and n == 0 for row, n in self._answers)

    def unanswered(self) -> dict[Call, str]:
        """Calls that were made and have no answer yet, with the function that was called."""
        with self._lock:
            return {call: fn for call, (fn, _) in self._asked.items() if call not in self._answers}

    def committed(self, answer: Answer) -> None:
        """The answer is durable."""
        with self._lock:
            self._pending.discard((answer.row, answer.n))
