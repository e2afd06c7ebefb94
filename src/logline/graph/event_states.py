"""How an operator's event states are written to the log (R22), as far as its definition says.

An operator says it in one of three ways, and the first that it has counts:

    encode(acc), decode(data)        its own bytes, as ready-made operators have
    update(...) -> Totals            a declared type that msgspec knows: a Struct, a dataclass, list[int], ...
    anything else                    plain values and Arrow tables, exactly (`engine/event_state.py`)

    >>> class Counts(Operator):
    ...     def update(self, inset, acc, event) -> dict[str, int]: ...
    >>> form_of("counts", Counts()).layout
    'typed dict[str, int]'
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

import msgspec
import pyarrow as pa

from logline.errors import StateError
from logline.graph.operator import Operator
from logline.graph.states import state_fields, unknown_types

REMEDY = (
    "declare its type as the result of update(), a dataclass or msgspec.Struct of types that msgspec knows, "
    "or define encode(self, acc) -> bytes and decode(self, data)"
)


class Form(NamedTuple):
    """The way, and what goes with it."""

    way: Literal["own", "typed", "plain"]
    layout: str
    """What the bytes are: code that has another one does not get to read them (R14)."""
    declared: Any = None
    """The type that `update` declares."""


def form_of(name: str, op: Operator[Any, Any]) -> Form:
    """How this operator's event states are logged; a StateError if it is known beforehand that they can't be."""
    own = [method for method in ("encode", "decode") if _defines(op, method)]
    if own:
        if len(own) == 1:
            missing = "decode" if own == ["encode"] else "encode"
            raise StateError(f"operator {name!r}: it defines {own[0]}() and needs {missing}() too")
        return Form("own", f"own {type(op).__name__} {op.layout()}".rstrip())
    declared = _declared(op)
    if declared is None:
        return Form("plain", "plain")
    try:
        info = msgspec.inspect.type_info(declared)
    except TypeError as error:  # a union of types of which it knows only some, say
        raise StateError(f"operator {name!r}: its event state can't be logged ({error}): {REMEDY}") from None
    if unknown := next(unknown_types(info, set()), None):
        raise StateError(f"operator {name!r}: its event state has a {unknown}, which can't be logged: {REMEDY}")
    return Form("typed", f"typed {_shown(declared)}", declared)


def layout_of(name: str, op: Operator[Any, Any]) -> str | None:
    """What this operator's event states are in the log; None if they can't be logged."""
    try:
        return form_of(name, op).layout
    except StateError:
        return None


def check_event_state(name: str, op: Operator[Any, Any]) -> None:
    """Raises unless the operator's event states can be logged, as far as that is known."""
    try:
        form_of(name, op)
    except StateError as error:
        text = str(error)
        raise error if text.startswith("operator ") else StateError(f"operator {name!r}: {text}") from None


def _defines(op: Operator[Any, Any], method: str) -> bool:
    return getattr(type(op), method) is not getattr(Operator, method)


def _declared(op: Operator[Any, Any]) -> Any:
    """The type that `update` declares to return; None if it says nothing that helps."""
    try:
        hint = get_type_hints(type(op).update).get("return")
    except (NameError, TypeError):  # a type that is only known inside a function
        hint = type(op).update.__annotations__.get("return")
        hint = None if isinstance(hint, str) else hint
    if hint is None or hint is Any or hint is object or isinstance(hint, TypeVar):
        return None
    return None if isinstance(hint, type) and issubclass(hint, pa.Table | pa.RecordBatch) else hint


def _shown(declared: Any) -> str:
    """A type as text that changes when what it holds does."""
    if type(declared) is not type and not isinstance(declared, type):
        return str(declared)
    fields = ", ".join(f"{name}: {kind}" for name, kind in state_fields(declared).items() if name)
    return f"{declared.__qualname__}({fields})" if fields else declared.__qualname__
