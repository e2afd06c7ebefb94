"""Breaks Logline on purpose: every patch in this folder is one slip, and a test must notice each of them.

    python tests/mutants/run.py                     all of them, with a table of what caught which
    python tests/mutants/run.py --only R05 --jobs 1 those whose name begins like this
    python tests/mutants/run.py --markdown          the table as it stands in docs/proof.md
    python tests/mutants/run.py --resume .mutants.json     goes on where it was stopped

A patch is applied to a throwaway copy of the tree. The checks go from the fastest to the slowest until one fails;
a check that hangs has failed too. At the end the checks that caught something run once on the unbroken tree: one
that fails there as well has caught nothing. Exit code 1 if a mutant survives or a patch does not apply.

A slip is wrong code that runs. A patch whose code can't be imported, or asks for a name that is not there any more,
is broken: any test would fail, so none has caught it.

A patch begins with a line `# R5: what is broken -> what comes of it`, or with one of `LAYERS` instead of a rule: the
simulator does not see what is around the engine, which has tests of its own. Hunks are small (one line of context),
so that they survive changes nearby; one that no longer applies is to be made anew, not dropped.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TREE = ("src", "tests", "pyproject.toml")
HANGS = "hangs for"


@dataclass(frozen=True)
class Check:
    """One way to notice a mutant."""

    name: str
    arguments: tuple[str, ...]
    timeout: int
    """Seconds; far beyond what the unbroken tree needs."""


def _pytest(*paths: str) -> tuple[str, ...]:
    there = (p for p in paths if (ROOT / p.partition("::")[0]).exists())
    return ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *there)


def _simulate(schedules: int) -> tuple[str, ...]:
    return ("-m", "logline.testing", "simulate", "--stop", "--seed", "1", "--schedules", str(schedules))


CHECKS = (
    Check("import", ("-c", "import logline.pipeline, logline.runtime.control.launch, logline.testing.sim.runs"), 60),
    Check("simulator", _simulate(150), 120),
    Check(
        "tests",
        _pytest(
            "tests/protocol/test_rules.py",
            "tests/protocol/test_event_time.py",
            "tests/protocol/test_logio_examples.py",
            "tests/protocol/test_logio_tables.py",
            "tests/unit/engine/test_checkpointing.py",
            "tests/unit/engine/test_error_resolution.py",
            "tests/unit/engine/test_outbox.py",
            "tests/unit/engine/test_port_time.py",
            "tests/unit/engine/test_retention.py",
            "tests/unit/engine/test_whole_members.py",
            "tests/unit/engine/test_writing.py",
            "tests/unit/runtime/control/test_changed_operators.py",
            "tests/unit/runtime/control/test_eventual.py",
            "tests/unit/runtime/control/test_evolution.py",
            "tests/unit/runtime/control/test_incremental.py",
            "tests/unit/runtime/control/test_reopening.py",
            "tests/unit/runtime/control/test_resume.py",
            "tests/unit/runtime/control/test_run.py",
            "tests/unit/runtime/control/test_stopping.py",
            "tests/unit/runtime/control/test_time_behind_sets.py::"
            "test_a_session_that_begins_earlier_by_now_holds_time_back_for_that",
            "tests/unit/runtime/lives/test_given_up.py",
            "tests/unit/runtime/lives/test_mistakes.py",
            "tests/unit/runtime/lives/test_tries.py",
            "tests/unit/store/test_lmdb.py::test_another_boot_is_refused_for_process",
            "tests/unit/store/test_lmdb.py::test_a_reader_finds_a_damaged_event_before_anybody_claims",
            "tests/unit/store/test_lmdb.py::test_journals_against_each_other",
        ),
        240,
    ),
    Check(
        "tests",
        _pytest(
            "tests/unit/connectors/test_tables.py",
            "tests/unit/connectors/test_sqlite.py",
            "tests/unit/connectors/test_postgres.py",
            "tests/unit/connectors/test_text_files.py",
        ),
        400,
    ),
    Check("tests", _pytest("tests/unit/engine", "tests/conformance/test_memory_store.py"), 240),
    Check("simulator", _simulate(1000), 240),
    Check("tests", _pytest("tests/protocol/test_crash_points.py"), 400),
)

LAYERS = {
    "runtime": (
        "tests/unit/runtime/lives/test_suspects.py",
        "tests/unit/runtime/lives/test_copies.py",
        "tests/unit/runtime/hosts/test_pipes.py",
        "tests/unit/runtime/lives/test_reading.py",
    ),
    "store": ("tests/unit/store/test_compaction.py", "tests/unit/store/test_lmdb.py"),
    "postgres": ("tests/unit/store/test_postgres.py", "tests/conformance/test_postgres_store.py"),
    "supervision": ("tests/unit/runtime/control/test_supervisor.py", "tests/unit/runtime/control/test_closing.py"),
    "payloads": (
        "tests/unit/runtime/lives/test_payloads.py",
        "tests/unit/runtime/lives/test_reused_memory.py",
        "tests/unit/operators/test_window.py",
    ),
    "operators": ("tests/unit/operators",),
    "connectors": ("tests/conformance/test_connectors.py", "tests/unit/connectors"),
    "lineage": (
        "tests/unit/lineage/test_records.py",
        "tests/unit/lineage/test_sql.py",
        "tests/unit/lineage/test_queries.py",
        "tests/unit/lineage/test_explain.py",
        "tests/unit/lineage/test_explain_unfinished.py",
    ),
    "spark": (
        "tests/unit/spark/test_settings.py",
        "tests/unit/spark/test_watchdog.py",
        "tests/unit/spark/test_respawn.py",
    ),
}
"""What is around the engine, and the tests that see it."""


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    patch: Path
    check: Check | None
    """The one that caught it; None if none did, if there was nothing to run, or if the patch is broken."""
    text: str

    @property
    def caught(self) -> bool:
        return self.check is not None


def headline(patch: Path) -> tuple[str, str]:
    """The rule that a patch breaks, or the layer, and how."""
    found = re.match(r"# (R\d+'?|[a-z]+): (.+)", patch.read_text().splitlines()[0])
    if found is None or (found[1].islower() and found[1] not in LAYERS):
        raise SystemExit(f"{patch.name}: the first line must be '# R5: what is broken -> what comes of it'")
    return found[1], found[2]


def checks_for(patch: Path) -> tuple[Check, ...]:
    """The checks that could notice it."""
    layer, _ = headline(patch)
    return (CHECKS[0], Check("tests", _pytest(*LAYERS[layer]), 240)) if layer in LAYERS else CHECKS


def copy_tree(source: Path, copy: Path) -> None:
    """What the checks need, nothing else."""
    for name in TREE:
        if (source / name).is_dir():
            shutil.copytree(source / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source / name, copy / name)


def judge(tree: Path, patch: Path | None, checks: tuple[Check, ...] | None = None) -> Verdict:
    """Runs the checks on a copy of the tree, broken by the patch, until one fails."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder).resolve()
        copy_tree(tree, copy)
        if patch is not None:
            # Not as part of a repository around the temporary folder, where paths would be silently skipped.
            away = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
            applied = subprocess.run(
                ["git", "apply", str(patch)], cwd=copy, env=away, capture_output=True, text=True, check=False
            )
            if applied.returncode:
                return Verdict(patch, None, f"does not apply: {applied.stderr.strip().splitlines()[0]}")
        for check in checks if checks is not None else checks_for(patch) if patch is not None else CHECKS:
            output = _failure(check, copy)
            if output is None:
                continue
            if patch is not None and (why := broken(check, output, copy)) is not None:
                return Verdict(patch, None, f"the patch is broken: {why}")
            return Verdict(patch or HERE, check, _explain(check, output))
    return Verdict(patch or HERE, None, "survived")


def _failure(check: Check, copy: Path) -> str | None:
    """What the check prints when it fails on this copy, None if it passes."""
    env = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    child = subprocess.Popen(
        [sys.executable, *check.arguments],
        cwd=copy,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    patience = check.timeout * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # others may be at work here too
    try:
        output, _ = child.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)  # and what it started
        child.communicate()
        return f"{HANGS} {patience:.0f} s"
    return None if child.returncode == 0 else output


def broken(check: Check, output: str, copy: Path) -> str | None:
    """Why the failure shows nothing but a patch that no longer fits its code, if that is so."""
    if check.name == "import":
        return _last_line(output)
    # What pytest shows of the failure itself; what a test expects or logs is no reason.
    lines = re.findall(r"^E\s+(.*)", output, re.MULTILINE) if check.name == "tests" else output.splitlines()
    for line in lines:
        if re.search(r"\b(?:NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError): ", line):
            return line.strip()
        missing = re.search(r"\bAttributeError: .*?'([\w.]+)'(?: object)? has no attribute", line)
        if missing is not None and _is_ours(missing[1], copy):
            return line.strip()
    return None


def _is_ours(name: str, copy: Path) -> bool:
    """Whether this is a class or a module of the tree. That None lacks something may be what a slip does."""
    if name.partition(".")[0] in {path.stem for path in (copy / "src").iterdir()}:
        return True
    pattern = re.compile(rf"^\s*class {re.escape(name)}\b", re.MULTILINE)
    return any(pattern.search(path.read_text(encoding="utf-8")) for path in (copy / "src").rglob("*.py"))


def _last_line(output: str) -> str:
    return output.strip().splitlines()[-1][:120] if output.strip() else "failed"


def _explain(check: Check, output: str) -> str:
    if output.startswith(HANGS):
        return f"{check.name}: {output}"
    if check.name == "tests":
        found = re.search(r"^(?:FAILED|ERROR) tests/(\S+)", output, re.MULTILINE)
        if found is not None:
            return found[1]
    if check.name == "simulator":
        # User code of the simulator notices some things itself: then the life halts with what it says.
        found = re.search(
            r"--seed (\d+) --schedules 1: [^:]*: (?:Violation: (?:HALT \w+: (?:Violation: )?)?)?([\w-]+)", output
        )
        if found is not None:
            return f"simulator: {found[2]} at seed {found[1]}"
        missing = re.search(r"^never killed at.*", output, re.MULTILINE)
        if missing is not None:
            return f"simulator: {missing[0]}"
    return f"{check.name}: {_last_line(output)}"


def table(verdicts: list[Verdict], *, markdown: bool) -> str:
    """Mutant, rule, what is broken, what caught it."""
    rows = [(v.patch.stem, *headline(v.patch), v.text) for v in verdicts]
    if markdown:
        head = ["| mutant | rule or layer | what is broken | caught by |", "|---|---|---|---|"]
        return "\n".join([*head, *(f"| `{name}` | {rule} | {what} | {by} |" for name, rule, what, by in rows)])
    width = max(len(name) for name, *_ in rows)
    return "\n".join(f"{name:<{width}}  {rule:<11}  {by}" for name, rule, _, by in rows)


class Known:
    """The verdicts of an earlier run that was stopped, in a file. One counts as long as its patch is the same."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}

    def judge(self, tree: Path, patch: Path) -> Verdict:
        """What is known of the patch, or what is found now."""
        text, checks = patch.read_text(), checks_for(patch)
        known = self._found.get(patch.stem)
        if known is not None and known["patch"] == text:
            return Verdict(patch, checks[known["check"]], known["text"])
        verdict = judge(tree, patch, checks)
        if verdict.caught and self._path is not None:
            assert verdict.check is not None
            self._found[patch.stem] = {"patch": text, "check": checks.index(verdict.check), "text": verdict.text}
            aside = self._path.with_name(f"{self._path.name}.new")
            aside.write_text(json.dumps(self._found))
            aside.replace(self._path)
        return verdict


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Runs every mutant; all must be caught.")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="only those whose name begins so")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default %(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table as markdown")
    parser.add_argument("--resume", type=Path, help="keep verdicts in a file, and take those that are there")
    given = parser.parse_args()
    known = Known(given.resume)
    patches = sorted(p for p in HERE.glob("*.patch") if p.name.startswith(tuple(given.only)))
    if not patches:
        raise SystemExit(f"no mutant is named {' or '.join(given.only)}...")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(given.jobs) as pool:
        tree = Path(folder).resolve()
        copy_tree(ROOT, tree)  # the same for all, though somebody edits a file meanwhile
        verdicts = []
        for verdict in pool.map(partial(known.judge, tree), patches):
            verdicts.append(verdict)
            print(f"{len(verdicts)}/{len(patches)} {verdict.patch.stem}: {verdict.text}", file=sys.stderr, flush=True)
        used = {v.check for v in verdicts if v.check is not None}
        sound = list(pool.map(lambda check: judge(tree, None, (check,)), used))
    print(table(verdicts, markdown=given.markdown))
    caught = sum(v.caught for v in verdicts)
    print(f"\n{caught} passed, {len(verdicts) - caught} failed")
    broken = [v.text for v in sound if v.check is not None]
    for text in broken:
        print(f"fails without a mutant too, so what it caught does not count: {text}")
    return 1 if broken or caught < len(verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
