"""A digest of an author's code: the `version` of an operator that was not given one.

The same in every process that runs the same code on the same Python: bytecode, constants and names count;
addresses, file names, line numbers and the order of sets do not. It follows the functions and classes that
the code uses as long as they are the author's; installed packages and the standard library have versions of
their own. Where a connector points to is not code: of sources and sinks only code and functions count.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logline.graph.authored import global_names, is_authored, is_ours
from logline.graph.connector import Sink, Source

_PLAIN = (str, bytes, int, float, complex, bool, types.NoneType, types.EllipsisType, date, timedelta, Enum)
_SHOWN = (pa.Schema, pa.DataType, pa.Field, pc.Expression)


def code_digest(obj: object) -> str:
    """Sixteen hex digits that change when the code of `obj` does."""
    return hashlib.sha256(_Walk({}).describe(obj).encode()).hexdigest()[:16]


class _Walk:
    """Turns values into text that depends on nothing but their code."""

    def __init__(self, seen: dict[int, int]) -> None:
        self.seen = seen
        self.held: list[object] = []  # an id must not be reused while we go by it

    def describe(self, value: Any) -> str:
        if isinstance(value, Enum):
            return _text("enum", type(value).__qualname__, value.name)
        if isinstance(value, _PLAIN):
            return _text(type(value).__name__, repr(value))
        if isinstance(value, _SHOWN):
            return _text(type(value).__name__, str(value))
        if id(value) in self.seen:
            return _text("again", str(self.seen[id(value)]))
        self.seen[id(value)] = len(self.seen)
        self.held.append(value)
        return self.compound(value)

    def compound(self, value: Any) -> str:
        if isinstance(value, types.CodeType):
            return self.code(value)
        if isinstance(value, list | tuple):
            return _text(type(value).__name__, *map(self.describe, value))
        if isinstance(value, set | frozenset):
            # Each member by itself: "seen before" would depend on the order of the set.
            return _text("set", *sorted(_Walk(dict(self.seen)).describe(member) for member in tuple(value)))
        if isinstance(value, Mapping):
            # A copy, as of sets: a running pipeline may be adding to what its code refers to.
            return _text("map", *(self.describe(part) for pair in tuple(value.items()) for part in pair))
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, types.MethodType):
            return _text("method", self.describe(value.__func__), self.describe(value.__self__))
        if isinstance(value, functools.partial):
            return _text("partial", *map(self.describe, (value.func, value.args, value.keywords)))
        if isinstance(value, property):
            return _text("property", *map(self.describe, (value.fget, value.fset)))
        if isinstance(value, staticmethod | classmethod):
            return _text(type(value).__name__, self.describe(value.__func__))
        if isinstance(value, type):
            return self.kind(value)
        if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
            return _text("name", value.__name__)
        if isinstance(value, Source | Sink):
            return _text("connector", self.describe(type(value)), *self.functions(value))
        return _text("object", self.describe(type(value)), *self.fields(value))

    def fields(self, value: Any) -> Iterator[str]:
        if dataclasses.is_dataclass(value):
            own: Mapping[str, Any] = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        else:
            own = getattr(value, "__dict__", {})
        # A foreign object (a compiled pattern, a model) is known by its type: its insides may hold addresses.
        if is_ours(type(value)) or is_authored(type(value)):
            yield from (_text(name, self.describe(part)) for name, part in sorted(own.items()))

    def functions(self, value: object) -> Iterator[str]:
        for name, part in sorted(getattr(value, "__dict__", {}).items()):
            if isinstance(part, types.FunctionType | types.MethodType | functools.partial):
                yield _text(name, self.describe(part))

    def function(self, fn: types.FunctionType) -> str:
        if not is_authored(fn):
            return _text("name", fn.__module__ or "", fn.__qualname__)
        used = [fn.__globals__[n] for n in sorted(set(global_names(fn.__code__))) if n in fn.__globals__]
        enclosed = [_contents(cell) for cell in fn.__closure__ or ()]
        parts = (fn.__code__, fn.__defaults__, fn.__kwdefaults__, enclosed, used)
        return _text("function", *map(self.describe, parts))

    def code(self, code: types.CodeType) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _text("code", code.co_code.hex(), repr(names), *map(self.describe, code.co_consts))

    def kind(self, kind: type) -> str:
        if not is_authored(kind):
            return _text("name", kind.__module__, kind.__qualname__)
        own = [
            _text(name, self.describe(part))
            for name, part in sorted(vars(kind).items())
            if _is_code(part) or not (name.startswith("_") and (name.endswith("__") or name == "_abc_impl"))
        ]
        return _text("class", kind.__qualname__, *map(self.describe, kind.__bases__), *own)


def _text(*parts: str) -> str:
    # With lengths, so that no two lists of parts read the same.
    return "(" + "".join(f"{len(part)}:{part}" for part in parts) + ")"


def _contents(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _is_code(value: object) -> bool:
    return isinstance(value, types.FunctionType | property | staticmethod | classmethod)
