"""The user's own modules on a master that spans hosts: they are gathered into an archive, which Spark gives to every
executor (`SparkContext.addPyFile`).

The user's own are those that the driver has imported from beside its script or from its working folder, and that are
neither Python's, nor Logline's, nor installed. A package goes along as a whole, with its data; of single modules only
those that are imported. What else an operator needs must be installed on the workers, or come in an archive of the
user's (`docs/clusters.md`). Objects of the script itself travel by value.
"""

from __future__ import annotations

import hashlib
import io
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SKIP = ("__pycache__", ".so", ".pyc", ".pyd")
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in an archive: the same modules are the same bytes."""


def send_modules(context: Any) -> None:
    """Gives the executors of a session the user's modules, as they are now. Twice the same ones are sent once."""
    data = archive(own_modules())
    if not data:
        return
    # Named by what is in it: Spark keeps what it was given first under a name. It serves the file from where it is,
    # so that is a folder of the session's.
    path = Path(context._temp_dir) / f"logline-modules-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if path.exists():
        return
    path.write_bytes(data)
    before = list(sys.path)
    context.addPyFile(str(path))
    sys.path[:] = before  # PySpark has put it before the folders that the modules came from


def own_modules() -> dict[str, Path]:
    """The files of the user's modules, by their names in an archive."""
    found: dict[str, Path] = {}
    homes = _homes()
    for name, module in list(sys.modules.items()):
        path, parts = Path(getattr(module, "__file__", None) or ""), name.split(".")
        depth = len(parts) if path.name == "__init__.py" else len(parts) - 1
        # Modules of archives are no files.
        if path.suffix != ".py" or name == "__main__" or not path.is_file() or depth >= len(path.parents):
            continue
        if _is_own(parts[0], root := path.parents[depth], homes):
            found.update(_files(root, parts, path))
    return dict(sorted(found.items()))


def _homes() -> list[Path]:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    homes = [Path(main).resolve().parent] if main else []
    try:
        return [*homes, Path.cwd().resolve()]
    except FileNotFoundError:
        return homes  # somebody has removed the working folder


def _is_own(top: str, root: Path, homes: list[Path]) -> bool:
    if top == "logline" or top in sys.stdlib_module_names:
        return False
    try:
        place = root.resolve()
    except OSError:
        return False
    if any(part in ("site-packages", "dist-packages") for part in place.parts):
        return False
    if place.is_relative_to(sysconfig.get_path("stdlib")):
        return False
    return any(place.is_relative_to(home) for home in homes)


def _files(root: Path, parts: list[str], path: Path) -> Iterator[tuple[str, Path]]:
    """The files that go along with a module: all of its package, if it is in one."""
    package = root / parts[0]
    if not (package / "__init__.py").exists():  # a single module, or a package without a file of its own
        yield str(path.relative_to(root)), path
        return
    for inner in package.rglob("*"):
        if inner.is_file() and not any(str(part).endswith(_SKIP) for part in inner.relative_to(root).parts):
            yield str(inner.relative_to(root)), inner


def archive(files: dict[str, Path]) -> bytes:
    """A zip of these files; the same files give the same bytes. Empty if there are none."""
    if not files:
        return b""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in files.items():
            packed.writestr(zipfile.ZipInfo(name, _DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def missing_module(error: ModuleNotFoundError) -> str:
    """What to do about a module that a worker does not have."""
    return (
        f"{type(error).__name__}: {error}, in its Python ({sys.executable}). Install it there, give it to Spark with "
        "spark.sparkContext.addPyFile(...) or --py-files, or pack an environment that has it for spark.archives. "
        "Modules beside your script go along if the script has imported them"
    )
