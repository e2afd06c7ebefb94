"""Which modules of the driver go along to a cluster: those beside the script, whole packages, nothing installed."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.waiting import PATIENCE

from logline.spark.modules import archive, missing_module

SCRIPT = """
import os, sys
sys.path.insert(0, "libs")
import beside, shop.prices, inner, bare.thing, pyarrow, logline, json
sys.path.append(os.environ["ELSEWHERE"])
import elsewhere
from logline.spark.modules import own_modules
print(*own_modules())
"""


def test_what_goes_along(tmp_path: Path) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    for name in ("beside.py", "unused.py", "shop/__init__.py", "shop/prices.py", "shop/later.py", "shop/data/vat.txt",
                 "shop/__pycache__/x.pyc", "libs/inner.py", "bare/thing.py", "bare/other.py",
                 ".venv/lib/site-packages/installed.py"):  # fmt: skip
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("")
    away.mkdir()
    (away / "elsewhere.py").write_text("")
    (home / "job.py").write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, "job.py"],
        cwd=home,
        env={"ELSEWHERE": str(away), "PYTHONPATH": str(home / ".venv/lib/site-packages")},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    assert set(ran.stdout.split()) == {
        "bare/thing.py", "beside.py", "inner.py",
        "shop/__init__.py", "shop/data/vat.txt", "shop/later.py", "shop/prices.py",
    }  # fmt: skip


def test_the_same_files_make_the_same_archive(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("A = 1")
    first = archive({"a.py": tmp_path / "a.py"})
    (tmp_path / "a.py").touch()
    assert archive({"a.py": tmp_path / "a.py"}) == first
    assert zipfile.ZipFile(io.BytesIO(first)).read("a.py") == b"A = 1"
    assert archive({}) == b""


def test_a_module_that_is_missing_is_named() -> None:
    said = missing_module(ModuleNotFoundError("No module named 'shop'", name="shop"))
    assert said.startswith("ModuleNotFoundError: No module named 'shop', in its Python")
    assert "--py-files" in said
