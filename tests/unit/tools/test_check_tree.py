"""The checks on the tree that no other tool makes."""

from __future__ import annotations

import pytest
from tools.check_tree import MAX_LINES, ROOT, problems, says_little, too_long


@pytest.mark.parametrize(
    "code",
    [
        '"""Sources and sinks."""',
        'class Spec:\n    """One aggregate."""',
        'def close():\n    """Never."""',
        'class Store:\n    async def set(self):\n        """Replaces it."""',
    ],
)
def test_a_docstring_of_a_few_words_is_found(code: str) -> None:
    ((line, said),) = says_little(code)
    assert line == code.count("\n") + 1 and "under 4 words" in said


@pytest.mark.parametrize(
    "code", ["def close(): ...", 'def close():\n    """Closes the connections to all servers."""']
)
def test_none_at_all_or_a_sentence_is_right(code: str) -> None:
    assert list(says_little(code)) == []


def test_a_file_of_tests_may_be_too_long_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(too_long("\n" * MAX_LINES)) == []
    here = ROOT / "tests/unit/tools/test_check_tree.py"
    monkeypatch.setattr("tools.check_tree.MAX_LINES", 5)
    ((line, said),) = problems(here)
    assert line == 6 and "split it by what it is about" in said
