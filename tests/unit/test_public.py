"""What `import logline` offers, and what it must not drag in."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import logline


def test_every_public_name_is_there_and_listed_in_order() -> None:
    names: list[str] = vars(logline)["__all__"]
    assert all(hasattr(logline, name) for name in names)
    assert names == sorted(names, key=lambda name: (not name[0].isupper(), name))


def test_names_come_when_they_are_used() -> None:
    """The command line and a worker that is started again don't wait for Arrow."""
    code = "import sys, logline; assert 'pyarrow' not in sys.modules; logline.Pipeline"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "Pipeline" in dir(logline)
    with pytest.raises(AttributeError, match="no attribute 'Pipelin'"):
        logline.Pipelin  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_does_not_import_pyspark_nor_pandas() -> None:
    """They may not be there, and pandas would be a third of the time."""
    code = "import sys; from logline import *; sys.exit(', '.join({'pyspark', 'pandas'} & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_init_only_re_exports() -> None:
    root = Path(logline.__file__).parent
    for path in root.rglob("__init__.py"):
        for statement in ast.parse(path.read_text()).body:
            is_doc = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            is_all = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__"
            assert is_doc or is_all or isinstance(statement, ast.Import | ast.ImportFrom), path
