"""Tests that share something costly share a worker."""

from __future__ import annotations

import pytest
from tests.scheduling import scope


@pytest.mark.parametrize(
    ("test", "wanted"),
    [
        ("tests/spark/test_sql.py::test_a_join", "spark"),
        ("tests/docs/test_examples.py::test_page[docs/dataframes.md:7]", "spark"),
        ("tests/docs/test_examples.py::test_page[docs/lineage.md:60]", "docs/lineage.md"),
        ("tests/unit/spark/test_hush.py::test_it", "tests/unit/spark/test_hush.py::test_it"),
    ],
)
def test_a_scope(test: str, wanted: str) -> None:
    assert scope(test) == wanted
