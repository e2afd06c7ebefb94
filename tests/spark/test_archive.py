"""The archive of classes: real JVMs make it and use it. The program is a small one of Spark's, which ends at once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from logline.spark.archive import OLD, Archive

CLASSES = f"{Path(pyspark.__file__).parent}/jars/*"


def java(options: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = ["java", *options.split(), *more, "-cp", CLASSES, "org.apache.spark.launcher.Main"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a JVM has made an archive."""
    folder = tmp_path_factory.mktemp("cache")
    assert Archive(folder).options() == ""  # who comes once gets none
    options = Archive(folder).options()
    assert "ArchiveClassesAtExit" in options
    said = java(options)
    assert "cds" not in said.stdout + said.stderr
    return folder


def test_the_third_session_has_it(made: Path) -> None:
    options = Archive(made).options()
    assert "SharedArchiveFile" in options
    # This one ends if it can't use the archive.
    assert "Not enough arguments" in java(options.replace("-Xshare:auto", "-Xshare:on")).stderr
    assert [path.suffix for path in sorted(made.iterdir())] == [".jsa", ".size"]


def test_one_that_was_cut_off_is_made_anew(made: Path) -> None:
    Archive(made).options()
    (archive,) = made.glob("*.jsa")
    archive.chmod(0o600)
    os.truncate(archive, 1 << 20)
    options = Archive(made).options()
    assert "SharedArchiveFile" not in options
    java(options)
    assert "SharedArchiveFile" in Archive(made).options()


def test_one_that_is_not_finished_is_not_used(tmp_path: Path) -> None:
    Archive(tmp_path).options()
    options = Archive(tmp_path).options()
    new = Path(options.rpartition("=")[2])
    new.write_bytes(bytes(8192))  # its beginning is written last
    assert "SharedArchiveFile" not in Archive(tmp_path).options()
    assert new.exists()
    os.utime(new, (0, new.stat().st_mtime - 2 * OLD))
    Archive(tmp_path).options()
    assert not new.exists()


def test_one_of_another_java_goes(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Archive(made).options()
    (old,) = made.glob("*.jsa")
    monkeypatch.setenv("SPARK_HOME", "/another")
    Archive(made).options()
    java(Archive(made).options())
    assert "SharedArchiveFile" in Archive(made).options()
    assert not old.exists()
