"""Shipping: an operator is pickled (cloudpickle) and runs in a worker; what it holds must be able to travel.

This is tried when the pipeline is defined. An error names what can't travel: not "cannot pickle '_thread.lock'
object" but the attribute, variable or default that holds it, and what to do instead.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import cloudpickle
import msgspec

from logline.errors import ShippingError
from logline.graph.authored import global_names, is_authored, is_ours
from logline.graph.connector import Sink, Source


def check_shippable(name: str, obj: object) -> None:
    """Raises a ShippingError that names the culprit unless `obj` can be sent to a worker.

    >>> class Enrich:
    ...     def __init__(self, client):
    ...         self.client = client
    >>> try:
    ...     check_shippable("enrich", Enrich(client=(x for x in "ab")))
    ... except ShippingError as error:
    ...     print(str(error)[:58])
    operator 'enrich': attribute 'client' (generator) can't be
    """
    error = _failure(obj)
    if error is None:
        return
    found = _culprit(obj)
    if found is None:
        raise ShippingError(
            f"operator {name!r}: {type(obj).__name__} can't be shipped to a worker: {error}"
        ) from error
    labels, value = found
    raise ShippingError(
        f"operator {name!r}: {', in '.join(reversed(labels))} ({type(value).__name__}) "
        f"can't be shipped to a worker: {_remedy(obj, labels, value)}"
    ) from error


def ship(obj: object) -> bytes:
    """What a worker loads with `pickle.loads`."""
    file = io.BytesIO()
    _Pickler(file).dump(obj)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """cloudpickle, but without its copies of open files: a worker would read a snapshot and never know. And with
    classes of a state that are written in the script itself, which go by value."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, io.TextIOWrapper | io.BufferedIOBase | io.RawIOBase) and not _standard(obj):
            raise pickle.PicklingError("an open file can't be shipped")
        if isinstance(obj, msgspec.Meta):
            return _make_meta, ({name: value for name in _META if (value := getattr(obj, name)) is not None},)
        if isinstance(obj, type):
            if _CACHE in vars(obj):
                delattr(obj, _CACHE)  # what msgspec knows of a dataclass; it finds it out again
            if issubclass(obj, msgspec.Struct) and obj is not msgspec.Struct and _by_value(obj):
                return _reduce_struct(obj)
        return super().reducer_override(obj)


_CACHE = "__msgspec_cache__"
# fmt: off
_META = (
    "gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz", "title", "description",
    "examples", "extra_json_schema", "extra",
)
_CONFIG = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields",
    "weakref", "dict", "cache_hash", "tag", "tag_field",
)
# fmt: on


def _make_meta(given: dict[str, Any]) -> msgspec.Meta:
    return msgspec.Meta(**given)


def _by_value(kind: type) -> bool:
    """Whether a worker can't import it: a class of the script, of a function, or of a module that goes along."""
    module = kind.__module__
    if module == "__main__" or module.partition(".")[0] in cloudpickle.list_registry_pickle_by_value():
        return True
    found: Any = sys.modules.get(module)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not kind


def _reduce_struct(kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Made anew from its bases and fields: attributes that are set later, as cloudpickle does it, give it none."""
    known = {field.name: field for field in msgspec.structs.fields(kind)}
    own = [known[name] for name in vars(kind).get("__annotations__", {}) if name in known]
    fields = [(f.name, f.type, _given(f.default), _given(f.default_factory)) for f in own]
    config = {name: getattr(kind.__struct_config__, name) for name in _CONFIG}
    config["rename"] = {field.name: field.encode_name for field in own}
    members = {name: part for name, part in vars(kind).items() if name not in known and not _is_made(name, part)}
    made = (kind.__name__, kind.__qualname__, kind.__module__, kind.__bases__, fields, config, _INIT in members)
    return _make_struct, made, members, None, None, _equip


_INIT = "__post_init__"


def _is_made(name: str, part: object) -> bool:
    """Whether it comes with the class itself."""
    dunder = name.startswith("__") and name.endswith("__")
    return isinstance(part, types.MemberDescriptorType) or (dunder and not isinstance(part, types.FunctionType))


def _given(default: Any) -> tuple[Any, ...]:
    return () if default is msgspec.NODEFAULT else (default,)


def _make_struct(
    name: str, qualname: str, module: str, bases: Any, fields: list[Any], config: dict[str, Any], init: bool
) -> type:
    wanted: list[Any] = []
    for field, hint, default, factory in fields:
        value = default or tuple(msgspec.field(default_factory=one) for one in factory)
        wanted.append((field, hint, *value))
    namespace: dict[str, Any] = {_INIT: _late_init} if init else {}  # it is looked for when the class is made
    make = functools.partial(
        msgspec.defstruct, name, wanted, bases=bases, module=module, namespace=namespace, **config
    )
    try:
        made = make()
    except TypeError:  # a field without a default after one with
        made = make(kw_only=True)
    made.__qualname__ = qualname
    return made


def _late_init(self: Any) -> None:
    for kind in type(self).__mro__:
        if _LATE in vars(kind):
            vars(kind)[_LATE](self)
            return


_LATE = "_logline_post_init"


def _equip(kind: type, members: Mapping[str, Any]) -> None:
    for name, part in members.items():
        setattr(kind, _LATE if name == _INIT else name, part)


def _standard(file: object) -> bool:
    return file is sys.stdout or file is sys.stderr or isinstance(file, io.BytesIO)


def _failure(obj: object) -> Exception | None:
    """Why `obj` can't be sent; None if it can. Large data stays out of band, uncopied.

    It is not loaded again: loading a class by value here would change the author's own class.
    """
    try:
        _Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: None).dump(obj)
    except Exception as error:  # user code runs here (__reduce__, __setstate__): anything may be raised
        return error
    return None


def _culprit(root: object) -> tuple[list[str], object] | None:
    """The part that can't travel, as far inside as its author knows it, with the labels that lead there."""
    labels: list[str] = []
    seen = {id(root)}
    value, hidden = root, False
    while True:
        found = next(((n, p) for n, p in _parts(value) if id(p) not in seen and _failure(p) is not None), None)
        if found is None:
            return (labels, value) if labels else None
        if hidden:
            labels.pop()
        hidden = is_ours(type(value))  # how a ready-made operator holds a function is nobody's business
        labels.append(found[0])
        value = found[1]
        seen.add(id(value))
        if not _is_known(value):
            return labels, value


def _is_known(value: object) -> bool:
    """Whether its author would recognise what is inside: of a thread or a client the whole is enough."""
    return isinstance(value, _OPEN) or is_authored(type(value)) or is_ours(type(value))


_OPEN = (list, tuple, set, frozenset, dict, types.FunctionType, types.MethodType, functools.partial, type)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """What `value` takes along when it is shipped, each part with a name that its author knows."""
    if isinstance(value, types.FunctionType):
        yield from _function_parts(value)
    elif isinstance(value, types.MethodType):
        yield f"the object of method {value.__name__}()", value.__self__
        yield f"method {value.__name__}()", value.__func__
    elif isinstance(value, functools.partial):
        yield "the function of the partial", value.func
        yield from ((f"argument {i} of the partial", part) for i, part in enumerate(value.args))
        yield from ((f"argument {key!r} of the partial", part) for key, part in value.keywords.items())
    elif isinstance(value, type):
        yield from _attributes(vars(value), "class attribute")
    elif isinstance(value, Mapping):
        yield from ((f"item {key!r}", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"item {index}", part) for index, part in enumerate(value))
    else:
        slots = (s for kind in type(value).__mro__ for s in getattr(kind, "__slots__", ()) if s != "__dict__")
        own = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
        yield from _attributes(own | getattr(value, "__dict__", {}), "attribute")
        yield f"class {type(value).__name__}", type(value)


def _attributes(values: Mapping[str, object], word: str) -> Iterator[tuple[str, object]]:
    for name, part in values.items():
        if isinstance(part, staticmethod | classmethod):
            part = part.__func__
        if isinstance(part, types.FunctionType) and word == "class attribute":
            yield f"method {name}()", part
        elif not (name.startswith("__") and name.endswith("__")):
            yield f"{word} {name!r}", part


def _function_parts(fn: types.FunctionType) -> Iterator[tuple[str, object]]:
    code, name = fn.__code__, f"{fn.__name__}()"
    for variable, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield f"variable {variable!r} used by {name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults = fn.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    for parameter, default in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
        yield f"default of parameter {parameter!r} of {name}", default
    for parameter, default in (fn.__kwdefaults__ or {}).items():
        yield f"default of parameter {parameter!r} of {name}", default
    for variable in global_names(code):
        if variable in fn.__globals__:
            yield f"global variable {variable!r} used by {name}", fn.__globals__[variable]
    yield from _attributes(vars(fn), "attribute")


def _remedy(root: object, labels: list[str], value: object) -> str:
    if isinstance(value, types.GeneratorType | types.AsyncGeneratorType):
        return "pass a function that makes it"
    if isinstance(root, Source):
        return "create it in read()"
    if isinstance(root, Sink):
        return "create it in open()"
    if any("()" in label and not label.startswith("method") for label in labels):
        return "create it inside the function, or in open() of an Operator"
    return "create it in open()"
