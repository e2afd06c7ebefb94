"""Tells an author's own code from installed code, which has a version of its own, and where a pipeline is made."""

from __future__ import annotations

import dis
import functools
import inspect
import os
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
    return _is_authored_module(module_of(value))


def _is_authored_module(module: str) -> bool:
    top = module.partition(".")[0]
    if top == "__main__":
        return True
    return not (top in ("", "logline") or top in sys.stdlib_module_names or _is_installed(module))


def is_ours(value: Any) -> bool:
    """Whether a class or function is of Logline itself."""
    return module_of(value).partition(".")[0] == "logline"


def place_of(frame: types.FrameType | None) -> str | None:
    """FILE[:NAME]: the author's innermost file on the stack. NAME is the function there, if it can be called without
    arguments. None if no code there is in a file: a notebook, an interactive session."""
    while frame is not None:
        path = frame.f_code.co_filename
        if _is_authored_module(str(frame.f_globals.get("__name__") or "")) and _is_script(path):
            name = frame.f_code.co_name
            return os.path.abspath(path) + (f":{name}" if _makes_it(frame.f_globals.get(name), frame.f_code) else "")
        frame = frame.f_back
    return None


def _is_script(path: str) -> bool:
    return path.endswith(".py") and "-packages" not in path and os.path.isfile(path)


def _makes_it(function: object, code: types.CodeType) -> bool:
    if not isinstance(function, types.FunctionType) or function.__code__ is not code:
        return False
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


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
