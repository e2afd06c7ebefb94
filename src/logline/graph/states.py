"""Global state in the log: msgpack through msgspec, typed, never a pickle.

A state that would come back as something else (a tuple as a list, a naive time as text) would make the
operator behave differently after a crash. So a `State` is tried out when the pipeline is defined, and each changed
state is read back before it is committed (R6): a log never holds a state that no later life can read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from logline.errors import StateError

_encoder = msgspec.msgpack.Encoder()
_REMEDY = (
    "make it a dataclass or msgspec.Struct whose fields have types that msgspec knows "
    "(numbers, str, bytes, datetime, list, dict, set, tuple, other dataclasses), each with its exact type"
)
_SMALL = 1024
"""Bytes. A state of so many is compared value by value, types included; a larger one by `==`, which is quick."""


def encode_state(state: Any) -> bytes:
    """The bytes of a global state, as they are logged."""
    return _encoder.encode(state)


@lru_cache(maxsize=256)
def _decoder(kind: type) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def decode_state(data: bytes, kind: type) -> Any:
    """The global state that `encode_state` wrote."""
    return _decoder(kind).decode(data)


def check_state(name: str, kind: type) -> None:
    """Raises a StateError unless a fresh `State()` comes back from the log as it was."""
    _resolve(kind, set())
    _check_types(name, kind)
    try:
        state = kind()
    except Exception as error:
        raise StateError(
            f"operator {name!r}: State() failed ({type(error).__name__}: {error}): "
            "the state is built without arguments, so give every field a default"
        ) from error
    try:
        back = decode_state(encode_state(state), kind)
    except Exception as error:
        where, cause = _culprit(state, kind) or ("the state", error)
        raise StateError(
            f"operator {name!r}: {where} can't be written to the log and read back ({cause}): {_REMEDY}"
        ) from error
    if (path := _difference(state, back)) is not None:
        where = f"the field {path!r} of its state" if path else "the state"
        raise StateError(f"operator {name!r}: {where} comes back changed from the log: {_REMEDY}")


def _check_types(name: str, kind: type) -> None:
    """A field that may be None is tried out with None alone: what else it may hold, its type says."""
    try:
        info = msgspec.inspect.type_info(kind)
    except TypeError:
        return  # what is wrong shows when a state is tried out
    for field in getattr(info, "fields", ()):
        unknown = next((one for one in unknown_types(field.type, set()) if one != "object"), None)
        if unknown is not None:
            raise StateError(
                f"operator {name!r}: the field {field.name!r} of its state may hold a {unknown}, which can't be "
                f"written to the log: {_REMEDY}"
            )


def unknown_types(info: Any, seen: set[Any]) -> Iterator[str]:
    """The types within a declared one, as msgspec sees it, that it does not know."""
    cls = getattr(info, "cls", None)
    if isinstance(info, msgspec.inspect.CustomType):
        yield cls.__name__ if isinstance(cls, type) else str(cls)
    if cls is not None and cls in seen:
        return
    seen.add(cls)
    parts = [getattr(info, name, None) for name in ("item_type", "key_type", "value_type")]
    parts += [field.type for field in getattr(info, "fields", ())]
    parts += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    for part in parts:
        if part is not None:
            yield from unknown_types(part, seen)


def check_logged(name: str, state: Any, data: bytes, kind: type) -> None:
    """Raises a StateError unless the bytes, about to be logged, come back as this state.

    >>> check_logged("hourly", 1.5, encode_state(1.5), int)
    Traceback (most recent call last):
    logline.errors.StateError: operator 'hourly': the state could not be read back from the log (Expected `int`, \
got `float`): its values must have the types that State declares
    """
    try:
        back = decode_state(data, kind)
    except Exception as error:
        where, cause = _culprit(state, kind) or ("the state", error)
        raise StateError(
            f"operator {name!r}: {where} could not be read back from the log ({cause}): "
            "its values must have the types that State declares"
        ) from error
    if len(data) > _SMALL and back == state:
        return
    # A `__post_init__` may tidy up what it is given, in each life alike: that is the author's choice.
    if not hasattr(kind, "__post_init__") and (path := _difference(state, back)) is not None:
        where = f"the field {path!r} of its state" if path else "the state"
        raise StateError(
            f"operator {name!r}: {where} would come back changed from the log: declare the exact types of its "
            "values, as in dict[str, tuple[int, Decimal]]"
        )


def read_state(name: str, data: bytes, kind: type) -> Any:
    """The global state as a log holds it; a StateError says what to do where this State can't hold it."""
    try:
        return decode_state(data, kind)
    except Exception as error:
        raise StateError(
            f"operator {name!r}: the state in the log can't be read as {kind.__name__} ({error}): resume with a "
            "State that has the same fields, with types that can hold what is there (float, or int | float)"
        ) from error


def _resolve(hint: Any, seen: set[type]) -> None:
    """Puts types in the place of names, as `from __future__ import annotations` leaves them: a worker to which the
    class goes by value does not have the globals of its module."""
    for part in getattr(hint, "__args__", ()):
        _resolve(part, seen)
    if not isinstance(hint, type) or hint in seen or not dataclasses.is_dataclass(hint):
        return
    seen.add(hint)
    hints = _hints(hint, extras=True)
    for kind in hint.__mro__:
        own = vars(kind).get("__annotations__", {})
        own.update({name: hints[name] for name in own if name in hints})
    for part in hints.values():
        _resolve(part, seen)


def state_fields(kind: type) -> dict[str, str]:
    """The fields of a State with their types as text; for a state without fields its own type under ''."""
    names = _field_names(kind)
    if names is None:
        return {"": kind.__qualname__}
    hints = _hints(kind)
    return {field: _type_text(hints.get(field, Any)) for field in names}


def _type_text(hint: Any) -> str:
    return hint.__qualname__ if type(hint) is type else str(hint)


def _field_names(kind: type) -> tuple[str, ...] | None:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return None


def _hints(kind: type, *, extras: bool = False) -> Mapping[str, Any]:
    try:
        return get_type_hints(kind, include_extras=extras)
    except NameError:  # a type that is only known inside a function
        return kind.__annotations__


def _culprit(state: Any, kind: type) -> tuple[str, Exception] | None:
    """The field that can't be encoded or decoded by itself, and why."""
    hints = _hints(kind)
    for field in _field_names(kind) or ():
        try:
            decode_state(encode_state(getattr(state, field)), hints.get(field, Any))
        except Exception as error:
            return f"the field {field!r} of its state", error
    return None


def _difference(before: Any, after: Any) -> str | None:
    """The path of the first value that is not the same (type included), '' for the whole; None if all are.

    Not `==`: a class may compare by identity, and to Python (1,) in a list equals nothing but a tuple.
    """
    if type(before) is int and type(after) is float and before == after:
        return None  # as for a type checker, an int is good where a float is declared
    if type(before) is not type(after):
        return ""
    if (names := _field_names(type(before))) is not None:
        return _first((name, getattr(before, name), getattr(after, name)) for name in names)
    if isinstance(before, Mapping):
        if list(before) != list(after):
            return ""
        return _first((str(key), value, after[key]) for key, value in before.items())
    if isinstance(before, list | tuple):
        if len(before) != len(after):
            return ""
        return _first((str(i), a, b) for i, (a, b) in enumerate(zip(before, after, strict=True)))
    same = before == after or (before != before and after != after)  # NaN is NaN  # noqa: PLR0124
    return None if same else ""


def differs(before: Any, after: Any) -> str | None:
    """The path of the first value that did not come back as it was, '' for the whole; None if all did."""
    return _difference(before, after)


def _first(parts: Iterable[tuple[str, Any, Any]]) -> str | None:
    for label, before, after in parts:
        if (path := _difference(before, after)) is not None:
            return f"{label}.{path}" if path else label
    return None
