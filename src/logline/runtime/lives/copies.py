"""The user's objects as no life has touched them: each life of an instance in one process has its own.

A life that was dropped may still be in the middle of a write, or of a read. If the next one had the same sink, it
would open a second connection into it while the first is in use, and the half of a transaction that the old life left
would be committed with the new life's (R8). In other engines each life has a process, and with it copies.
"""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from threading import Lock
from typing import TypeVar

from logline.graph.shipping import ship
from logline.names import InstanceName
from logline.runtime.lives.instances import Instance

T = TypeVar("T")
logger = logging.getLogger("logline")


class Pristine:
    """Copies of an instance's objects, made before its first life begins."""

    def __init__(self, instance: Instance) -> None:
        self._op = copied(instance.op)
        self._source = _copy(instance.source)
        self._sinks = {target: _copy(sink) for target, sink in (instance.sinks or {}).items()}

    def renew(self, instance: Instance) -> Instance:
        """The instance with objects for one more life."""
        sinks = {}
        for target, sink in (instance.sinks or {}).items():
            sinks[target] = self._another(f"sink {str(target)!r}", instance, self._sinks[target], sink)
        source = instance.source
        if source is not None:
            source = self._another("source", instance, self._source, source)
        return replace(
            instance, op=copied(self._op), source=source, sinks=sinks if instance.sinks else instance.sinks
        )

    @staticmethod
    def _another(what: str, instance: Instance, untouched: T | None, used: T) -> T:
        found = _copy(untouched)
        if found is None:
            logger.warning(
                "the %s of %s can't be copied: the new life shares it with the one before. Make connections, locks "
                "and the like in open(), not in __init__()",
                what,
                instance.spec.name,
            )
            return used
        return found


class Loan:
    """The user's objects of one run. Another run of the same pipeline that begins meanwhile in this process gets
    copies that nobody has touched: a sink has one scope, and an operator the event loop of one run."""

    def __init__(self, instances: Mapping[InstanceName, Instance]) -> None:
        with _lent_lock:
            self.instances = {name: _untouched(one) for name, one in instances.items()}
            self.pristine = {name: Pristine(one) for name, one in self.instances.items()}
            self._ids = []
            for name, one in self.instances.items():
                for part in _parts(one):
                    self._ids.append(id(part))
                    _lent.setdefault(id(part), (part, self.pristine[name]))

    def end(self) -> None:
        """The run is over: the next one may have the objects themselves."""
        with _lent_lock:
            for one in self._ids:
                _lent.pop(one, None)
            self._ids.clear()


_lent: dict[int, tuple[object, Pristine]] = {}
"""What a run of this process has, by its id; the object is held, so that no other gets that id."""
_lent_lock = Lock()


def _parts(instance: Instance) -> list[object]:
    parts: list[object] = [instance.op, instance.source, *(instance.sinks or {}).values()]
    return [part for part in parts if part is not None]


def _untouched(instance: Instance) -> Instance:
    lent = next((_lent[id(part)][1] for part in _parts(instance) if id(part) in _lent), None)
    return instance if lent is None else lent.renew(instance)


def _copy(part: T | None) -> T | None:
    """None also for what can't be copied: it may hold a lock or a connection, which only matters in a restart."""
    try:
        return _deep(part)
    except Exception:
        return None


def copied(op: T) -> T:
    """A copy of an operator. What can be shipped and not copied is copied as if it were shipped."""
    try:
        return _deep(op)
    except Exception:
        copy: T = pickle.loads(ship(op))
        return copy


def _deep(part: T) -> T:
    """A copy, in which modules are what they are."""
    return deepcopy(part, {id(module): module for module in list(sys.modules.values())})
