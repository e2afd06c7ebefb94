"""Tests that share something costly share a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scheduling import OWN_SESSIONS, scope


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
