"""Checks, when the pipeline is defined, that an author's function takes the arguments it will be called with.

    >>> check_takes(lambda batch: batch, "map_batches", "batch")
    >>> check_takes(lambda row: row, "map_rows", "row", "ctx")
    Traceback (most recent call last):
    ...
    logline.errors.OptionError: map_rows calls its function with (row, ctx), and <lambda>(row) can't be called \
so: too many positional arguments
"""

from __future__ import annotations

import inspect

from logline.errors import OptionError, a_kind


def check_takes(fn: object, what: str, *arguments: str) -> None:
    """Raises an OptionError unless `fn` takes these arguments. What shows no signature, as some of C, passes."""
    if not callable(fn):
        raise OptionError(f"{what} takes a function of ({', '.join(arguments)}), not {a_kind(fn)}")
    try:
        signature = inspect.signature(fn, follow_wrapped=False)  # the wrapper is called, not what it wraps
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise OptionError(
            f"{what} calls its function with ({', '.join(arguments)}), "
            f"and {name}{signature} can't be called so: {error}"
        ) from None


def is_async_generator(fn: object) -> bool:
    """Whether it is an `async def` that yields, or an object with such a `__call__`."""
    call = getattr(fn, "__call__", None)  # noqa: B004 - that of an object
    return inspect.isasyncgenfunction(fn) or inspect.isasyncgenfunction(call)


def is_async_function(fn: object) -> bool:
    """Whether it is an `async def`, or an object with such a `__call__`."""
    call = getattr(fn, "__call__", None)  # noqa: B004 - that of an object
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call) or is_async_generator(fn)
