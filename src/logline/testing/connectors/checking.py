"""`check`: the door to the kit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from logline.errors import OptionError, a_kind
from logline.graph.connector import Sink, Source
from logline.graph.operator import SchemaLike
from logline.graph.schemas import schema as read_schema
from logline.testing.connectors.findings import Checked
from logline.testing.connectors.rows import Rows
from logline.testing.connectors.sinks import SinkCheck
from logline.testing.connectors.sources import SourceCheck


def check(
    make: Callable[[], Source] | Callable[[], Sink],
    *,
    read_back: Callable[[], pa.Table] | None = None,
    schema: SchemaLike | None = None,
    key: str | Sequence[str] = (),
    rows: Callable[[int], Mapping[str, Any]] | None = None,
    ordered: bool = False,
    crashes: int = 100,
) -> Checked:
    """Drives a source or a sink of your own through faults. Raises `BrokenPromise` if it does not keep the promise
    that it makes: its `guarantee`, or `replayable` and `destructive`.

    `make` makes the connector, as a new life gets it; all that it makes read or write the same thing outside. It is
    called for each life: a life dies before, after and at up to `crashes` lines of its code, and others go on. A
    target in the memory of this process dies with its writer: give `crashes=0` for it.

    For a sink, `read_back` returns what is in the target, and `schema` says which rows to write. `key` names the
    columns by which rows take each other's place, for an upsert. `rows(n)` makes the n-th row, where a schema does
    not tell enough. `ordered`: `read_back` gives rows in the order in which they were written. The target may have
    other rows; a check leaves its own behind.

    For a source there must be something to read, in two batches at least. A queue is empty after a check.

    >>> import logline as ll
    >>> kept = ll.sinks.collect()
    >>> make = lambda: type(kept)(*kept.__reduce__()[1])
    >>> check(make, read_back=kept.table, schema="id long", crashes=0).promise
    'positioned'
    """
    if not callable(make):
        raise OptionError(f"check() takes a function that makes the connector anew, not {a_kind(make)}")
    made: object = make()
    if isinstance(made, Source):
        if read_back is not None or schema is not None or key or rows is not None:
            raise OptionError("check(): read_back=, schema=, key= and rows= are for sinks; a source needs make alone")
        return SourceCheck(make, most=crashes).run()  # type: ignore[arg-type]
    if not isinstance(made, Sink):
        raise OptionError(f"check(): the function made {a_kind(made)}; it must make a Source or a Sink")
    if read_back is None or schema is None:
        raise OptionError("check(): a sink needs read_back=, which returns what is in the target, and schema=")
    keys = (key,) if isinstance(key, str) else tuple(key)
    wanted = Rows(read_schema(schema), rows, keys)
    return SinkCheck(make, read_back, wanted, ordered=ordered, most=crashes).run()  # type: ignore[arg-type]
