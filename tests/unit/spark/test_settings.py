"""Settings of a session, read as Spark reads them; without a session. `tests/spark` has the same on a real one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from logline.errors import OptionError
from logline.graph.groups import Grouping
from logline.names import OperatorName
from logline.spark import refusals, slots
from logline.spark.refusals import is_true, one_host
from logline.spark.room import _spare

SPECULATION = "spark.speculation"
IDLE = "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
NOTHING: dict[str, str] = {}
SECONDS = "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"


def context(master: str, **settings: str) -> Any:
    """As much of a SparkContext as is asked."""
    known = {name.replace("_", "."): value for name, value in settings.items()}
    return SimpleNamespace(master=master, getConf=lambda: SimpleNamespace(get=known.get))


@pytest.mark.parametrize(
    ("text", "true"), [("true", True), ("TRUE", True), (" True ", True), ("false", False), ("", False), ("1", False)]
)
def test_a_setting_is_on_in_any_case_with_spaces_around_it(text: str, true: bool) -> None:
    assert is_true({SPECULATION: text}.get, SPECULATION) is true


@pytest.mark.parametrize(
    ("limit", "refused"), [("512m", True), ("1", True), ("0", False), ("0b", False), ("", False)]
)
def test_a_limit_of_the_address_space_is_refused(limit: str, refused: bool) -> None:
    get = {"spark.executor.pyspark.memory": limit}.get
    if not refused:
        refusals._refuse_little_address_space(get)
        return
    with pytest.raises(OptionError, match="limits the address space"):
        refusals._refuse_little_address_space(get)


@pytest.mark.parametrize(("seconds", "refused"), [("2", True), ("30s", True), ("0", False), ("", False)])
def test_kills_of_idle_workers_are_refused_if_there_is_a_time_for_them(seconds: str, refused: bool) -> None:
    get = {IDLE: "True", SECONDS: seconds}.get
    if not refused:
        refusals._refuse_idle_kills(NOTHING.get, get)
        return
    with pytest.raises(OptionError, match="kills Python workers"):
        refusals._refuse_idle_kills(NOTHING.get, get)


@pytest.mark.parametrize(
    ("master", "one"),
    [("local", True), ("local[4,100]", True), ("local-cluster[2,2,1024]", True), ("spark://host:7077", False)],
)
def test_a_log_in_a_folder_stays_on_one_host(master: str, one: bool) -> None:
    assert one_host(master) is one
    refusals._refuse_hosts(master, in_folder=False)
    if one:
        refusals._refuse_hosts(master, in_folder=True)
        return
    with pytest.raises(OptionError, match="spans hosts"):
        refusals._refuse_hosts(master, in_folder=True)


@pytest.mark.parametrize(
    ("master", "dynamic"),
    [("local", False), ("local[2]", False), ("local-cluster[2,2,1024]", True), ("spark://host:7077", True)],
)
def test_a_local_master_makes_no_executors(master: str, dynamic: bool) -> None:
    assert slots._dynamic(context(master, spark_dynamicAllocation_enabled="True")) is dynamic
    assert not slots._dynamic(context(master))


@pytest.mark.parametrize(
    ("operators", "there", "asked", "spare"),
    [
        (3, 4, None, 1),
        (3, 3, None, 1),  # two of them share a process
        (3, 2, None, 0),  # all of them would have to
        (1, 2, None, 1),
        (1, 1, None, 0),
        (3, 4, 0, 0),
        (3, 4, 2, 2),
    ],
)
def test_a_slot_is_spared_where_the_pipeline_can_do_without_it(
    operators: int, there: int, asked: int | None, spare: int
) -> None:
    groups = {f"op{n}": (OperatorName(f"op{n}"),) for n in range(operators)}
    assert _spare(Grouping(groups, {}, least=1), there, asked) == spare


def test_an_operator_on_the_driver_needs_a_slot_for_its_jobs() -> None:
    grouping = Grouping({"op": (OperatorName("op"),)}, {"frame": (OperatorName("frame"),)}, least=1)
    assert [_spare(grouping, 2, asked) for asked in (None, 0, 3)] == [1, 1, 3]
