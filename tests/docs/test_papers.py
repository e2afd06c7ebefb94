"""The page on the papers leaves nothing out of LOG.io, and names only tests, mutants, methods and policies that there
are. When something that was planned is there, a test here fails until the page says so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

import logline as ll
from logline.errors import OptionError
from logline.graph.model import Policy
from logline.graph.options import Honoured, RowOptions, SourceOptions, WriterOptions, resolve

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
STATES = {"yes", "other", "planned", "no"}

TABLE_7 = (
    "GetActionID GetStateID BeginTransaction InitializeReadAction CompleteReadAction DropReadAction LogStateEvent "
    "UpdateContext GetWriteActions CheckEvent AssignInSets"
)
TABLE_8 = "Commit LogSourceEvent LogOutputEvents DoneEvent StoreState"
TABLE_9 = "FetchAckEvents FetchResendEvent GetProcState"


def rows(section: str) -> list[list[str]]:
    """The cells of all tables below a heading, up to the next heading of its rank."""
    rank = section.partition(" ")[0]
    below = PAGE.partition(f"\n{section}\n")[2]
    assert below, f"there is no heading {section!r}"
    text = re.split(rf"^#{{1,{len(rank)}}} ", below, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize(
    ("section", "word", "count"),
    [
        ("### Algorithms", "Algorithm", 13),
        ("### Examples", "Example", 11),
        ("### Tables 1 to 6, and figures", "Table", 6),
    ],
)
def test_everything_that_log_io_numbers_has_a_row(section: str, word: str, count: int) -> None:
    begin = [found[1] for row in rows(section) if (found := re.match(rf"{word} (\d+)\b", row[0]))]
    assert set(begin) == {str(number) for number in range(1, count + 1)}


@pytest.mark.parametrize("methods", [TABLE_7, TABLE_8, TABLE_9])
def test_every_method_of_log_io_has_a_row(methods: str) -> None:
    first = {row[0].strip("`") for row in rows("### Tables 7 to 9: the API")}
    assert set(methods.split()) - first == set()


@pytest.mark.parametrize(
    "section",
    ["### Sections", "### Algorithms", "### Examples", "## Clonos", "## CEC", "## Lineage Stash", "## Falkirk Wheel"],
)
def test_every_row_says_whether_it_is_here(section: str) -> None:
    head, *body = rows(section)
    assert head[1] == "here"
    assert [row[0] for row in body if row[1] not in STATES] == []


def test_tests_that_are_named_exist() -> None:
    sources = (ROOT / "tests").rglob("test_*.py")
    there = set(re.findall(r"def (test_\w+)\(", "".join(path.read_text(encoding="utf-8") for path in sources)))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 50
    assert named - there == set()


def test_mutants_that_are_named_exist() -> None:
    there = {path.stem for path in (ROOT / "tests/mutants").glob("*.patch")}
    named = set(re.findall(r"`(R\d\d-[\w-]+)`", PAGE))
    assert len(named) > 15
    assert named - there == set()


def existing() -> set[str]:
    """What a reader can use today, by its name: examples, policies, options, what streams and runs can do."""
    examples = {path.name.partition(".")[0] for path in (ROOT / "examples").iterdir()}
    options = set(WriterOptions.__optional_keys__ | RowOptions.__optional_keys__ | SourceOptions.__optional_keys__)
    public = {name for owner in (ll.Stream, ll.Run, ll.Log, ll.Pipeline) for name in vars(owner)}
    found = {name.lower() for name in examples | options | public | set(get_args(Honoured)) if name[0] != "_"}
    return found - COMMON_WORDS


COMMON_WORDS = {"forward", "lineage", "log", "operator", "state", "time"}
"""Names that papers use for something else."""


def test_what_is_planned_is_not_there() -> None:
    tables = re.findall(r"^\| (.+) \| planned \|(.*)\|$", PAGE, re.MULTILINE)
    assert len(tables) > 20
    there = existing()
    named = {part: there.intersection(re.findall(r"\w+", part.lower())) for part, _ in tables}
    assert {part: names for part, names in named.items() if names} == {}
    policies = {policy for _, where in tables for policy in re.findall(r'policy="(\w+)"', where)}
    assert policies.isdisjoint(get_args(Honoured)) and policies


def test_no_page_says_that_one_policy_is_the_only_one() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    said = r'only policy|only `?"?pessimistic"?`? is honoured'
    assert len(get_args(Honoured)) > 1
    assert [name for name, text in pages.items() if re.search(said, text)] == []


@pytest.mark.parametrize("policy", get_args(Policy))
def test_a_policy_is_refused_on_the_page_as_long_as_it_is_refused(policy: str) -> None:
    says_refused = re.search(rf'`policy="{policy}"` (?:is|and .* are) refused', re.sub(r"\s+", " ", PAGE)) is not None
    if policy in get_args(Honoured):
        assert not says_refused
    else:
        assert says_refused
        with pytest.raises(OptionError, match="not honoured yet"):
            resolve("any", "operator", {"policy": policy})
