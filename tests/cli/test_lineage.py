"""`lineage`, `sql`, `rerun`: a log that nobody runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.cli.harness import environment, logline, write_sales
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sales pipeline with a lineage scope, run to its end."""
    folder = tmp_path_factory.mktemp("sales")
    script = write_sales(folder)
    text = script.read_text().replace('if __name__ == "__main__":', 'sales.lineage()\n\nif __name__ == "__main__":')
    script.write_text(text)
    said = logline("run", script, "--log", folder / "log", "--engine", "inline")
    assert said.returncode == 0, said.stderr
    return folder


def ask(folder: Path, command: str, *arguments: str, code: int = 0) -> str:
    said = logline(command, folder / "log", *arguments)
    assert said.returncode == code, said.stderr
    return said.stdout if not code else said.stdout + said.stderr


def test_a_tree_with_counts_and_samples(folder: Path) -> None:
    lines = ask(folder, "lineage", "blocks:2", "--samples", "1").splitlines()
    assert lines[0] == "blocks:2  1 record"
    assert "total: 290" in lines[1]
    assert [line for line in lines if "priced:11 " in line]
    assert any(re.search(r"orders:11  1 record  \[read from outside\]", line) for line in lines)
    forward = ask(folder, "lineage", "orders:11", "--forward")
    assert "blocks:2" in forward


def test_by_what_records_say(folder: Path) -> None:
    said = ask(folder, "lineage", "blocks", "--where", "total = 290", "--to", "orders", "--format", "json")
    found = {row["event"] for row in json.loads(said) if row["operator"] == "orders"}
    assert found == {f"orders:{n}" for n in range(11, 21)}
    assert "no event of 'blocks' in the log has a record with total = 7" in ask(
        folder, "lineage", "blocks", "--where", "total = 7", code=1
    )
    assert "there is no operator 'nobody'" in ask(folder, "lineage", "nobody:1", code=1)


def test_drawings(folder: Path) -> None:
    dot = ask(folder, "lineage", "blocks:1", "--format", "dot")
    assert '"orders:1" -> "priced:1"' in dot
    svg = ElementTree.fromstring(ask(folder, "lineage", "blocks:1", "--format", "svg"))
    texts = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"blocks", "priced", "orders", "blocks:1", "orders:10"} <= texts


def test_why_a_row_is_not_there(folder: Path) -> None:
    said = ask(folder, "explain", "blocks", "--where", "n in (3, 99)").splitlines()
    assert said[0] == 'orders:4 row 0  {"n": 3}'
    assert said[1].startswith("  arrived (event level) at blocks: blocks:1 came of its event")
    (row,) = json.loads(ask(folder, "explain", "priced", "--where", "n = 99", "--format", "json"))
    assert (row["source"], row["what"]) == ("orders", "unread")
    found = json.loads(ask(folder, "explain", "store", "--where", "n < 12", "--source", "priced", "--format", "json"))
    assert {(r["what"], r["level"]) for r in found} == {("arrived", "row")}
    cut = ask(folder, "explain", "blocks", "--where", "n < 3", "--rows", "1").splitlines()
    assert cut[-1] == "... and 2 more: --rows 3"
    assert "there is no operator 'nobody'" in ask(folder, "explain", "nobody", "--where", "true", code=1)


def test_sql(folder: Path) -> None:
    said = ask(folder, "sql", "select sum(total) as all_of_it from blocks", "--format", "json")
    assert json.loads(said) == [{"all_of_it": 1560}]
    assert "blocks:1" in ask(folder, "sql", "select event from lineage_edges where input = 'priced:3'")
    assert "can't be answered" in ask(folder, "sql", "select 1 from read_text('/etc/passwd')", code=1)


def test_replay_finds_the_file_that_ran(folder: Path) -> None:
    said = ask(folder, "rerun", "blocks:2")
    assert "result      the same: 1 events, 1 records" in said
    assert str(folder) in said


def test_replay_with_changed_code(folder: Path) -> None:
    fixed = folder / "fixed.py"
    fixed.write_text((folder / "sales.py").read_text().replace("pa.array([price(n)", "pa.array([1 + price(n)"))
    said = ask(folder, "rerun", "priced:5", "--with", str(fixed), code=1)
    assert "changed since the run" in said
    assert "out - n: 4, price: 8" in said
    assert "out + n: 4, price: 9" in said


MADE = """
import logline as ll
import pyarrow as pa

def build(last=2):
    p = ll.Pipeline("sums")
    numbers = p.source("numbers", ll.sources.batches([pa.table({"n": [1, last]})]))
    numbers.map_batches("same", lambda batch: pa.table({"n": batch["n"]}), schema="n long")
    p.lineage()
    return p
"""
RUN = "import sums; sums.build(3).run('lmdb:log', engine='inline', until='now')"


def test_rerun_finds_the_pipeline_of_a_run_that_python_has_started(tmp_path: Path) -> None:
    """What runs it is another file, or none: the log knows the one that makes the pipeline, and the function."""
    (tmp_path / "sums.py").write_text(MADE)
    (tmp_path / "scheduler.py").write_text(RUN)
    for how in (["scheduler.py"], ["-c", RUN]):
        ran = subprocess.run([sys.executable, *how], cwd=tmp_path, env=environment(), check=False, timeout=PATIENCE)
        assert ran.returncode == 0
        again = ask(tmp_path, "rerun", "same:1")
        assert f"code        {tmp_path / 'sums.py'}:build\n" in again and "the same" in again
    (tmp_path / "sums.py").unlink()
    lost = ask(tmp_path, "rerun", "same:1", code=1)
    assert f"its pipeline is in {tmp_path / 'sums.py'}:build, but there is no file" in lost
    assert "say --with FILE[:NAME], a file with the pipeline at module level, or with a function NAME" in lost


def test_rerun_says_what_to_name_where_no_file_makes_the_pipeline(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MADE + RUN.replace("import sums; sums.", "")],
        cwd=tmp_path,
        env=environment(),
        check=False,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0
    lost = ask(tmp_path, "rerun", "same:1", code=1)
    assert "the log does not know the file of its pipeline, made in a notebook or alike: say --with" in lost
