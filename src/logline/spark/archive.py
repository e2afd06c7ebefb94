"""An archive of the classes that Spark loads when it starts (class data sharing): with it, a session takes half the
time.

The JVM makes it when it ends, which takes seconds, and it has 150 MB. So the first session on a machine leaves a
note, the second one makes the archive, and those after it use it; who runs Spark once, in a container say, pays
nothing. It lies in the cache folder, under a name that stands for this Java and this PySpark.

An archive must never keep a session from starting. One of other classes is ignored by the JVM. So is one that is
damaged, since the JVM is asked to check it; but one that was cut off kills the JVM that maps it. Therefore an archive
is known only once it is whole (the JVM writes its beginning last), with its size; and if no JVM comes up with it,
`session` drops it and goes on without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path

_OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -Xshare:auto -Xlog:cds*=off -Xlog:class*=off"
OLD = 3600.0
"""Seconds after which what a JVM has begun to write, and not finished, is taken for left behind."""


class Archive:
    """The archive of this Java and this PySpark, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = f"spark-{_identity()}"
        self._whole = folder / f"{self._name}.jsa"
        self._size = folder / f"{self._name}.size"
        """Beside the archive: how long it is. Without one: that a session was here."""

    def options(self) -> str:
        """The options for the JVM of a session; empty if there is no archive to be used or made."""
        if " " in str(self._folder):  # options are divided by spaces
            return ""
        self._take_over()
        if self.usable():
            return f"{_OPTIONS} -XX:+VerifySharedSpaces -XX:SharedArchiveFile={self._whole}"
        if not self._size.exists():
            self._size.write_text("0")
            return ""
        return f"{_OPTIONS} -XX:ArchiveClassesAtExit={self._folder / self._name}.{os.getpid()}.new"

    def usable(self) -> bool:
        """Whether it is there, as long as it was when it was found whole."""
        with contextlib.suppress(OSError, ValueError):
            return self._whole.stat().st_size == int(self._size.read_text())
        return False

    def drop(self) -> None:
        """Removes the archive, since it is of no use."""
        self._whole.unlink(missing_ok=True)

    def _take_over(self) -> None:
        """Finds what JVMs have made since. Archives of another Java or PySpark go when there is a new one."""
        for made in self._folder.glob("spark-*.new"):
            with contextlib.suppress(OSError):  # another session is faster
                if made.name.startswith(self._name) and _finished(made):
                    self._size.write_text(str(made.stat().st_size))
                    made.replace(self._whole)
                    for other in self._folder.glob("spark-*.jsa"):
                        if other != self._whole:
                            other.unlink(missing_ok=True)
                            other.with_suffix(".size").unlink(missing_ok=True)
                elif time.time() - made.stat().st_mtime > OLD:
                    made.unlink()


def _finished(made: Path) -> bool:
    with made.open("rb") as file:
        return any(file.read(4))


def _identity() -> str:
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path(shutil.which("java") or "java")
    about = [str(java.resolve()), pyspark.__file__, pyspark.__version__, os.environ.get("SPARK_HOME", "")]
    with contextlib.suppress(OSError):
        about.append(str(java.resolve().stat().st_mtime_ns))
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:12]
