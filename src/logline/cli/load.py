"""FILE[:NAME]: the pipeline in a Python file.

The file is loaded as a module of a name of its own, so that `if __name__ == "__main__":` does not run, and its
classes and functions travel by value to worker processes, which know no such module. Modules beside the file can be
imported, by the workers too.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from logline.cli.common import complain
from logline.errors import LoglineError

if TYPE_CHECKING:
    from logline.pipeline import Pipeline

T = TypeVar("T")


def load_pipeline(target: str) -> Pipeline:
    """The only pipeline of the file, or the one that NAME is, or that the function NAME makes."""
    path, name = _split(target)
    module = _load(path)
    found = _pipelines_in(module)
    return _named(module, path, name, found) if name else _only(path, found)


def load_recorded(target: str) -> Pipeline:
    """The same of what a log has recorded. NAME is the function in which the pipeline was made; what it made may have
    been completed at module level, so that the file's only pipeline comes first."""
    path, name = _split(target)
    module = _load(path)
    found = _pipelines_in(module)
    alone = len({id(p) for p in found.values()}) == 1
    return _named(module, path, name, found) if name and not alone else _only(path, found)


def _pipelines_in(module: types.ModuleType) -> dict[str, Pipeline]:
    from logline.pipeline import Pipeline

    return {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}


def _only(path: Path, found: dict[str, Pipeline]) -> Pipeline:
    pipelines = list({id(p): p for p in found.values()}.values())
    if len(pipelines) == 1:
        return pipelines[0]
    if not pipelines:
        raise typer.BadParameter(
            f"{path} has no Pipeline at module level: assign one to a variable, or say {path}:NAME for a "
            "function that returns one"
        )
    raise typer.BadParameter(f"{path} has several pipelines: say {' or '.join(f'{path}:{key}' for key in found)}")


def _split(target: str) -> tuple[Path, str]:
    path, name = Path(target), ""
    if not path.exists() and ":" in target:
        before, _, name = target.rpartition(":")
        path = Path(before)
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}")
    return path, name


def _load(path: Path) -> types.ModuleType:
    import cloudpickle

    from logline.graph.authored import FILE_MODULE
    from logline.runtime.control.loading import StartedWhileLoading, nothing_starts

    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(FILE_MODULE, path.resolve())
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{path} is not a Python file: its name ends in .py")
    module = sys.modules[FILE_MODULE] = importlib.util.module_from_spec(spec)
    cloudpickle.register_pickle_by_value(module)
    try:
        with nothing_starts():
            _calling_user(lambda: spec.loader.exec_module(module), path)  # type: ignore[union-attr]
    except StartedWhileLoading as started:
        where = [f.lineno for f in traceback.extract_tb(started.__traceback__) if _same(f.filename, path)]
        complain(
            f"{path}:{where[0]} starts the pipeline when the file is loaded: it was not started, and what comes "
            'after that line did not run. Put it under `if __name__ == "__main__":`'
        )
    return module


def _named(module: types.ModuleType, path: Path, name: str, found: dict[str, Pipeline]) -> Pipeline:
    from logline.pipeline import Pipeline

    if name in found:
        return found[name]
    make = getattr(module, name, None)
    if callable(make):
        made: object = _calling_user(make, path)
        if isinstance(made, Pipeline):
            return made
        raise typer.BadParameter(f"{path}:{name}() returned {made!r}, not a Pipeline")
    there = f"it has {', '.join(found)}" if found else "it has no Pipeline"
    raise typer.BadParameter(f"{path} has no pipeline and no function {name!r}; {there}")


def _calling_user(work: Callable[[], T], path: Path) -> T:
    """Runs the user's code. What it raises is shown as its author knows it, without our frames above it."""
    try:
        return work()
    except LoglineError as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if _same(f.filename, path)]
        raise LoglineError(f"{path}:{lines[-1]}: {error}" if lines else str(error)) from None
    except Exception as error:
        frames = error.__traceback__
        while frames is not None and not _same(frames.tb_frame.f_code.co_filename, path):
            frames = frames.tb_next
        complain(f"{path} can't be loaded")
        traceback.print_exception(type(error), error, frames)
        raise typer.Exit(1) from None


def _same(filename: str, path: Path) -> bool:
    return Path(filename) == path.resolve()
