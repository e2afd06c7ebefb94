"""Windows that are put out several times: corrected by records after their end, and before it. With a crash after
every call (`ll.testing.drive` compares the two)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import logline as ll
from logline.errors import OptionError
from logline.operators import WindowAggregate

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AGG: dict[str, Any] = {"total": ("n", "sum")}


def rows(*pairs: tuple[int, int]) -> pa.RecordBatch:
    times, numbers = zip(*pairs, strict=True) if pairs else ((), ())
    at = pa.array(times, pa.int64()).cast(pa.timestamp("s", "UTC"))
    return pa.record_batch({"at": at, "n": pa.array(numbers, pa.int64())})


def drive(window: ll.Window) -> ll.testing.Drive:
    return ll.testing.drive(WindowAggregate(window, (), AGG))


def versions(op: ll.testing.Drive) -> list[tuple[int, int, int]]:
    """What has come out: where the window begins, which version, the total."""
    found = op.out().to_pylist()
    return [(int((r["window_start"] - EPOCH).total_seconds()), r["window_version"], r["total"]) for r in found]


def test_records_after_the_end_of_a_window_correct_it() -> None:
    op = drive(ll.tumbling("10s", on="at", updates="20s")).send(rows((1, 1), (9, 2))).send(rows((10, 4)))
    assert versions(op) == [(0, 1, 3)]
    op.send(rows((3, 8), (11, 16))).send(rows((4, 32)))
    assert versions(op)[1:] == [(0, 2, 11), (0, 3, 43)]
    op.send(rows((30, 64))).send(rows((5, 128)))  # 20 s after its end it is closed
    assert versions(op)[3:] == [(10, 1, 20)]
    assert op.out("late")["n"].to_pylist() == [128]
    assert versions(op.end())[4:] == [(30, 1, 64)]  # the others have nothing new to say


def test_a_window_that_gets_its_first_record_after_its_end() -> None:
    op = drive(ll.tumbling("10s", on="at", updates="20s")).send(rows((15, 1))).send(rows((2, 2))).send(rows((3, 4)))
    assert versions(op) == [(0, 1, 2), (0, 2, 6)]
    assert versions(op.end()) == [(0, 1, 2), (0, 2, 6), (10, 1, 1)]


def test_what_an_end_closed_is_not_corrected() -> None:
    op = drive(ll.tumbling("10s", on="at", updates="20s")).send(rows((1, 1))).end()
    assert versions(op) == [(0, 1, 1)]


def test_early_results_come_while_a_window_is_open() -> None:
    op = drive(ll.tumbling("1h", on="at", early="10s")).send(rows((1, 1))).advance("6s").send(rows((2, 2)))
    assert versions(op) == []
    assert versions(op.advance("4s")) == [(0, 1, 3)]  # 10 s after the first record that is not out
    assert versions(op.advance("1m")) == [(0, 1, 3)]  # nothing has come
    op.send(rows((3, 4))).advance("10s")
    assert versions(op) == [(0, 1, 3), (0, 2, 7)]
    assert versions(op.send(rows((3600, 8)))) == [(0, 1, 3), (0, 2, 7)]  # all of it is out
    assert versions(op.send(rows((3700, 16))).end())[2:] == [(3600, 1, 24)]


def test_early_results_and_corrections_count_on() -> None:
    op = drive(ll.tumbling("10s", on="at", early="1s", updates="10s")).send(rows((1, 1))).advance("2s")
    op.send(rows((2, 2))).send(rows((10, 4))).send(rows((3, 8))).advance("2s")
    assert versions(op) == [(0, 1, 1), (0, 2, 3), (0, 3, 11), (10, 1, 4)]


def test_windows_that_overlap_are_corrected_too() -> None:
    op = drive(ll.sliding("10s", "5s", on="at", updates="10s")).send(rows((6, 1))).send(rows((12, 2)))
    assert versions(op) == [(0, 1, 1)]
    op.send(rows((7, 4)))
    assert versions(op)[1:] == [(0, 2, 5)]
    assert versions(op.end())[2:] == [(5, 1, 7), (10, 1, 2)]


def test_the_whole_stream_every_so_many_events() -> None:
    op = drive(ll.whole(events=2))
    for n in (1, 2, 4, 8, 16):
        op.send(rows((n, n)))
    expected = [{"window_version": 1, "total": 3}, {"window_version": 2, "total": 15}]
    assert op.out().to_pylist() == expected
    assert op.end().out().to_pylist() == [*expected, {"window_version": 3, "total": 31}]


@pytest.mark.parametrize("window", [ll.whole(events=1), ll.whole(every="1s")])
def test_an_event_without_rows_makes_no_version(window: Any) -> None:
    op = drive(window).send(rows()).advance("1m")
    assert op.out().num_rows == 0
    expected = [{"window_version": 1, "total": 1}]
    assert op.send(rows((1, 1))).advance("1m").out().to_pylist() == expected
    assert op.send(rows()).advance("1m").end().out().to_pylist() == expected


def test_the_whole_stream_every_so_much_time() -> None:
    op = drive(ll.whole(every="1m")).send(rows((1, 1))).advance("59s").send(rows((1, 2)))
    assert op.out().num_rows == 0
    assert op.advance("1s").out().to_pylist() == [{"window_version": 1, "total": 3}]
    assert op.end().out().num_rows == 1


def test_without_triggers_nothing_is_new() -> None:
    assert drive(ll.whole()).send(rows((1, 1))).end().out().column_names == ["total"]
    assert "window_version" not in drive(ll.tumbling("1s", on="at")).send(rows((1, 1))).end().out().column_names


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ll.tumbling("1s", on="at", updates=timedelta(-1)), "is negative"),
        (lambda: ll.sliding("2s", "1s", on="at", early="0s"), "early must be positive"),
        (lambda: ll.whole(every="0s"), "every must be positive"),
        (lambda: ll.whole(events=0), "events"),
    ],
)
def test_what_is_wrong_is_said(make: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        make()


def test_a_column_that_the_window_adds_can_not_be_the_users() -> None:
    op = WindowAggregate(ll.whole(events=2), (), {"window_version": ("n", "sum")})
    with pytest.raises(OptionError, match="the window adds the column 'window_version' itself"):
        op.schemas({"in": rows().schema})
