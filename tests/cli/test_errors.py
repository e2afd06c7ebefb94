"""`logline errors`: dead letters of a pipeline that runs in other processes, retried and dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from tests.cli.harness import logline, started, write_sales
from tests.waiting import PATIENCE, until

import logline as ll


def test_errors_are_listed_shown_retried_and_dropped(tmp_path: Path) -> None:
    path = write_sales(tmp_path, go=False)
    path.write_text(path.read_text().replace('"priced", priced)', '"priced", priced, on_error="divert")'))
    (tmp_path / "prices.py").write_text(
        "from pathlib import Path\n\n\ndef price(n):\n"
        "    if n in (3, 4) and not (Path(__file__).parent / 'fixed').exists():\n"
        "        raise ValueError(f'no price for {n}')\n    return 2 * n\n"
    )
    log = tmp_path / "log"
    child = started("run", path, "--log", log, "--engine", "processes")
    until((log / "graph.json").exists)
    opened = ll.open_log(f"lmdb:{log}")
    until(lambda: opened.errors().num_rows == 2)
    text = logline("errors", log).stdout
    assert "priced.errors:1  waiting  orders:4   1       ValueError: no price for 3" in text
    rows = logline("errors", log, "priced", "--rows", "--format", "json").stdout
    assert [(row["_event"], row["_state"], row["n"]) for row in json.loads(rows)] == [
        ("priced.errors:1", "waiting", 3),
        ("priced.errors:2", "waiting", 4),
    ]
    assert "raise ValueError(f'no price for {n}')" in logline("show", log, "priced.errors:1").stdout
    (tmp_path / "fixed").touch()
    assert logline("errors", log, "retry", "priced.errors:1").stdout == "priced.errors:1 is retried\n"
    exported = logline("errors", log, "export", "priced.errors:2", tmp_path / "fixed.csv").stdout
    assert exported.startswith("1 rows of priced.errors:2 are in ")
    assert "4" in (tmp_path / "fixed.csv").read_text()
    assert (
        "already: choose another name"
        in logline("errors", log, "export", "priced.errors:2", tmp_path / "fixed.csv").stderr
    )
    (tmp_path / "wrong.jsonl").write_text('{"m": 1}\n')
    wrong = logline("errors", log, "retry", "priced.errors:2", "--with", tmp_path / "wrong.jsonl")
    assert wrong.returncode == 1 and "'n'" in wrong.stderr
    (tmp_path / "fixed.csv").write_text('"n"\n100\n')
    fixed = logline("errors", log, "retry", "priced.errors:2", "--with", tmp_path / "fixed.csv").stdout
    assert fixed == "priced.errors:2 is retried\n"
    until(lambda: opened.errors().num_rows == 0)
    assert logline("errors", log, "drop", "--all").stdout == "no error waits\n"
    assert logline("errors", log, "retry", "--all", "--with", tmp_path / "fixed.csv").returncode == 2
    assert json.loads(logline("errors", log, "--format", "json").stdout) == []
    assert logline("errors", log, "retry").returncode == 2
    other = logline("errors", log, "retry", "priced:1")
    assert (
        other.returncode == 1 and "named as priced.errors:1, and log.errors() or `logline errors LOG`" in other.stderr
    )
    missing = logline("errors", log, "retry", "priced.errors:9")
    assert missing.returncode == 1 and "has put out 1..3" in missing.stderr
    (tmp_path / "go").touch()
    _, said = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, said
    totals = pq.read_table(tmp_path / "out")["total"].to_pylist()
    assert sum(totals) == sum(2 * n for n in range(40) if n != 4) + 200
