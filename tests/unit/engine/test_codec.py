import subprocess
import sys
from collections import OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import IntEnum
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logline.engine.codec import check_inset, decode, digest, encode, instant, micros
from logline.errors import CodecError

BERLIN = ZoneInfo("Europe/Berlin")


# A zone file as short as they get: version 1, one type, offset 0, called "UTC".
UTC_FILE = b"TZif" + bytes(16) + b"".join(n.to_bytes(4, "big") for n in (0, 0, 0, 0, 1, 4)) + bytes(6) + b"UTC\0"


class Timestamp(datetime):
    """As the data frame libraries have it: a datetime with something more."""

    nanosecond = 7


class Float64(float):
    """As numpy has it."""


class Colour(IntEnum):
    RED = 1


class Astronomical(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, at: datetime | None) -> None: ...

    def tzname(self, at: datetime | None) -> None: ...

    def __repr__(self) -> str:
        return "Astronomical()"  # part of a test's id, so no address


Point = namedtuple("Point", "x y")


def same(found: Any, wanted: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(found) is not type(wanted):
        return False
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict):
        return same(list(found.items()), list(wanted.items()))
    if isinstance(wanted, (set, frozenset)):
        return same(sorted(found, key=repr), sorted(wanted, key=repr))
    return repr(found) == repr(wanted)  # unlike ==, it tells folds, zones, -0.0 and the digits of a Decimal


PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**63,
    2**64 - 1,
    2**64,
    -(2**63) - 1,
    -(2**64),
    1.0,
    -0.0,
    float("inf"),
    float("nan"),
    "",
    "Grüße \N{SNOWMAN} \0",
    b"",
    b"\0\xff",
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("1E+3"),
    Decimal("NaN"),
    date(2024, 2, 29),
    date.min,
    timedelta(days=-1, microseconds=1),
    timedelta.max,
    UUID(int=7),
]
TIMES = [
    datetime(2024, 7, 1, 12, 0, 0, 5),
    datetime(2024, 7, 1, fold=1),
    datetime(2024, 7, 1, tzinfo=UTC),
    datetime(2024, 7, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2024, 7, 1, tzinfo=timezone(timedelta(0), "GMT")),
    datetime(2024, 7, 1, tzinfo=BERLIN),
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),  # the hour that comes twice
    datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    datetime(2024, 3, 31, 2, 30, tzinfo=BERLIN),  # the hour that never comes
    datetime.min,
    datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))),
    time(1, 2, 3, 4),
    time(2, 30, fold=1),
    time(2, 30, tzinfo=UTC),
    time(2, 30, tzinfo=BERLIN),
]
NESTED = [
    [],
    (),
    {},
    set(),
    frozenset(),
    [1, (2, [3, ()])],
    ([1], {"a": (1,)}),
    {"b": 1, "a": [None]},  # in this order
    {1: "a", "1": "b", (1, 2): "c", None: "d", b"x": "e"},
    {datetime(2024, 7, 1, tzinfo=UTC): {2.5: {}}},
    {1, "a", (2, 3), frozenset({4})},
    frozenset({date(2024, 1, 1)}),
    [True, 1, 1.0],
]


def name(value: Any) -> str:
    """The id of a test: the same in every process, also for a set, whose order is a matter of chance."""
    return repr(sorted(map(repr, value)) if isinstance(value, set) else value)[:60]


@pytest.mark.parametrize("value", PLAIN + TIMES + NESTED, ids=name)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert same(decode(encode(value)), value)


def test_a_number_too_long_to_be_written_down() -> None:
    assert decode(encode([10**5000, -(10**5000)])) == [10**5000, -(10**5000)]


def test_the_zone_comes_back_by_its_kind() -> None:
    assert decode(encode(datetime(2024, 7, 1, tzinfo=UTC))).tzinfo is UTC
    assert decode(encode(datetime(2024, 7, 1, tzinfo=BERLIN))).tzinfo is BERLIN
    named = timezone(timedelta(hours=2), "CEST")
    assert decode(encode(datetime(2024, 7, 1, tzinfo=named))).tzname() == "CEST"


values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.decimals(),
        st.dates(),
        st.timedeltas(),
        st.uuids(),
        st.datetimes(timezones=st.sampled_from([None, UTC, BERLIN, timezone(timedelta(minutes=-90))])),
        st.times(timezones=st.sampled_from([None, UTC, BERLIN])),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.tuples(st.text(), st.dates())), inner),
    ),
)


@given(values)
def test_any_value_comes_out_as_it_went_in(value: Any) -> None:
    raw = encode(value)
    assert same(decode(raw), value)
    assert encode(decode(raw)) == raw
    assert same(decode(memoryview(raw)), value)


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"n": [1, None], "s": ["a", "b"]}),
        pa.record_batch({"n": pa.array([], pa.int64())}),
        pa.record_batch({}),
        pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([]))),
        pa.record_batch({"w": pa.array(["x", None, "x"]).dictionary_encode()}),
        pa.record_batch({"n": [1, 2, 3]})[1:2],
        pa.record_batch({"n": [1]}, metadata={"k": "v"}),
    ],
    ids=["plain", "no rows", "nothing", "no columns", "dictionary", "slice", "metadata"],
)
def test_arrow_batches_and_tables(batch: pa.RecordBatch) -> None:
    found = decode(encode(("answer", batch)))[1]
    assert type(found) is pa.RecordBatch
    assert found.num_rows == batch.num_rows
    assert found.equals(batch, check_metadata=True)
    table = pa.table(batch)
    found = decode(encode([table]))[0]
    assert type(found) is pa.Table
    assert found.equals(table, check_metadata=True)


def test_a_table_of_several_chunks() -> None:
    table = pa.concat_tables(pa.table({"w": pa.array([w]).dictionary_encode()}) for w in ("x", "y"))
    assert decode(encode(table)).to_pylist() == table.to_pylist()
    assert decode(encode(table)).schema == table.schema


@pytest.mark.parametrize(
    "value",
    [
        Timestamp(2024, 7, 1),
        Float64(1.0),
        Colour.RED,
        Point(1, 2),
        OrderedDict(a=1),
        bytearray(b"x"),
        memoryview(b"x"),
        1j,
        object(),
        BytesIO(),
        Path("/tmp"),
        range(3),
        pa.array([1]),
        pa.scalar(1),
        datetime(2024, 7, 1, tzinfo=Astronomical()),
        time(1, tzinfo=Astronomical()),
        "\ud800",
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_would_not_come_back_exactly_is_refused(value: Any) -> None:
    for held in (value, [value], (value,), {"k": (1, [value])}):
        with pytest.raises(CodecError):
            encode(held)


def test_keys_and_items_are_refused_as_well() -> None:
    with pytest.raises(CodecError, match="Point"):
        encode({Point(1, 2): 1})
    with pytest.raises(CodecError, match="Colour"):
        encode({Colour.RED})


def test_the_message_names_the_type() -> None:
    with pytest.raises(CodecError, match="of type Timestamp can't be logged exactly"):
        encode({"at": [Timestamp(2024, 7, 1)]})


def test_a_zone_that_has_no_name_is_refused() -> None:
    nameless = ZoneInfo.from_file(BytesIO(UTC_FILE))
    with pytest.raises(CodecError, match="without a name"):
        encode(datetime(2024, 7, 1, tzinfo=nameless))


@pytest.mark.parametrize("value", [datetime(2024, 7, 1, tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
def test_instants(value: datetime) -> None:
    assert instant(micros(value)) == value
    assert micros(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0


# ---- ids of input sets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inset",
    [
        "",
        "BZ234",
        0,
        2**70,
        datetime(2024, 7, 1, tzinfo=UTC),
        datetime(2024, 7, 1, tzinfo=BERLIN),
        (),
        ("BZ234", 7, datetime(2024, 7, 1, tzinfo=UTC)),
    ],
    ids=repr,
)
def test_ids_of_input_sets(inset: Any) -> None:
    assert check_inset(inset) is inset


@pytest.mark.parametrize(
    "inset",
    [
        True,
        1.0,
        None,
        b"x",
        date(2024, 7, 1),
        datetime(2024, 7, 1),
        datetime(2024, 7, 1, tzinfo=Astronomical()),
        Timestamp(2024, 7, 1, tzinfo=UTC),
        Colour.RED,
        Decimal(1),
        [1],
        ("a", ("b",)),
        ("a", True),
        ("a", 1.5),
        ("a", datetime(2024, 7, 1)),
        ("a", None),
        Point(1, 2),
    ],
    ids=repr,
)
def test_what_is_no_id_of_an_input_set(inset: Any) -> None:
    with pytest.raises(CodecError):
        check_inset(inset)


# ---- digests ----------------------------------------------------------------------------------------------------


def test_a_digest_tells_types_apart() -> None:
    assert len({digest(v) for v in (1, True, 1.0, "1", b"1", Decimal(1), [1], (1,), {1}, frozenset({1}))}) == 10


def test_a_digest_is_the_same_in_every_process() -> None:
    code = (
        "from logline.engine.codec import digest;"
        "print(digest(({'orders', 'refunds', 'late', 'out', 'in'}, {'b': 1, 'a': (2, None)})))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    here = digest(({"orders", "refunds", "late", "out", "in"}, {"b": 1, "a": (2, None)}))
    assert runs == [here, here]
