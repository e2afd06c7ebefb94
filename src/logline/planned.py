"""What is planned and not there yet: whoever asks for it is told what to do today.

Nothing here is a public name: `dir()` and editors don't offer it, and `hasattr` says no.

    >>> import logline as ll
    >>> ll.autoscale
    Traceback (most recent call last):
    ...
    logline.errors.NotYet: ll.autoscale is planned and not there yet: there is one instance of each operator; \
concurrency= takes several input sets at once
"""

from __future__ import annotations

from collections.abc import Mapping

from logline.errors import NotYet

_READ = "write a Source, about twenty lines (docs/connectors.md), or read files with ll.sources.parquet, csv or json"
_WRITE = "write a Sink (docs/connectors.md), or ll.sinks.call(fn, guarantee=...) with a function"

ONE_INSTANCE = "there is one instance of each operator; concurrency= takes several input sets at once"

PLANNED: Mapping[str, Mapping[str, str]] = {
    "Stream": {},
    "ll": {
        "autoscale": ONE_INSTANCE,
    },
    "ll.sources": {
        **dict.fromkeys(("kafka", "nats", "redis", "delta", "http", "spark_stream"), _READ),
        "iterable": "take ll.sources.batches(function): a function that makes the tables anew for each read",
    },
    "ll.sinks": dict.fromkeys(
        ("kafka", "nats", "redis", "delta", "http", "csv", "json", "spark_table", "console"), _WRITE
    ),
    "Run": {"scale": ONE_INSTANCE},
    "ctx": {
        "http": "make the request in a function, and call that with ctx.call(fn, ...): the answer is logged",
        "service": "call the function with ctx.call(fn, ...) each time: the answer is logged",
    },
}
"""By owner and name: what to do today."""


def missing(owner: str, name: str, said: str) -> AttributeError:
    """The error for a name that is not there; `said` if it is not planned either."""
    today = PLANNED[owner].get(name)
    return AttributeError(said) if today is None else not_yet(f"{owner}.{name}", today)


def not_yet(what: str, today: str) -> NotYet:
    """The error for something that is planned."""
    return NotYet(f"{what} is planned and not there yet: {today}")
