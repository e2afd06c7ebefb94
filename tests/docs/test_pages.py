"""What the pages say about the code is there: links, files, actions, stimuli, invariants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import logline as ll
from logline.engine import actions, stimuli
from logline.runtime.messages import commands, forks, notes, reports
from logline.runtime.messages.wire import Message

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
TODAY = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
"""Pages that say how it is. The changelog and the records of decisions also say how it was."""
IDS = [str(path.relative_to(ROOT)) for path in PAGES]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?|[\w]+\.py)`")


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def classes(module: object, base: type) -> set[str]:
    return {
        name
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base
    }


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_that_are_named_exist(page: Path) -> None:
    folders = (".", "src", "src/logline", "src/logline/engine", "tests/protocol", "tests/conformance")
    places = [ROOT / folder for folder in folders]
    named = _FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


@pytest.mark.parametrize("page", TODAY, ids=lambda page: str(page.relative_to(ROOT)))
def test_public_names_that_are_named_exist(page: Path) -> None:
    """`Log.backward`, `ctx.call`, `ll.sinks.call`: an attribute, or one that is declared and set later."""
    public = {name: getattr(ll, name) for name in ("Pipeline", "Stream", "Run", "Log", "Operator", "Source", "Sink")}
    missing = []
    for first, rest in re.findall(r"`(\w+)\.([\w.]+)", page.read_text(encoding="utf-8")):
        found: object = {**public, "ll": ll, "ctx": ll.KeyContext}.get(first)
        for part in rest.rstrip(".").split(".") if found is not None else ():
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                missing.append(f"{first}.{rest}")
                break
            found = getattr(found, part, None)
    assert missing == []


@pytest.mark.parametrize(
    ("module", "base"),
    [
        (actions, actions.Action),
        (stimuli, stimuli.Stimulus),
        *((module, Message) for module in (commands, forks, notes, reports)),
    ],
)
def test_the_architecture_names_every_action_stimulus_and_message(module: object, base: type) -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    assert {name for name in classes(module, base) if f"`{name}`" not in text} == set()


def test_the_proof_names_every_invariant() -> None:
    sources = sorted((ROOT / "src/logline/testing/sim").glob("*.py"))
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    raised = set(re.findall(r'Violation\(\s*f?"([A-Z][A-Z-]+) ', code))
    listed = set(re.findall(r"\b[A-Z][A-Z-]+[A-Z]\b", (ROOT / "docs/proof.md").read_text(encoding="utf-8")))
    assert len(raised) > 30
    assert raised - listed == set()
