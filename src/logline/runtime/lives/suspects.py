"""Suspects: input sets that kill their process again and again, of operators whose `on_error` is not `stop`.

An exception says which set it is about; a process that is killed (out of memory, a crash in native code) says
nothing. So a life that follows a crash writes down which set is in generation, as a crash hint that outlives it. If
this life dies too, the next one finds the set there and counts. After `DEATHS` deaths in the same set it raises
`KilledItsProcess` instead of calling `generate`. To the protocol that is a failed set like any other: what `on_error`
makes of it is one step (R1), nobody counts on more than that the set is due (R6), and a diverted one keeps its
members (R12). Recovery does not need the hint: one that is lost costs a few more deaths.

A first life writes no hint, so that only operators that crash pay for it. Where several sets were in generation
nobody knows which of them it was: none is counted, and the next life takes one set at a time until all of them are
through.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import NamedTuple

from logline.engine.spec import InstanceSpec
from logline.errors import KilledItsProcess
from logline.names import InsetId, InstanceName, Serial
from logline.store.seam import CrashHint, Store

DEATHS = 3
"""Lives that may end in the same set; the first one of a run, which writes no hint, does not count."""


class Known(NamedTuple):
    """What a crash hint says. Sets are named by their members: a serial may be given to another set after a crash."""

    suspect: str = ""
    deaths: int = 0
    inside: tuple[str, ...] = ()
    """The sets in generation."""
    doubtful: tuple[str, ...] = ()
    """Those that were in generation with others when a life before died."""

    def blame(self, *, sure: bool) -> Known:
        """What is known once the life that wrote this is dead; `sure` if nothing else of its process may have
        killed it.

        >>> Known(inside=("a",)).blame(sure=True)
        Known(suspect='a', deaths=1, inside=(), doubtful=())
        >>> Known("a", 1, inside=("a",)).blame(sure=True).deaths
        2
        >>> Known(inside=("a", "b")).blame(sure=True)
        Known(suspect='', deaths=0, inside=(), doubtful=('a', 'b'))
        """
        if not self.inside:
            return self
        if not sure or len(self.inside) > 1:
            return Known(self.suspect, self.deaths, (), tuple(dict.fromkeys(self.doubtful + self.inside)))
        (one,) = self.inside
        return Known(one, self.deaths + 1 if one == self.suspect else 1, (), self.doubtful)


class Suspects:
    """The crash hint of one instance, as the life that follows a crash writes it."""

    def __init__(self, operator: InstanceName, note: CrashHint, known: Known) -> None:
        self._operator = operator
        self._note = note
        self._suspect, self._deaths = known.suspect, known.deaths
        self._doubtful = dict.fromkeys(known.doubtful)
        self._inside: dict[Serial, str] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._write()  # a death outside of any set, in recovery say, is not counted

    @property
    def alone(self) -> bool:
        """Whether sets are to be taken one at a time, so that a death is about one. It is so from the beginning, or
        never; and no longer once the suspect was set aside or came through."""
        return bool(self._suspect or self._doubtful)

    def begin(self, serial: Serial, inset: InsetId, name: str) -> None:
        """Before `generate`. Raises KilledItsProcess if the set has had its deaths; that forgets them, so that it can
        be retried when its code is mended."""
        with self._lock:
            if self._closed:
                return
            deaths = self._deaths
            if name == self._suspect and deaths >= DEATHS:
                self._suspect, self._deaths = "", 0
                self._doubtful.pop(name, None)
                self._write()
                raise KilledItsProcess(
                    f"input set {inset!r} of operator {self._operator!r} killed its process {deaths} times: "
                    "it is set aside"
                )
            self._inside[serial] = name
            self._write()

    def end(self, serial: Serial) -> None:
        """It is generated, or raised an exception: either way it did not kill."""
        with self._lock:
            name = self._inside.pop(serial, None)
            if name is None or self._closed:
                return
            if name == self._suspect:
                self._suspect, self._deaths = "", 0
            self._doubtful.pop(name, None)
            self._write()

    def close(self, *, in_order: bool) -> None:
        """Nothing stays of a life that ends in order; one that was fenced off was not killed by its sets."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._inside.clear()
            if in_order:
                self._note.drop()
            else:
                self._write()
                self._note.close()

    def _write(self) -> None:
        inside = tuple(self._inside.values())
        self._note.write(json.dumps(Known(self._suspect, self._deaths, inside, tuple(self._doubtful))))


def watch(store: Store, specs: Iterable[InstanceSpec], life: int) -> dict[InstanceName, Suspects]:
    """Those of a process, when its life begins. With sets of several operators in generation nobody knows whose it
    was that killed it."""
    notes = {spec.name: store.crash_hint(spec.name) for spec in specs if spec.on_error != "stop"}
    if life == 0:
        for note in notes.values():
            note.drop()  # of a run whose driver was killed
        return {}
    known = {name: _read(note) for name, note in notes.items()}
    sure = sum(bool(one.inside) for one in known.values()) == 1
    return {name: Suspects(name, notes[name], one.blame(sure=sure)) for name, one in known.items()}


def pardon(store: Store, specs: Iterable[InstanceSpec]) -> None:
    """Somebody has killed a life on purpose: the sets that it was at have not."""
    for spec in specs:
        if spec.on_error != "stop":
            note = store.crash_hint(spec.name)
            known = _read(note)
            if known.inside:
                note.write(json.dumps(known._replace(inside=())))
            note.close()


def _read(note: CrashHint) -> Known:
    try:
        suspect, deaths, inside, doubtful = json.loads(note.read())
        return Known(str(suspect), int(deaths), tuple(map(str, inside)), tuple(map(str, doubtful)))
    except (ValueError, TypeError):  # none, or half of one
        return Known()
