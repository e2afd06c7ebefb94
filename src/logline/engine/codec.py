"""The engine's own codec: what goes into the log comes out exactly as it was, types included.

Used for input set ids, notes, offsets and answers. JSON-like formats turn a tuple into a list and a Decimal
into text; after a crash `generate` would then see another value than before it. Here every value carries its
type, and what can't be held exactly is refused when it is written, not when it is read back.

    >>> decode(encode(("BZ234", 7)))
    ('BZ234', 7)
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from hashlib import blake2b
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa

from logline.errors import CodecError
from logline.names import InsetId

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICRO

_TUPLE, _DATETIME, _DATE, _TIME, _DELTA, _DECIMAL, _BIGINT, _MAP, _SET, _UUID, _ARROW = range(1, 12)

_pack = msgspec.msgpack.Encoder().encode
_Ext = msgspec.msgpack.Ext


def micros(at: datetime) -> int:
    """An aware instant as microseconds since 1970, exactly."""
    return (at - _EPOCH) // _MICRO


def instant(value: int) -> datetime:
    """The inverse of `micros`, in UTC."""
    return _EPOCH + timedelta(microseconds=value)


def watermark_instant(value: int) -> datetime:
    """A watermark, in UTC: the first instant if lateness takes it back beyond that."""
    return instant(max(value, _FIRST))


def _zone(value: datetime | time) -> str | int | tuple[int, str] | None:
    tz = value.tzinfo
    if tz is None:
        return None
    if isinstance(tz, ZoneInfo):
        if tz.key is None:
            raise CodecError(f"{value!r} has a time zone without a name")
        return str(tz.key)
    if not isinstance(tz, timezone):
        raise CodecError(f"{value!r}: only zones of datetime.timezone and zoneinfo can be logged")
    offset, name = tz.utcoffset(None), tz.tzname(None)
    return offset // _MICRO if name == timezone(offset).tzname(None) else (offset // _MICRO, name)


def _read_zone(zone: str | int | list[Any] | None) -> tzinfo | None:
    if zone is None or isinstance(zone, str):
        return None if zone is None else ZoneInfo(zone)
    offset, *name = zone if isinstance(zone, list) else (zone,)
    return timezone(timedelta(microseconds=offset), *name)


def _wire_datetime(value: datetime) -> object:
    # The time on the wall, not the instant: an hour that a zone skips or repeats comes back as it was.
    wall = micros(value.replace(tzinfo=UTC))
    return _Ext(_DATETIME, _pack((_zone(value), wall, value.fold)))


def _read_datetime(raw: Any) -> datetime:
    zone, wall, fold = msgspec.msgpack.decode(raw)
    at = instant(wall)
    # The ids of windows of time are instants in UTC, and a log may have 10^5 of them open.
    return at if zone == 0 and not fold else at.replace(tzinfo=_read_zone(zone), fold=fold)


def _wire_time(value: time) -> object:
    return _Ext(_TIME, _pack((_zone(value), value.replace(tzinfo=None).isoformat(), value.fold)))


def _read_time(raw: Any) -> time:
    zone, wall, fold = msgspec.msgpack.decode(raw)
    return time.fromisoformat(wall).replace(tzinfo=_read_zone(zone), fold=fold)


def _wire_dict(value: dict[Any, Any]) -> object:
    if all(type(k) is str for k in value):
        return {k: _wire(v) for k, v in value.items()}
    return _Ext(_MAP, _pack([(_wire(k), _wire(v)) for k, v in value.items()]))


def _wire_int(value: int) -> object:
    if -(2**63) <= value < 2**64:
        return value
    return _Ext(_BIGINT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _wire_arrow(value: pa.RecordBatch | pa.Table) -> object:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as writer:
        writer.write(value)
    kind = b"B" if isinstance(value, pa.RecordBatch) else b"T"
    return _Ext(_ARROW, kind + sink.getvalue().to_pybytes())


def _read_arrow(raw: bytes) -> pa.RecordBatch | pa.Table:
    reader = pa.ipc.open_stream(raw[1:])
    return reader.read_all() if raw[:1] == b"T" else reader.read_next_batch()


_WIRE: dict[type, Callable[[Any], object]] = {
    type(None): lambda v: v,
    bool: lambda v: v,
    float: lambda v: v,
    str: lambda v: v,
    bytes: lambda v: v,
    int: _wire_int,
    list: lambda v: [_wire(x) for x in v],
    tuple: lambda v: _Ext(_TUPLE, _pack([_wire(x) for x in v])),
    dict: _wire_dict,
    datetime: _wire_datetime,
    date: lambda v: _Ext(_DATE, v.isoformat().encode()),
    time: _wire_time,
    timedelta: lambda v: _Ext(_DELTA, str(v // _MICRO).encode()),
    Decimal: lambda v: _Ext(_DECIMAL, str(v).encode()),
    UUID: lambda v: _Ext(_UUID, v.bytes),
    set: lambda v: _Ext(_SET, _pack([0, sorted(encode(x) for x in v)])),
    frozenset: lambda v: _Ext(_SET, _pack([1, sorted(encode(x) for x in v)])),
    pa.RecordBatch: _wire_arrow,
    pa.Table: _wire_arrow,
}


def _wire(value: Any) -> object:
    write = _WIRE.get(type(value))  # exact types only: a subclass would come back as its base
    if write is None:
        raise CodecError(
            f"a value of type {type(value).__name__} can't be logged exactly: {value!r:.80}; "
            "use plain values (None, bool, int, float, str, bytes, list, tuple, dict, datetime, date, Decimal) "
            "or an Arrow batch"
        )
    return write(value)


def _read_set(raw: bytes) -> set[Any] | frozenset[Any]:
    frozen, items = msgspec.msgpack.decode(raw)
    found = (decode(x) for x in items)
    return frozenset(found) if frozen else set(found)


_READ: dict[int, Callable[[Any], Any]] = {
    _TUPLE: lambda raw: tuple(decode(raw)),
    _DATETIME: _read_datetime,
    _DATE: lambda raw: date.fromisoformat(raw.decode()),
    _TIME: _read_time,
    _DELTA: lambda raw: timedelta(microseconds=int(raw)),
    _DECIMAL: lambda raw: Decimal(raw.decode()),
    _BIGINT: lambda raw: int.from_bytes(raw, "big", signed=True),
    _MAP: lambda raw: {k: v for k, v in decode(raw)},  # noqa: C416 - pairs come as lists
    _SET: _read_set,
    _UUID: lambda raw: UUID(bytes=raw),
    _ARROW: _read_arrow,
}


def _ext(code: int, data: memoryview) -> Any:
    return _READ[code](bytes(data))


_unpack = msgspec.msgpack.Decoder(ext_hook=_ext).decode


def encode(value: Any) -> bytes:
    """The value as bytes; CodecError if it could not come back exactly."""
    try:
        return _pack(_wire(value))
    except UnicodeEncodeError as error:
        raise CodecError(f"{value!r:.80} can't be logged: a text in it is not valid Unicode ({error})") from None


def decode(raw: bytes | memoryview) -> Any:
    """The value that was encoded, with its types."""
    return _unpack(raw)


def digest(value: Any) -> str:
    """A short digest of a value: the same in every life of every process."""
    return blake2b(encode(value), digest_size=12).hexdigest()


def canonical(inset: InsetId) -> bytes:
    """The same bytes for ids that are equal: one instant in two time zones is one id."""
    if isinstance(inset, datetime):
        return encode(inset.astimezone(UTC))
    if isinstance(inset, tuple):
        return encode([canonical(part) for part in inset])
    return encode(inset)


def _whole(text: str) -> bool:
    """Whether a text has no half characters, which could not be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_note(note: object) -> None:
    """Raises a CodecError unless the note of a membership can be logged. Most are None or a number."""
    if note is not None and type(note) is not int:
        encode(note)


def check_inset(inset: object) -> InsetId:
    """An input set id is a str, an int, an aware datetime, or a flat tuple of these."""
    kind = type(inset)
    if kind is int or (kind is str and (inset.isascii() or _whole(inset))):  # type: ignore[attr-defined, arg-type]
        return inset  # type: ignore[return-value]
    if kind is datetime and inset.tzinfo is not None:  # type: ignore[attr-defined]
        _zone(inset)  # type: ignore[arg-type]
        return inset  # type: ignore[return-value]
    if kind is tuple and all(type(part) is not tuple for part in inset):  # type: ignore[attr-defined]
        for part in inset:  # type: ignore[attr-defined]
            check_inset(part)
        return inset  # type: ignore[return-value]
    raise CodecError(
        f"{inset!r:.80} ({kind.__name__}) can't be the id of an input set: "
        "use a str, an int, an aware datetime or a tuple of these"
    )
