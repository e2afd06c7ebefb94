"""The public names of `logline`, each imported when it is first used.

Importing all of them takes 0.4 s, mostly for Arrow; `logline --help` and a worker that is started again should not
wait for that. `__init__.pyi` says what there is and where it comes from: editors and type checkers read it, and so
does this module, so that a name has one place.

>>> import logline
>>> logline.Pipeline
<class 'logline.pipeline.Pipeline'>
>>> logline.Pipelin
Traceback (most recent call last):
AttributeError: module 'logline' has no attribute 'Pipelin'
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from typing import Any


def _listed() -> dict[str, str]:
    """Name -> the module that it is imported from."""
    tree = ast.parse(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8"))
    return {
        alias.name: str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }


_PLACES = _listed()
names = sorted(_PLACES, key=lambda name: (not name[0].isupper(), name))


def __getattr__(name: str) -> Any:
    module = _PLACES.get(name)
    if module is None:
        from logline.planned import missing

        raise missing("ll", name, f"module 'logline' has no attribute {name!r}")
    if module == "logline":
        found: Any = importlib.import_module(f"logline.{name}")
    else:
        found = getattr(importlib.import_module(module), name)
    setattr(sys.modules["logline"], name, found)
    return found


def __dir__() -> list[str]:
    return sorted({*vars(sys.modules["logline"]), *names})
