"""The states of an operator's keys as a table, as the log has them: while its pipeline runs, and after."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import pyarrow as pa

from logline.engine.keyed import KeyState, decode_key, encode_key
from logline.errors import BadName
from logline.graph.instances import expand
from logline.graph.key_states import plain_state
from logline.graph.record import GraphRecord, OperatorRecord, graph_of, read_serialized, schema_of
from logline.names import Called, OperatorName, parse_called
from logline.store.seam import Store
from logline.store.tables import record_in


def state_table(store: Store, operator: str, key: Any = None) -> pa.Table:
    """A row for each key: the columns of the key, then the fields of its state."""
    record = record_in(store)
    expansion = expand(graph_of(record))
    instance = expansion.find(parse_called(operator))
    name = expansion.operator_of(instance)
    known = record.operators[name]
    if known.keyed is None:
        there = [str(other) for other, one in record.operators.items() if one.keyed is not None]
        raise BadName(f"{operator!r} has no state per key; {_list(there)}")
    reader = store.read(instance)
    by = _by(known)
    kinds = _kinds(record, name)
    if key is None:
        found: Iterable[tuple[bytes, KeyState]] = reader.keyed().items()
    else:
        given = tuple(key) if isinstance(key, tuple | list) else (key,)
        if by and len(given) != len(by):
            raise BadName(
                f"key={key!r}: a key of {operator!r} has the columns {', '.join(by)}; give a value for each"
            )
        raw = encode_key(tuple(_typed(one, column, kinds.get(column)) for one, column in zip_longest(given, by)))
        state = reader.key_state(raw)
        found = [] if state is None else [(raw, state)]
    states = [(decode_key(raw), plain_state(state.value)) for raw, state in found]
    kept = rows = None if known.key_rows is None else read_serialized(known.key_rows)
    if rows is not None:
        rows = pa.schema([field for field in rows if field.name not in by])
        states = [(one, row) for one, state in states for row in _rows(state, kept, rows.names)]
    width = max((len(one) for one, _ in states), default=len(by))
    names = by if by else tuple(f"key{at}" for at in range(width))
    columns = {
        column: _array([one[at] if at < len(one) else None for one, _ in states], kinds.get(column))
        for at, column in enumerate(names)
    }
    declared = known.keyed if rows is None else dict.fromkeys(rows.names, "")
    for field, values in _fields(declared, [state for _, state in states]).items():
        kind = None if rows is None else rows.field(field).type
        columns[field if field not in columns else f"state_{field}"] = _array(values, kind)
    return pa.table(columns)


def _rows(state: bytes, schema: pa.Schema, names: list[str]) -> list[dict[str, Any]]:
    """These columns of the rows that a state is."""
    found: list[dict[str, Any]] = pa.ipc.read_record_batch(pa.py_buffer(state), schema).select(names).to_pylist()
    return found


def _by(known: OperatorRecord) -> tuple[str, ...]:
    """The columns of the key, of a ready-made operator."""
    by = (known.parameters or {}).get("by")
    return () if by is None else tuple(by.split(", "))


def _kinds(record: GraphRecord, operator: OperatorName) -> dict[str | None, Any]:
    """The types of the columns that the operator takes."""
    senders = [(Called(c.sender), c.out) for c in record.connections if c.receiver == operator]
    return {field.name: field.type for sender in senders for field in schema_of(record, *sender)}


def _typed(value: Any, column: str | None, kind: Any) -> Any:
    """The value as its column would have it. A text, as the command line gives it, is read."""
    if kind is None or value is None:
        return value
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    try:
        return (pa.scalar(value).cast(kind) if isinstance(value, str) else pa.scalar(value, kind)).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BadName(f"key={value!r}: the column {column!r} has the type {kind}: {error}") from None


def _fields(fields: Mapping[str, str], states: list[Any]) -> dict[str, list[Any]]:
    if "" in fields or not all(isinstance(state, dict) for state in states):
        return {"state": states}
    names = dict.fromkeys((*fields, *(name for state in states for name in state)))
    return {name: [state.get(name) for state in states] for name in names}


def _array(values: list[Any], kind: Any = None) -> pa.Array:
    """As JSON where the values have no common type."""
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else json.dumps(value, default=str) for value in values], pa.string())


def _list(names: list[str]) -> str:
    return f"these have one: {', '.join(names)}" if names else "no operator of this pipeline has one"
