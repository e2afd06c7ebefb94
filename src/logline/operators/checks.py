"""Checks of arguments, made when the pipeline is defined: an author may not use a type checker."""

from __future__ import annotations

from logline.errors import OptionError


def at_least_one(value: object, what: str) -> int:
    """A whole number from 1 on; OptionError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"{what}={value!r}: must be a whole number, at least 1")
    return value


def column_name(value: object, what: str) -> str:
    """A column's name; OptionError otherwise."""
    if not isinstance(value, str) or not value:
        raise OptionError(f"{what}={value!r}: must be the name of a column")
    return value
