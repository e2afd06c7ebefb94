"""Secrets by reference: resolved in the worker, never logged.

What travels with the pipeline is the name of an environment variable. The value is read where it is
needed and is in no pickle, log, message or `repr`:

    >>> env("PG_DSN")
    env('PG_DSN')
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from logline.errors import OptionError


@dataclass(frozen=True, slots=True)
class Secret:
    """A reference to a value that only the worker sees."""

    variable: str

    def resolve(self) -> str:
        """The value, from the environment of this process. Keep it no longer than needed."""
        try:
            return os.environ[self.variable]
        except KeyError:
            raise OptionError(
                f"the environment variable {self.variable!r} is not set: "
                "set it where the operator runs (for a Spark job, on the executors)"
            ) from None

    def __repr__(self) -> str:
        return f"env({self.variable!r})"


def refers_to_secret(thing: object, depth: int = 4) -> bool:
    """Whether a connector has a secret among its settings, or among those of its parts."""
    if isinstance(thing, Secret):
        return True
    if depth == 0 or isinstance(thing, str | bytes | int | float):
        return False
    parts: Iterable[object]
    if isinstance(thing, Mapping):
        parts = thing.values()
    else:
        parts = (
            thing if isinstance(thing, list | tuple) else vars(thing).values() if hasattr(thing, "__dict__") else ()
        )
    return any(refers_to_secret(part, depth - 1) for part in list(parts))


def env(variable: str) -> Secret:
    """A secret that is read from an environment variable, in the worker."""
    given: object = variable  # whatever the type checker was told
    if not isinstance(given, str) or not given or "=" in given:
        # The value is not repeated: somebody may have passed the secret itself.
        raise OptionError("env() takes the name of an environment variable, for example env('PG_DSN')")
    return Secret(variable)
