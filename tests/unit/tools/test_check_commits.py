"""The check of commit messages, on messages and on repositories that the test makes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tools.check_commits import BASE, Commit, main, problems

SUBJECT = "Fence the older life before reading its image"
BODY = "A life that was killed late could still commit."


def wrong(message: str, parents: tuple[str, ...] = ("p",)) -> list[str]:
    return list(problems(Commit("c" * 40, parents, message)))


def git(folder: Path, *command: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", *who, *command], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(autouse=True)
def no_other_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """A git hook that runs the tests names its own repository in the environment."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, str]:
    """A repository, and its base."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "an old one, before there was a rule; really.")
    return tmp_path, git(tmp_path, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "message",
    [
        f"{SUBJECT}\n\n{BODY}\n",
        f"{'Add ' + 'x' * 68}\n\n{BODY}",
        f"Embed the log\n\n{BODY}",
        f"Pass R10's fence on\n\n{BODY}\n\nSigned-off-by: A <a@example.com>",
        f"Re-cut the mutants\n\n{BODY}",
    ],
)
def test_what_is_fine(message: str) -> None:
    assert wrong(message) == []


@pytest.mark.parametrize(
    ("subject", "what"),
    [
        ("Add " + "x" * 69, "73 characters"),
        ("Add a check.", "ends with a period"),
        ("Add a check; test it", "';'"),
        ("add a check", "not with a capitalised verb"),
        ("The hush of PySpark's own server has a test", "'The', not with a capitalised verb"),
        ("R10: fence first", "not with a capitalised verb"),
        ("Adds a check", "use the imperative"),
        ("Added a check", "use the imperative"),
        ("Adding a check", "use the imperative"),
        ("", "not with a capitalised verb"),
    ],
)
def test_a_subject_that_breaks_the_rule(subject: str, what: str) -> None:
    (told,) = wrong(f"{subject}\n\n{BODY}")
    assert what in told


def test_the_second_line_is_empty() -> None:
    assert wrong(f"{SUBJECT}\n{BODY}\n") == ["the line after the subject is not empty"]


@pytest.mark.parametrize("body", ["", "\n\n", "\n\nAs told.", "\n\nCo-authored-by: A Person Of Note <a@example.com>"])
def test_a_body_is_a_sentence_at_least(body: str) -> None:
    (told,) = wrong(SUBJECT + body)
    assert "there is no body" in told


def test_a_merge_needs_no_body_but_a_subject() -> None:
    assert wrong("Merge branch 'messages'", ("p", "q")) == []
    assert wrong("merged", ("p", "q")) != []


def test_only_commits_after_the_base_are_checked(
    repository: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, base = repository
    assert main(base, folder) == 0
    git(folder, "commit", "-q", "--allow-empty", "-m", SUBJECT, "-m", BODY)
    assert main(base, folder) == 0
    assert "the messages of 1 commits are as they should be" in capsys.readouterr().out
    git(folder, "commit", "-q", "--allow-empty", "-m", "Fixed it.")
    assert main(base, folder) == 1
    told = capsys.readouterr().out
    assert "'Fixed it.': the subject ends with a period" in told
    assert SUBJECT not in told


def test_without_its_base_it_says_so_and_passes(
    repository: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = repository
    assert main(BASE, folder) == 0
    assert "is not in the history of this copy" in capsys.readouterr().out


def test_so_it_does_without_a_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(BASE, tmp_path) == 0
    assert "is not in the history of this copy" in capsys.readouterr().out
