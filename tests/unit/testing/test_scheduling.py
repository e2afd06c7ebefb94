"""Tests that share something costly share a worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.scheduling import OWN_SESSIONS, rank, scope
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("test", "wanted"),
    [
        ("tests/spark/test_sql.py::test_a_join", "spark"),
        ("tests/spark/test_jvm.py::test_it_stands_still", "tests/spark/test_jvm.py::test_it_stands_still"),
        ("tests/docs/test_examples.py::test_page[docs/dataframes.md:7]", "spark"),
        ("tests/docs/test_examples.py::test_page[docs/lineage.md:60]", "docs/lineage.md"),
        ("tests/unit/spark/test_hush.py::test_it", "tests/unit/spark/test_hush.py::test_it"),
    ],
)
def test_a_scope(test: str, wanted: str) -> None:
    assert scope(test) == wanted


@pytest.mark.parametrize("file", OWN_SESSIONS)
def test_whoever_has_a_session_of_its_own_does_not_want_the_shared_one(file: str) -> None:
    source = (Path(__file__).parents[2] / "spark" / f"{file}.py").read_text()
    assert "spark: SparkSession" not in source


def test_long_ones_come_first() -> None:
    tests = ["tests/unit/graph/test_plan.py::test_it", "tests/chaos/test_month.py::test_a_month", "docs/lineage.md"]
    assert sorted(tests, key=rank)[0] == tests[1]


def test_a_worker_that_crashes_fails_one_test_and_others_do_the_rest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    from tests.scheduling import Together\n"
        "    return Together(config, log)\n"
    )
    (tmp_path / "test_many.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.parametrize('n', range(20))\n"
        "def test_one(n):\n"
        "    if n in (7, 8, 19):\n"
        "        os._exit(3)\n"
    )
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "-q", str(tmp_path)]
    ended = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "3 failed, 17 passed" in ended.stdout
    for n in (7, 8, 19):  # two at about the same time: their successors collect at different moments
        assert f"crashed while running 'test_many.py::test_one[{n}]'" in ended.stdout
