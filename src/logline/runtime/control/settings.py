"""How a pipeline is started: what a user may say, checked once, and passed on whole.

`Settings` are the keyword arguments of `Pipeline.start` and `Pipeline.run`, so that an editor completes them.
`check_settings` makes `StartSettings` of them, with every default filled in; whoever starts a run takes these.

    >>> check_settings("lmdb:sales.log", {"engine": "processes"}).durability
    'disk'
    >>> check_settings(None, {"engine": "processes"})
    Traceback (most recent call last):
    logline.errors.OptionError: engine='processes' needs a log that processes can share: log='lmdb:PATH'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, TypedDict, get_args

from logline.errors import OptionError
from logline.graph.secrets import Secret
from logline.lineage.openlineage.settings import OpenLineage
from logline.lineage.openlineage.settings import settings as openlineage_settings
from logline.names import OperatorName
from logline.store.address import as_text, check_address, reach_of, takes_durability

EngineName = Literal["spark", "inline", "processes"]
Durability = Literal["disk", "process"]
Resume = Literal["auto", "never", "must"]
Until = Literal["end", "now"]


class Settings(TypedDict, total=False):
    """How a pipeline is started; see `Pipeline.start`."""

    spark: Any
    """A Spark session."""
    engine: EngineName
    durability: Durability
    resume: Resume
    until: Until
    close: bool
    takeover: bool
    fresh: Sequence[str]
    openlineage: str | OpenLineage | None


@dataclass(frozen=True, slots=True)
class StartSettings:
    """How a run is started: checked, and complete."""

    log: str | None = None
    """Its address; None: a temporary one."""
    spark: Any = None
    engine: EngineName = "spark"
    durability: Durability = "disk"
    resume: Resume = "auto"
    until: Until = "end"
    close: bool = False
    """With until="now": whether the streams end, so that open windows are generated."""
    takeover: bool = False
    fresh: tuple[OperatorName, ...] = ()
    """Operators to be made anew, with all that is downstream of them."""
    openlineage: OpenLineage | None = None


def check_settings(log: str | Secret | None, given: Settings) -> StartSettings:
    """What was given and the defaults; an OptionError says what can't be."""
    known = [field.name for field in fields(StartSettings) if field.name != "log"]
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise OptionError(f"there is no setting {name!r}: {hint}")
    values: dict[str, Any] = {**given, "openlineage": None, "fresh": _names(given.get("fresh", ()))}
    log = None if log is None else as_text(log)
    found = StartSettings(log, **values)
    if log is not None:
        check_address(log)
    _one_of("engine", found.engine, EngineName)
    _one_of("durability", found.durability, Durability)
    _one_of("resume", found.resume, Resume)
    _one_of("until", found.until, Until)
    if found.close and found.until != "now":
        raise OptionError('close=True is for until="now": a run that reads to the end closes every window anyway')
    if found.spark is not None and found.engine != "spark":
        raise OptionError("spark= is of no use without engine='spark': leave it out")
    if found.durability != "disk" and found.engine != "spark" and not takes_durability(log):
        raise OptionError(
            "durability= is for logs on disk, log='lmdb:PATH': leave it out (what a log in PostgreSQL survives, its "
            "server decides)"
        )
    if found.engine == "processes" and reach_of(log) == "process":
        raise OptionError("engine='processes' needs a log that processes can share: log='lmdb:PATH'")
    return replace(found, openlineage=openlineage_settings(given.get("openlineage")))


def _names(fresh: object) -> tuple[OperatorName, ...]:
    if isinstance(fresh, str) or not isinstance(fresh, Sequence) or not all(isinstance(n, str) for n in fresh):
        raise OptionError(f"fresh={fresh!r}: give the names of operators, as in fresh=['hourly']")
    return tuple(OperatorName(name) for name in fresh)


def _one_of(option: str, value: object, kind: Any) -> None:
    if value not in get_args(kind):
        raise OptionError(f"{option}={value!r}: take one of {', '.join(map(repr, get_args(kind)))}")
