"""What events on ports `errors` say, as text beside them: nothing in PostgreSQL reads an Arrow batch.

The view `errors` shows it. Errors are few, so this costs a commit nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from logline.engine.events import Output
from logline.names import ERRORS, Ssn
from logline.store.postgres.columns import escape

Statement = tuple[str, list[Any]]
_INSERT = (
    "insert into error_texts values (%s, %s, %s, %s) "
    "on conflict (instance, ssn) do update set inset = excluded.inset, reason = excluded.reason"
)


def insert_texts(instance: int, outputs: Iterable[Output]) -> Iterator[Statement]:
    """Writes down what the errors among these events say."""
    for output in outputs:
        if output.port == ERRORS and not output.mark:
            yield _INSERT, [instance, output.ssn, _text(output, "inset"), _text(output, "reason")]


def _text(output: Output, column: str) -> str | None:
    """A column of the event's only row; a port of an author's own that is called so may have others."""
    batch = output.payload
    if column not in batch.schema.names or not batch.num_rows:
        return None
    value = batch.column(column)[0].as_py()
    return None if value is None else escape(str(value))


def delete_texts(instance: int, base: Ssn, pinned: Collection[Ssn]) -> Statement:
    """Drops those of events that are collected."""
    query = "delete from error_texts where instance = %s and ssn < %s and ssn <> all(%s::bigint[])"
    return query, [instance, base, list(pinned)]
