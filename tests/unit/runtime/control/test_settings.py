from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from logline.errors import OptionError
from logline.lineage.openlineage.settings import OpenLineage
from logline.names import OperatorName
from logline.runtime.control.settings import Settings, StartSettings, check_settings


@pytest.fixture(autouse=True)
def no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)


def test_what_an_editor_completes_is_what_a_run_is_started_with() -> None:
    given, found = get_type_hints(Settings), get_type_hints(StartSettings)
    assert found.pop("log") == str | None
    assert given.pop("openlineage") == str | OpenLineage | None
    assert found.pop("openlineage") == OpenLineage | None
    assert given.pop("fresh") == Sequence[str]
    assert found.pop("fresh") == tuple[OperatorName, ...]
    assert given == found


def test_without_settings_the_defaults_hold() -> None:
    assert check_settings(None, {}) == StartSettings()
    assert check_settings("lmdb:sales.log", {"engine": "spark"}) == StartSettings("lmdb:sales.log")


def test_what_is_given_is_passed_on_whole(tmp_path: Any) -> None:
    given: Settings = {
        "engine": "processes",
        "durability": "process",
        "resume": "must",
        "until": "now",
        "close": True,
        "takeover": True,
        "fresh": ["hourly"],
        "openlineage": f"file:{tmp_path}/events.json",
    }
    found = check_settings("lmdb:sales.log", given)
    assert found.openlineage is not None
    assert found.openlineage.file == tmp_path / "events.json"
    assert {f.name: getattr(found, f.name) for f in fields(found)} == {
        **given,
        "log": "lmdb:sales.log",
        "spark": None,
        "fresh": ("hourly",),
        "openlineage": found.openlineage,
    }


@pytest.mark.parametrize(
    ("log", "given", "says"),
    [
        (None, {"engin": "inline"}, "there is no setting 'engin': did you mean 'engine'"),
        (None, {"zzz": 1}, "there is no setting 'zzz': known are spark, engine, durability, resume, until"),
        (None, {"log": "memory:"}, "there is no setting 'log'"),
        (None, {"engine": "flink"}, "engine='flink': take one of 'spark', 'inline', 'processes'"),
        ("lmdb:x", {"durability": "hope"}, "durability='hope': take one of 'disk', 'process'"),
        (None, {"resume": "maybe"}, "resume='maybe': take one of 'auto', 'never', 'must'"),
        (None, {"until": "noon"}, "until='noon': take one of 'end', 'now'"),
        (None, {"engine": "inline", "spark": object()}, "spark= is of no use without engine='spark'"),
        ("memory:x", {"engine": "inline", "durability": "process"}, "durability= is for logs on disk"),
        ("memory:x", {"engine": "processes"}, "needs a log that processes can share"),
    ],
)
def test_what_can_not_be_is_refused(log: str | None, given: Any, says: str) -> None:
    with pytest.raises(OptionError) as info:
        check_settings(log, given)
    assert says in str(info.value)


def test_a_log_that_is_no_address() -> None:
    with pytest.raises(OptionError, match=r"did you mean 'lmdb:sales\.log'"):
        check_settings(Path("sales.log"), {})  # type: ignore[arg-type]
