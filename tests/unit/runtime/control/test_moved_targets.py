"""A sink that is pointed at another place between two runs on one log (R8, R14)."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import logline as ll
from logline.errors import PipelineFailed
from logline.graph.record import record_of, to_plain


def put(folder: Path, day: str, n: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": [n]}), folder / "in" / f"{day}.parquet")


def pipeline(folder: Path, sink: ll.Sink, name: str = "store") -> ll.Pipeline:
    p = ll.Pipeline("moved")
    p.source("rows", ll.sources.parquet(folder / "in", schema="n long")).sink(name, sink)
    return p


def files(folder: Path) -> ll.Sink:
    return ll.sinks.parquet(folder)


def table(path: Path) -> ll.Sink:
    return ll.sinks.sqlite(path, "t")


def rows(path: Path) -> list[int]:
    if path.is_dir():
        return sorted(pq.read_table(path)["n"].to_pylist())
    db = sqlite3.connect(path)
    try:
        return sorted(n for (n,) in db.execute("select n from t"))
    finally:
        db.close()


def run(p: ll.Pipeline, folder: Path, **settings: Any) -> ll.Run:
    return p.run(f"lmdb:{folder / 'log'}", engine="inline", until="now", **settings)


def accepted(p: ll.Pipeline, folder: Path) -> list[str]:
    report = p.check(f"lmdb:{folder / 'log'}")
    assert report.changes is not None and not report.changes.refused
    return report.changes.accepted


@pytest.mark.parametrize("make", [files, table])
def test_check_tells_where_it_was_and_is(make: Callable[[Path], ll.Sink], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    put(tmp_path, "a", 1)
    run(pipeline(tmp_path, make(one)), tmp_path)
    assert accepted(pipeline(tmp_path, make(one)), tmp_path) == []
    (told,) = accepted(pipeline(tmp_path, make(two)), tmp_path)
    assert told.startswith("operator 'store': the target 'out' was ") and f"{one}" in told
    assert f" and is now {'file' if make is files else 'sqlite'} {two}" in told
    assert "what was written stays in the old one" in told
    assert ("must be a copy of it, with its positions" in told) == (make is table)


def test_files_go_on_in_another_folder(tmp_path: Path) -> None:
    put(tmp_path, "a", 1)
    run(pipeline(tmp_path, files(tmp_path / "one")), tmp_path)
    put(tmp_path, "b", 2)
    run(pipeline(tmp_path, files(tmp_path / "two")), tmp_path)
    assert (rows(tmp_path / "one"), rows(tmp_path / "two")) == ([1], [2])
    assert accepted(pipeline(tmp_path, files(tmp_path / "two")), tmp_path) == []


def test_a_database_goes_on_as_a_copy_or_under_another_name(tmp_path: Path) -> None:
    """As the message says."""
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    put(tmp_path, "a", 1)
    run(pipeline(tmp_path, table(one)), tmp_path)
    put(tmp_path, "b", 2)
    with pytest.raises(PipelineFailed, match=r"or it is another one than before; .* give the sink another name"):
        run(pipeline(tmp_path, table(two)), tmp_path)
    two.unlink()
    shutil.copy(one, two)
    run(pipeline(tmp_path, table(two)), tmp_path)
    assert (rows(one), rows(two)) == ([1], [1, 2])
    put(tmp_path, "c", 3)
    run(pipeline(tmp_path, table(three), "again"), tmp_path)
    assert rows(two) == [1, 2] and rows(three)[-1] == 3


def test_nothing_is_said_of_a_target_that_has_no_write_yet(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    run(pipeline(tmp_path, table(tmp_path / "one")), tmp_path)
    (told,) = accepted(pipeline(tmp_path, table(tmp_path / "two")), tmp_path)
    assert told.endswith(": nothing was written yet")


def test_what_a_secret_tells_is_in_no_record_and_in_no_message(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("psycopg")

    def plain(dsn: str) -> str:
        monkeypatch.setenv("PLACE", dsn)
        p = pipeline(tmp_path, ll.sinks.postgres(ll.env("PLACE"), "stock"))
        return str(to_plain(record_of(p.graph())))

    (tmp_path / "in").mkdir()
    before, after = (
        plain("postgresql://ada:hunter2@one.example/shop"),
        plain("postgresql://ada:hunter2@two.example/shop"),
    )
    assert before != after
    for secret in ("hunter2", "ada", "example", "shop"):
        assert secret not in before + after
    given = pipeline(tmp_path, ll.sinks.postgres("postgresql://ada:hunter2@one.example/shop", "stock"))
    told = str(to_plain(record_of(given.graph())))
    assert "postgres://one.example:5432 shop.public.stock" in told and "hunter2" not in told
