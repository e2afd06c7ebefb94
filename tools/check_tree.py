"""Checks on the tree that no other tool makes; part of `make lint`.

- A source file, or a file of tests, is about one thing: at most 600 lines.
- A docstring of the source says something: it has four words at least.
- An `__init__.py` re-exports and does nothing else.
- No file names the host of a package registry or the address of a package index: where packages come
  from is the concern of whoever installs them, and the lock file pins them by hash.

New files count before they are added to git; ignored ones never do.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600
MIN_WORDS = 4
INIT_NAMES = {"__all__", "__version__"}

# Written in parts, or this file would be the first to break its own rule.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb", "debian", "org"),
        ("maven", "apache", "org"),
        ("anaconda", "org"),
    )
]
INDEX_ADDRESS = re.compile(
    "|".join(re.escape(host) for host in REGISTRY_HOSTS)
    + r"|\w+://[^\s\"'<>]+/simple\b"
    + r"|(?<![\w-])--(?:extra-)?index-url[\s=]+\S*://"
    + r"|(?<![\w-])--find-links[\s=]+\S+",
    re.IGNORECASE,
)


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in sorted(set(listed.split("\0"))) if name)
    return [path for path in paths if path.is_file()]  # a file deleted but not yet committed is listed too


def too_long(text: str) -> Iterator[tuple[int, str]]:
    lines = text.count("\n")
    if lines > MAX_LINES:
        yield MAX_LINES + 1, f"{lines} lines, at most {MAX_LINES}: split it by what it is about"


def says_little(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            said = ast.get_docstring(node)
            if said is not None and len(said.split()) < MIN_WORDS:
                line = node.body[0].lineno
                yield line, f"a docstring of under {MIN_WORDS} words, {said!r}: say who does what, or leave it out"


def more_than_exports(text: str) -> Iterator[tuple[int, str]]:
    for index, node in enumerate(ast.parse(text).body):
        match node:
            case ast.Expr(value=ast.Constant(value=str())) if index == 0:
                continue
            case ast.Import() | ast.ImportFrom():
                continue
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if (
                name in INIT_NAMES
            ):
                continue
        yield node.lineno, "__init__.py holds a docstring, imports, __all__ and __version__; move the rest"


def registry_addresses(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := INDEX_ADDRESS.search(line):
            yield number, f"names a package index: {found[0]}"


def problems(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return  # not a text file
    yield from registry_addresses(text)
    if path.suffix == ".py":
        if path.is_relative_to(ROOT / "src"):
            yield from says_little(text)
        if path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "tests"):
            yield from too_long(text)
        if path.name == "__init__.py":
            yield from more_than_exports(text)


def main() -> int:
    checked = files()
    found = [f"{path.relative_to(ROOT)}:{line}: {what}" for path in checked for line, what in problems(path)]
    print("\n".join(found) if found else f"tree: {len(checked)} files are as they should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
