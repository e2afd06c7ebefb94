"""The documentation does what it says: every Python block of the pages and every doctest of the modules is run.

The blocks of one page share a namespace and run in order, as in a script: `__main__` is the page. A block with
`<!-- not run: reason -->` on the line before it is skipped, for what can't run here. A block with `ll.env("PG")`
finds a PostgreSQL there.
"""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import logline

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+?) -->\n\n?)?```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A piece of Python in a page."""

    line: int
    code: str
    reason: str | None
    """Why it is not run."""


@dataclass
class Page:
    """A page with what its blocks have defined so far."""

    path: Path
    blocks: list[Block]
    module: types.ModuleType = field(default_factory=lambda: types.ModuleType("__main__"))
    done: int = 0

    @classmethod
    def read(cls, path: Path) -> Page:
        text = path.read_text(encoding="utf-8")
        return cls(
            path,
            [
                Block(text.count("\n", 0, found.start("code")) + 1, found["code"], found["reason"])
                for found in _BLOCK.finditer(text)
            ],
        )

    def run_to(self, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
        """Runs what has not run yet, up to this block. What failed once is not tried again."""
        monkeypatch.setitem(sys.modules, "__main__", self.module)
        wanted = self.blocks.index(block) + 1
        while self.done < wanted:
            one = self.blocks[self.done]
            self.done += 1
            if one.reason is None:
                # Empty lines before it, so that a traceback shows the line of the page.
                code = compile("\n" * (one.line - 1) + one.code, str(self.path), "exec")
                exec(code, self.module.__dict__)


def blocks() -> Iterator[Any]:
    for path in PAGES:
        page = Page.read(path)
        for block in page.blocks:
            marks = [] if block.reason is None else [pytest.mark.skip(reason=block.reason)]
            yield pytest.param(page, block, id=f"{path.relative_to(ROOT)}:{block.line}", marks=marks)


def doctests() -> Iterator[Any]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for found in pkgutil.walk_packages(logline.__path__, "logline."):
        if not found.name.endswith("__main__"):
            for test in finder.find(importlib.import_module(found.name)):
                if test.examples:
                    yield pytest.param(test, id=test.name)


@pytest.mark.parametrize(("page", "block"), list(blocks()))
def test_page(page: Page, block: Block, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if any('env("PG")' in one.code for one in page.blocks[page.done :] if one.line <= block.line):
        monkeypatch.setenv("PG", request.getfixturevalue("postgres").dsn)
    page.run_to(block, monkeypatch)


@pytest.mark.parametrize("test", list(doctests()))
def test_docstring(test: doctest.DocTest, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = (None, 0)  # else the slots of a session that tests before it have left
    monkeypatch.setattr("logline.pipeline._room", lambda graph: nobody)
    said: list[str] = []
    result = doctest.DocTestRunner().run(test, out=said.append, clear_globs=False)
    assert result.failed == 0, "".join(said)


def test_there_is_something_to_run() -> None:
    """A pattern that matches nothing would pass in silence."""
    assert Page.read(ROOT / "README.md").blocks
    assert len(list(blocks())) > 10
    assert len(list(doctests())) > 10
