"""The user's objects as no life has touched them: each life of an instance in one process has its own.

A life that was dropped may still be in the middle of a write, or of a read. If the next one had the same sink, it
would open a second connection into it while the first is in use, and the half of a transaction that the old life left
would be committed with the new life's (R8). In other engines each life has a process, and with it copies.
"""

from __future__ import annotations

import logging
import pickle
import sys
from copy import deepcopy
from dataclasses import replace
from typing import TypeVar

from logline.graph.shipping import ship
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
