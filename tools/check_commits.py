"""Checks the messages of the commits made since BASE; part of `make lint`. CONTRIBUTING.md says the rule.

    Fence the older life before reading its image        at most 72 characters, imperative, no period, no ';'
                                                         an empty line
    A life that was killed late could still commit.      why, in a sentence at least
    The claim now comes first (R10).

A cheap check can't tell a verb from a noun. It refuses what is surely no imperative: an article or a pronoun at the
start, "Adds", "Added", "Adding". A merge commit needs no body. Older commits are not checked: BASE is where the rule
began. Where BASE is not in the history (a shallow clone, an archive without .git) the check says so and passes.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BASE = "fd746eed7c52090fe45d8c5b633cf1e4978dd594"
MAX_SUBJECT = 72
WORDS = 5
"""Words that make a sentence."""

NO_VERB = re.compile(
    "A|All|An|And|Any|Both|But|Each|Every|He|Her|His|How|I|If|In|It|Its|My|No|Not|Of|On|One|Our|Some|That|The|Their"
    "|There|These|They|This|Those|To|We|What|When|Where|Which|Who|Why|With|You|Your"
)
OTHER_FORM = re.compile(r"\w*(ed|ing|[^s]s)")
IMPERATIVE = re.compile(
    "Alias|Bias|Bring|Embed|Exceed|Feed|Focus|Need|Proceed|Seed|Shed|Shred|Speed|String|Succeed|Swing|Weed"
)
"""Those that look like another form."""
TRAILER = re.compile(r"[A-Z][\w-]*-by: |(Refs|Closes|Fixes): ")


class Commit(NamedTuple):
    """One commit, as git tells it."""

    hash: str
    parents: tuple[str, ...]
    message: str


def problems(commit: Commit) -> Iterator[str]:
    """What is wrong with the message of a commit."""
    subject, *rest = commit.message.rstrip("\n").split("\n")
    yield from _subject_problems(subject)
    if rest and rest[0]:
        yield "the line after the subject is not empty"
    if len(commit.parents) < 2 and not _has_sentence(rest):
        yield "there is no body: say in a sentence at least why the change was needed"


def _subject_problems(subject: str) -> Iterator[str]:
    if len(subject) > MAX_SUBJECT:
        yield f"the subject has {len(subject)} characters, at most {MAX_SUBJECT}"
    if subject.endswith("."):
        yield "the subject ends with a period"
    if ";" in subject:
        yield "the subject has a ';': a commit is one idea"
    first = re.split(r"[\s,:/-]", subject, maxsplit=1)[0]
    if not re.fullmatch(r"[A-Z][a-z]+", first) or NO_VERB.fullmatch(first):
        yield f"the subject begins with {first!r}, not with a capitalised verb"
    elif OTHER_FORM.fullmatch(first) and not IMPERATIVE.fullmatch(first):
        yield f"the subject begins with {first!r}: use the imperative, as in 'Add' or 'Fix'"


def _has_sentence(lines: list[str]) -> bool:
    text = " ".join(line for line in lines if not TRAILER.match(line))
    return len(text.split()) >= WORDS and re.search(r"[.!?:]", text) is not None


def commits(base: str, folder: Path) -> list[Commit] | None:
    """The commits after `base`, the newest first; None if `base` is not in the history."""
    try:
        found = _git(folder, "merge-base", "--is-ancestor", base, "HEAD")
        if found.returncode:
            return None
        listed = _git(folder, "log", "-z", "--format=%H%n%P%n%B", f"{base}..HEAD")
    except OSError:  # no git here
        return None
    if listed.returncode:
        raise SystemExit(listed.stderr)
    return [_commit(text) for text in listed.stdout.split("\0") if text]


def _commit(text: str) -> Commit:
    name, parents, message = text.split("\n", 2)
    return Commit(name, tuple(parents.split()), message)


def _git(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=False)


def main(base: str = BASE, folder: Path = ROOT) -> int:
    """Prints what is wrong, or that nothing is."""
    found = commits(base, folder)
    if found is None:
        print(f"commits: {base[:9]} is not in the history of this copy, so no message is checked")
        return 0
    wrong = [
        f"{commit.hash[:9]} {commit.message.splitlines()[0] if commit.message else ''!r}: {what}"
        for commit in found
        for what in problems(commit)
    ]
    print("\n".join(wrong) if wrong else f"commits: the messages of {len(found)} commits are as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
