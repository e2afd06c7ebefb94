"""The option reference has a row for every option, with the default of the code and who honours it. An option, a
setting, a flag or a variable that is added without a row fails here, and so does one that is gone."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.main import get_command

import logline as ll
from logline.cli.app import app
from logline.graph.durations import shown
from logline.graph.model import NodeOptions
from logline.graph.options import (
    Kind,
    OperatorOptions,
    RowOptions,
    SinkOptions,
    SourceOptions,
    WriterOptions,
    resolve,
)
from logline.runtime.control.settings import Settings, StartSettings, check_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/options.md").read_text(encoding="utf-8")

KINDS: Mapping[Kind, tuple[str, Any]] = {
    "source": ("source", SourceOptions),
    "operator": ("operator", OperatorOptions),
    "rows": ("map_rows", RowOptions),
    "stateful": ("map_rows", RowOptions),
    "writer": ("writer", WriterOptions),
    "sink": ("sink", SinkOptions),
}
"""Kind -> as the page calls it, and what it takes."""
OF_SOURCES = {"rows", "within"}
"""Parameters of `Pipeline.source` that are checked like options."""


def ready_made(name: str, module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """All that a module makes sources or sinks with: one that is added needs rows too."""
    makes = {key: one for key, one in vars(module).items() if inspect.isfunction(one) and key[0] != "_"}
    return {f"{name}.{key}": one for key, one in makes.items() if one.__module__ == module.__name__}


CALLS: Mapping[str, Callable[..., Any]] = {
    "ll.Retry": ll.Retry,
    "Pipeline.source": ll.Pipeline.source,
    "Stream.map_batches": ll.Stream.map_batches,
    "Stream.map_rows": ll.Stream.map_rows,
    "Stream.filter": ll.Stream.filter,
    "Stream.select": ll.Stream.select,
    "Stream.with_columns": ll.Stream.with_columns,
    "Stream.split": ll.Stream.split,
    "Stream.flat_map_rows": ll.Stream.flat_map_rows,
    "Stream.explode": ll.Stream.explode,
    "Stream.check_rows": ll.Stream.check_rows,
    "Stream.rebatch": ll.Stream.rebatch,
    "Stream.window": ll.Stream.window,
    "Stream.stateful": ll.Stream.stateful,
    "Stream.dedup": ll.Stream.dedup,
    "Stream.top": ll.Stream.top,
    "Stream.lookup": ll.Stream.lookup,
    "ll.table": ll.table,
    "Stream.union": ll.Stream.union,
    "Stream.sql": ll.Stream.sql,
    "Stream.apply": ll.Stream.apply,
    "Pipeline.operator": ll.Pipeline.operator,
    "Stream.sink": ll.Stream.sink,
    "Pipeline.lineage": ll.Pipeline.lineage,
    "ll.tumbling": ll.tumbling,
    "ll.sliding": ll.sliding,
    "ll.session_window": ll.session_window,
    "ll.whole": ll.whole,
    "ll.events": ll.events,
    **ready_made("ll.sources", ll.sources),
    **ready_made("ll.sinks", ll.sinks),
    "ll.OpenLineage": ll.OpenLineage,
    "Run.wait": ll.Run.wait,
    "Run.stop": ll.Run.stop,
    "Run.retry": ll.Run.retry,
    "Run.drop": ll.Run.drop,
    "Stream.preview": ll.Stream.preview,
    "Pipeline.check": ll.Pipeline.check,
    "Pipeline.rerun": ll.Pipeline.rerun,
    "Log.find": ll.Log.find,
    "Log.backward": ll.Log.backward,
    "Log.forward": ll.Log.forward,
    "Log.errors": ll.Log.errors,
    "Log.frame": ll.Log.frame,
    "ll.testing.drive": ll.testing.drive,
    "ll.testing.connectors.check": ll.testing.connectors.check,
    "ll.session": ll.session,
}
CLASSES: Mapping[str, type] = {"Source": ll.Source, "Sink": ll.Sink, "Operator": ll.Operator}


def rows(*head: str) -> Iterator[list[str]]:
    """The rows of all tables whose columns begin with these."""
    inside = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            inside = False
        elif cells[: len(head)] == list(head):
            inside = True
        elif inside and not line.startswith("|---"):
            yield cells


def bare(cell: str) -> str:
    return cell.strip("`")


def text(default: Any) -> str:
    """A default as the page writes it."""
    if default is inspect.Parameter.empty:
        return "required"
    if isinstance(default, timedelta):
        return f'`"{shown(default) if default else "0s"}"`'
    if isinstance(default, str):
        return f"`{default!r}`" if '"' in default else f'`"{default}"`'
    if isinstance(default, Mapping):
        return f"`{dict(default)}`"
    if isinstance(default, tuple):
        inner = ", ".join(one.__name__ if isinstance(one, type) else text(one).strip("`") for one in default)
        return f"`({inner},)`" if len(default) == 1 else f"`({inner})`"
    return f"`{default!r}`"


def taken(kind: Kind) -> set[str]:
    return set(get_type_hints(KINDS[kind][1])) | (OF_SOURCES if kind == "source" else set())


# ---- operators and settings ---------------------------------------------------------------------------------


def test_every_option_has_a_row_with_its_default() -> None:
    defaults = {field.name: text(field.default) for field in fields(NodeOptions)}
    options = set().union(*map(taken, get_args(Kind)))
    assert {bare(row[0]): row[1] for row in rows("option", "default", "honoured by")} == {
        option: defaults[option] for option in options
    }


def test_every_option_says_who_honours_it() -> None:
    expected = {
        option: list(dict.fromkeys(name for kind, (name, _) in KINDS.items() if option in taken(kind)))
        for option in set().union(*map(taken, get_args(Kind)))
    }
    assert {bare(row[0]): row[2].split(", ") for row in rows("option", "default", "honoured by")} == expected


@pytest.mark.parametrize("row", list(rows("option", "default", "honoured by")), ids=lambda row: bare(row[0]))
def test_the_example_of_an_option_is_right(row: list[str]) -> None:
    given = eval(f"dict({bare(row[4])})", {"ll": ll})
    assert bare(row[0]) in given
    for kind, (name, _) in KINDS.items():
        if name in row[2].split(", "):
            resolve("any", kind, given)


def test_every_setting_has_a_row_with_its_default() -> None:
    defaults = {field.name: text(field.default) for field in fields(StartSettings)}
    found = {bare(row[0]): row[1] for row in rows("setting", "default")}
    assert found == defaults
    assert set(found) == {"log", *get_type_hints(Settings)}


@pytest.mark.parametrize("row", list(rows("setting", "default")), ids=lambda row: bare(row[0]))
def test_the_example_of_a_setting_is_right(row: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    monkeypatch.setattr(ll, "session", lambda app: object())
    monkeypatch.chdir(tmp_path)
    given = eval(f"dict({bare(row[4])})", {"ll": ll})
    assert bare(row[0]) in given
    check_settings(given.pop("log", "lmdb:sales.log"), given)


# ---- what else has options ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_every_parameter_has_a_row_with_its_default(name: str) -> None:
    parameters = inspect.signature(CALLS[name]).parameters.values()
    expected = {one.name: text(one.default) for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD}
    makes_an_operator = "options" in inspect.signature(CALLS[name]).parameters and name != "ll.testing.drive"
    for param in ("self", "name") if makes_an_operator else ("self",):
        expected.pop(param, None)
    if name == "Pipeline.source":  # these two are in the table of options
        expected = {param: default for param, default in expected.items() if param not in OF_SOURCES}
    assert {bare(row[1]): row[2] for row in rows("of", "option", "default") if bare(row[0]) == name} == expected


@pytest.mark.parametrize("name", CLASSES)
def test_every_attribute_of_a_class_has_a_row_with_its_default(name: str) -> None:
    kind = CLASSES[name]
    expected = {
        attribute: text(getattr(kind, attribute, inspect.Parameter.empty))
        for attribute in kind.__annotations__
        if not attribute.startswith("_")
    }
    assert {bare(row[1]): row[2] for row in rows("of", "option", "default") if bare(row[0]) == name} == expected


def test_no_row_is_of_something_else() -> None:
    assert {bare(row[0]) for row in rows("of", "option", "default")} - {*CALLS, *CLASSES} == set()


def test_every_flag_of_the_command_line_has_a_row_with_its_default() -> None:
    def default(value: Any) -> str:
        if value is False:
            return "off"
        return "none" if value in (None, "") else f"`{value}`"

    expected = {
        (f"logline {name}", param.opts[0]): default(param.default)
        for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
        if not command.hidden
        for param in command.params
        if param.param_type_name == "option"
    }
    assert {(bare(row[0]), bare(row[1])): row[2] for row in rows("command", "option", "default")} == expected


def test_every_environment_variable_has_a_row() -> None:
    sources = sorted((ROOT / "src/logline").rglob("*.py"))
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    read = set(re.findall(r'environ(?:ment)?(?:\.get|\.setdefault)?[\[(]"([A-Z_]+)"', code))
    read |= set(re.findall(r'"([A-Z_]+)" (?:not )?in (?:os\.)?environ', code))
    read |= set(re.findall(r'^(?:VARIABLE|_KEY) = "([A-Z_]+)"', code, re.MULTILINE))
    assert len(read) > 10
    assert {bare(row[0]) for row in rows("variable", "default")} == read
