"""The runner of the mutants: what counts as caught, and what shows nothing but a patch that is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.run import Check, judge

THING = """\
class Thing:
    count = 1

def ask():
    return Thing().count
"""
TEST = """\
import thing

def test_it():
    assert thing.ask() == 1
"""
CHECKS = (
    Check("import", ("-c", "import thing"), 60),
    Check("simulator", ("-c", "import thing; thing.ask()"), 60),
    Check("tests", ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests"), 60),
)


def patched(folder: Path, line: str) -> tuple[Path, Path]:
    """A tree, and a patch that has `ask` return something else."""
    tree = folder / "tree"
    for name, text in (("src/thing.py", THING), ("tests/test_thing.py", TEST), ("pyproject.toml", "")):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    patch = folder / "R01-one.patch"
    patch.write_text(
        "# R1: another answer -> it is wrong\n--- a/src/thing.py\n+++ b/src/thing.py\n@@ -4,2 +4,2 @@\n def ask():\n"
        f"-    return Thing().count\n+    {line}\n"
    )
    return tree, patch


@pytest.mark.parametrize(
    ("line", "caught"),
    [("return 2", "test_thing.py::test_it"), ("return None.count", "simulator: AttributeError: 'NoneType'")],
)
def test_a_slip_is_caught(tmp_path: Path, line: str, caught: str) -> None:
    verdict = judge(*patched(tmp_path, line), CHECKS)
    assert verdict.caught and verdict.text.startswith(caught)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("return (", "SyntaxError"),
        ("return count", "NameError: name 'count' is not defined"),
        ("return Thing().counted", "AttributeError: 'Thing' object has no attribute 'counted'"),
        ("from thing import Other", "ImportError"),
    ],
)
@pytest.mark.parametrize("checks", [CHECKS, CHECKS[2:]])
def test_code_that_does_not_fit_is_a_broken_patch(
    tmp_path: Path, line: str, why: str, checks: tuple[Check, ...]
) -> None:
    verdict = judge(*patched(tmp_path, line), checks)
    assert not verdict.caught
    assert verdict.text.startswith("the patch is broken: ") and why in verdict.text


def test_a_slip_that_nothing_notices_survives(tmp_path: Path) -> None:
    verdict = judge(*patched(tmp_path, "return 1"), CHECKS)
    assert not verdict.caught and verdict.text == "survived"


def test_a_failure_without_a_patch_is_shown_as_it_is(tmp_path: Path) -> None:
    tree, _ = patched(tmp_path, "return 1")
    (tree / "src/thing.py").write_text("count")
    verdict = judge(tree, None, CHECKS)
    assert verdict.caught and "NameError" in verdict.text
