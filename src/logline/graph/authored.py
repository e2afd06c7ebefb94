"""Tells an author's own code from installed code, which has a version of its own."""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

FILE_MODULE = "__pipeline__"
"""The module as which the command line loads a pipeline's file. To the log it is the same as `__main__`, so that
a run begun with `python sales.py` goes on with `logline run sales.py`."""


def module_of(value: Any) -> str:
    """The module of a class or function, as the log remembers it."""
    module = str(getattr(value, "__module__", None) or "")
    return "__main__" if module == FILE_MODULE else module


def is_authored(value: Any) -> bool:
    """Whether a class or function is the author's: not of Python, of Logline or of an installed package."""
    module = module_of(value)
    top = module.partition(".")[0]
    if top == "__main__":
        return True
    return not (top in ("", "logline") or top in sys.stdlib_module_names or _is_installed(module))


def is_ours(value: Any) -> bool:
    """Whether a class or function is of Logline itself."""
    return module_of(value).partition(".")[0] == "logline"


def global_names(code: types.CodeType) -> Iterator[str]:
    """The names that a function looks up in its module, also from the functions within it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):  # co_names has attributes too
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from global_names(constant)


@functools.lru_cache(maxsize=1024)
def _is_installed(module: str) -> bool:
    path = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in path or "dist-packages" in path
