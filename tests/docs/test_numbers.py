"""Numbers that the pages give are those of the code. A sentence with a number that the code has belongs in here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from tests.mutants.run import HERE, headline
from tools.check_tree import MAX_LINES

from logline.cli.status import SILENCE
from logline.engine.intake import LONG, SHORT
from logline.engine.reading import REMEMBERED
from logline.engine.spec import Limits
from logline.graph.connector import Guarantee
from logline.lineage.openlineage import transport
from logline.runtime.control import exporting
from logline.runtime.control.supervisor import LONGEST, PATIENCE, Supervisor, back_off
from logline.runtime.lives.inline import POLL
from logline.runtime.lives.instances import Instance
from logline.runtime.lives.suspects import DEATHS
from logline.store.encoding import FORMAT
from logline.store.lmdb.environment import MAP
from logline.testing.sim.faults import Faults
from logline.testing.sim.runs import ALL_POINTS, Simulator
from logline.testing.sim.scenarios import ReadKind, Scenario, chain

ROOT = Path(__file__).parents[2]
LIMITS = Limits()
MIB = 1 << 20
PAUSES = [LIMITS.write_retry.delay(tries) / 1_000_000 for tries in range(1, LIMITS.write_retry.attempts)]


def _default(kind: type, name: str) -> object:
    return next(field.default for field in fields(kind) if field.name == name)


SAID = {
    "docs/architecture.md": [
        f"until it has {_default(Instance, 'items')} events, `within` has passed",
        f"up to {LIMITS.commit_events:,} outputs or {LIMITS.commit_bytes // MIB} MiB",
        f"at most {LIMITS.ack_after // 1000} ms (R3)",
        f"up to {LIMITS.fetch_events} events or {LIMITS.fetch_bytes // MIB} MiB at once",
        f"read ahead up to {LIMITS.inbox_bytes // MIB} MiB",
        f"adapts, up to {LIMITS.run_events}: doubled while it takes under {SHORT // 1000} ms",
        f"cut when it takes over {LONG // 1000} ms",
        f"has grown by {LIMITS.collect_events} events",
        f"While a receiver is {LIMITS.port_bytes // MIB} MiB behind",
        f"costs the inline engine's look around, {'a second' if POLL == 1_000_000 else POLL} at most",
    ],
    "docs/options.md": [
        f"a write {LIMITS.write_retry.attempts} times, the pauses {PAUSES[0]:g} s, {PAUSES[1]:g} s",
    ],
    "docs/connectors.md": [f"{LIMITS.write_retry.attempts} times within {sum(PAUSES):.0f} seconds"],
    "docs/writing-connectors.md": [
        f"{LIMITS.write_retry.attempts} times within {sum(PAUSES):.0f} seconds",
        f"asks again within {'a second' if POLL == 1_000_000 else POLL}",
        f"one of the last {REMEMBERED:,} that this life",
    ],
    "docs/operations.md": [
        f"after {Supervisor.silence:.0f} seconds without a report",
        f"after {Supervisor.crashes} deaths in a row",
        f"has last written down how it is, exceeds {SILENCE:.0f}",
        f"this version of Logline reads {FORMAT}",
        f"{MAP >> 30} GiB of address space",
        f"{LIMITS.port_bytes // MIB} MiB of a port",
    ],
    "docs/coming-from.md": [f"after {Supervisor.crashes} deaths in a row the run ends"],
    "docs/papers.md": [f"bytes in the log, {LIMITS.port_bytes // MIB} MiB a port"],
    "docs/spark.md": [
        f"the log says so after {PATIENCE:.0f} seconds, and again after {2 * PATIENCE:.0f}, {4 * PATIENCE:.0f}",
        f"after {Supervisor.silence:.0f} s without a report",
        f"up to {Supervisor.silence * LONGEST / 60:.0f} minutes, since it may only be slow",
        f"further ones back off up to {back_off(1000)} seconds",
        f"after {Supervisor.crashes} deaths in a row, each within {Supervisor.soon:.0f} seconds",
        f"is set aside after {DEATHS} more deaths",
    ],
    "docs/lineage.md": [
        f"up to {transport.MOST:,} events wait",
        f"for {'three' if exporting.PATIENCE == 3 else exporting.PATIENCE} seconds at most",
    ],
    "docs/proof.md": [
        f"There are {len({kind for kind, _ in ALL_POINTS})} kinds of action",
        f"one of these {len(ALL_POINTS)} points",
    ],
    "CONTRIBUTING.md": [f"none over {MAX_LINES}"],
}

SOURCES: dict[str, ReadKind] = {
    "replayable": "replayable",
    "not replayable": "non-replayable",
    "destructive": "destructive",
}
TARGETS: tuple[Guarantee, ...] = ("positioned", "guarded", "named")


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("page", "said"), [(page, said) for page, lines in SAID.items() for said in lines])
def test_a_number_on_a_page_is_that_of_the_code(page: str, said: str) -> None:
    assert said in text_of(page), f"{page} should say: {said}"


def test_the_first_deaths_cost_no_pause_as_the_page_says() -> None:
    assert [back_off(deaths) > 0 for deaths in (1, 2, 3)] == [False, False, True]


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    simulator = Simulator()
    yield simulator
    simulator.close()


def test_crash_points_are_those_of_the_schedules(simulator: Simulator) -> None:
    """Those that `tests/protocol/test_crash_points.py` runs, counted in a run without faults."""

    def points(scenario: Scenario, seed: int = 1) -> int:
        return simulator.run(scenario, seed, Faults(), "calm").points

    text, together = text_of("docs/proof.md"), 0
    for said, kind in SOURCES.items():
        found = [points(chain(kind, target)) for target in TARGETS]
        together += sum(found)
        row = f"| {said} | {found[0]} points | {found[1]} | {found[2]} |"
        assert row in text, f"docs/proof.md should have the row {row}"
    twice = 4 * len(range(0, points(chain("non-replayable", "positioned"), 3), 4))
    applied = points(chain("replayable", "positioned", events=8, plain=True))
    for said in (
        f"Together {together:,} runs",
        f"makes {applied} further runs",
        f"A further {twice} runs kill twice",
    ):
        assert said in text, f"docs/proof.md should say: {said}"


NEVER_RUN = "not run for this table yet"


def test_every_mutant_has_a_row() -> None:
    page = (ROOT / "docs/proof.md").read_text(encoding="utf-8")
    table = page.partition("<!-- mutants -->")[2].partition("<!-- /mutants -->")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    patches = sorted(HERE.glob("*.patch"))
    assert [row[:3] for row in rows] == [[f"`{patch.stem}`", *headline(patch)] for patch in patches]
    never = sum(row[-1] == NEVER_RUN for row in rows)
    assert f"{len(rows)} mutants." in table
    assert f"{len(rows) - never} of them have a verdict here" in table and f"; {never} were never run" in table


def test_every_rule_that_is_named_is_in_the_table() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    there = set(re.findall(r"^\| (R\d+'?) \|", page.partition("## The rules")[2], re.MULTILINE))
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert set(re.findall(r"\bR[1-9]\d?(?:'(?!s))?", pages)) - there == set()
