"""Examples 1-5 of LOG.io, with the paper's names: a_1 is `OP1:1`, b_1 is `OP3:1`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from tests.protocol.sales import (
    A1,
    A2,
    A3,
    HOUR,
    HOURS,
    SALES,
    Batches,
    Database,
    H,
    Query,
    Store,
    SumsAndRanges,
    Take,
    numbered,
    sales,
    sums_of_100,
    total,
)
from tests.protocol.stepper import Stepper

from logline.connectors import sinks
from logline.engine import actions as do
from logline.graph.operator import Context, Emit, Operator
from logline.names import InsetId
from logline.pipeline import Pipeline


def reading(database: Database, *, replayable: bool) -> Stepper:
    p = Pipeline("example-1")
    p.source("OP", Query(database, replayable=replayable)).apply("next", Take())
    return Stepper(p)


# ---- Example 1: read actions ------------------------------------------------------------------------------


def test_example_1_a_replayable_read_goes_on_in_what_has_grown_at_its_end() -> None:
    database = Database([A1, A2])
    s = reading(database, replayable=True)
    s.start("OP")
    s.run("OP", until=lambda: s.sent("OP") == 1)
    s.crash("OP")
    database.batches.append(A3)  # at time T + dT: new records have later dates, and come last
    s.start("OP")
    s.run("OP")
    assert s.read("OP") == [row for batch in (A1, A2, A3) for row in batch.to_pylist()]
    assert database.queries == 2


def test_example_1_a_read_that_is_not_replayable_never_mixes_two_effects() -> None:
    """The table is updated between two tries: the first try's effect is dropped, staged rows and all."""
    database = Database([A1, A2, A3])
    s = reading(database, replayable=False)
    s.start("OP")
    s.run("OP", before=lambda action: isinstance(action, do.Read) and not action.fresh)
    s.run("OP", until=lambda: bool(s.store.data(s.instances["OP"].spec.name).events.ports))  # type: ignore[index]
    s.crash("OP")
    assert s.sent("OP") == 0  # some of the effect is stored, and nobody sees it
    database.batches = [A3, A1]
    s.start("OP")
    s.run("OP")
    assert s.read("OP") == [row for batch in (A3, A1) for row in batch.to_pylist()]
    assert database.queries == 2


def test_example_1_a_complete_read_that_is_not_replayable_is_not_made_again() -> None:
    """Algorithm 6, step 3.b: what the query would give now is another matter."""
    database = Database([A1, A2, A3])
    s = reading(database, replayable=False)
    s.start("OP")
    s.run("OP", until=lambda: s.sent("OP") == 1)
    s.crash("OP")
    database.batches = []
    s.start("OP")
    s.run("OP")
    assert s.read("OP") == [row for batch in (A1, A2, A3) for row in batch.to_pylist()]
    assert database.queries == 1


def test_a_destructive_or_replayable_read_needs_no_event() -> None:
    """Algorithm 1, step 3: the offset with each output is all."""
    s = reading(Database([A1, A2]), replayable=True)
    s.start("OP")
    assert s.rows("read_action") == []  # not begun
    s.run("OP", until=lambda: s.sent("OP") == 1)
    assert s.rows("read_action") == [("OP.Cx:r1", "incomplete", "OP", "Cx", "text of action A")]
    assert s.rows("state") == [("OP:s", "OP", json.dumps({"Cx": {"offset": 1}}))]
    s.run("OP")
    assert s.rows("read_action") == [("OP.Cx:r1", "complete", "OP", "Cx", "text of action A")]
    assert [row[0] for row in s.rows("event_log")] == ["OP:1", "OP:2"]


# ---- Examples 2 and 3: blocks of 100 events ------------------------------------------------------------------


def blocks(op: Any, count: int) -> Stepper:
    p = Pipeline("example-2")
    p.source("OP1", Batches(numbered(count))).apply("OP2", op)
    return Stepper(p)


def test_example_2_an_output_for_each_100_events() -> None:
    s = blocks(sums_of_100(), 250)
    s.start("OP1", "OP2")
    s.run("OP1", "OP2", until=lambda: s.sent("OP2") == 2)
    made = [{"item_ID": "BZ234", "state": "FR", "total": total(numbered(100))}]
    made += [{"item_ID": "BZ234", "state": "FR", "total": total(numbered(200)) - total(numbered(100))}]
    assert s.read("OP2") == made


def test_example_3_the_input_set_is_the_multiple_of_100() -> None:
    s = blocks(sums_of_100(), 250)
    s.start("OP1", "OP2")
    s.run("OP1", until=lambda: s.sent("OP1") == 240)
    s.run("OP2")
    s.run("OP1")
    sets = {int(row[0].partition(":")[2]): (row[1], row[6]) for row in s.rows("event_log")}
    assert {sets[k] for k in range(1, 101)} == {("done", "1#1")}
    assert {sets[k] for k in range(101, 201)} == {("done", "2#2")}
    assert {sets[k] for k in range(201, 241)} == {("undone", "3#3")}
    assert {sets[k] for k in range(241, 251)} == {("undone", None)}


def test_example_2_the_count_survives_a_crash_and_the_event_state_is_rebuilt() -> None:
    s = blocks(sums_of_100(), 250)
    s.start("OP1", "OP2")
    s.run("OP1", "OP2", until=lambda: s.taken("OP1.out>OP2.in") >= 150)
    (state,) = [json.loads(row[2]) for row in s.rows("state") if row[1] == "OP2"]
    assert (state["number"], state["seen"]) == (2, s.taken("OP1.out>OP2.in") - 100)
    s.crash("OP2")
    s.start("OP2")
    s.run("OP1", "OP2")
    totals = [row["total"] for row in s.read("OP2")]
    assert totals == [sum(range(1, 101)), sum(range(101, 201)), sum(range(201, 251))]


def test_example_3_two_generative_functions_have_two_input_sets_per_block() -> None:
    s = blocks(SumsAndRanges(), 200)
    s.start("OP1", "OP2")
    s.run("OP1", "OP2", until=lambda: s.sent("OP2") == 1 and s.sent("OP2", "ranges") == 1)
    log = s.rows("event_log")
    first_block = [row for row in log if row[0] in {f"OP1:{k}" for k in range(1, 101)}]
    assert len(first_block) == 200  # an entry for each assignment
    assert {(row[1], row[6]) for row in first_block} == {("done", "(sums, 1)#1"), ("done", "(ranges, 1)#2")}
    s.run("OP1", "OP2")
    assert s.read("OP2") == [
        {"item_ID": "BZ234", "state": "FR", "total": sum(range(1, 101))},
        {"item_ID": "BZ234", "state": "FR", "total": sum(range(101, 201))},
    ]
    assert s.read("OP2", "ranges") == [
        {"item_ID": "BZ234", "minAmount": 1, "maxAmount": 100},
        {"item_ID": "BZ234", "minAmount": 101, "maxAmount": 200},
    ]


def test_example_3_a_crash_between_the_two_output_sets_of_a_block() -> None:
    """Both sets are due by the same event; one of them is generated before the crash, the other after it."""
    s = blocks(SumsAndRanges(), 200)
    s.start("OP1", "OP2")
    s.run("OP1", "OP2", until=lambda: s.sent("OP2") == 1)
    crashed_between = s.sent("OP2", "ranges") == 0
    s.crash("OP2")
    s.start("OP2")
    s.run("OP1", "OP2")
    assert crashed_between
    assert [row["total"] for row in s.read("OP2")] == [sum(range(1, 101)), sum(range(101, 201))]
    assert [row["maxAmount"] for row in s.read("OP2", "ranges")] == [100, 200]


# ---- Example 4: hours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", HOURS.values(), ids=HOURS.keys())
def test_example_4_an_event_spans_hours_and_an_hour_is_complete_with_the_next(op: Any) -> None:
    spanning = sales((H, "BZ234", 1), (H + HOUR, "BZ234", 2), (H + 2 * HOUR, "BZ234", 4))
    p = Pipeline("example-4")
    p.source("OP1", Batches([A1, spanning])).apply("OP3", op())
    s = Stepper(p)
    s.start("OP1", "OP3")
    s.run("OP1", "OP3", until=lambda: s.sent("OP3") == 2)
    made = [(row["window_start"], row["item_ID"], row["total"]) for row in s.read("OP3")]
    assert sorted(made) == [(H, "BZ234", 11), (H, "CX100", 5), (H + HOUR, "BZ234", 2)]
    assert [row[6] for row in s.rows("event_log") if row[0] == "OP1:2"] == [
        f"{H.isoformat()}#1",
        f"{(H + HOUR).isoformat()}#2",
        f"{(H + 2 * HOUR).isoformat()}#3",
    ]


# ---- Example 5: lineage paths --------------------------------------------------------------------------------


class Split(Operator[Any, None]):
    """OP_1: puts each event out on both ports."""

    outputs = {"out1": SALES, "out2": SALES}  # noqa: RUF012

    def generate(self, inset: InsetId, acc: Any, ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(acc, "out1")
        yield Emit(acc, "out2")


class Either(Operator[Any, None]):
    """OP_2, OP_3: an output for each event, of whichever port."""

    inputs = ("in1", "in2")

    def schemas(self, inputs: Mapping[str, pa.Schema]) -> Mapping[str, Any]:
        return {"out": inputs["in1"]}

    def generate(self, inset: InsetId, acc: Any, ctx: Context[None]) -> Iterator[Emit]:
        yield Emit(acc)


def test_example_5_lineage_is_recorded_on_the_paths_between_the_ports_of_the_scope() -> None:
    """Figure 2. R_2.out:1 leaves OP_1 on both ports; OP_2 makes c_1 of an event of R_1 and c_2 of one of OP_1."""
    p = Pipeline("example-5")
    r1 = p.source("R_1", Batches([A1]))
    r2 = p.source("R_2", Batches([A2]))
    op1 = p.operator("OP_1", Split(), {"in": r2})
    op2 = p.operator("OP_2", Either(), {"in1": r1, "in2": op1})
    op3 = p.operator("OP_3", Either(), {"in1": op2, "in2": op1["out2"]})
    p.lineage(r2, op3)
    s = Stepper(p)
    s.start("R_1", "R_2", "OP_1", "OP_2", "OP_3")
    s.run("R_1")
    s.run("OP_2", until=lambda: s.sent("OP_2") == 1)  # c_1, of R_1:1 alone
    s.run("R_2", "OP_1")
    s.run("OP_2", until=lambda: s.sent("OP_2") == 2)  # c_2
    assert s.rows("event_lineage") == [
        ("OP_1.out1:1", "OP_1", "out1", "R_2:1"),
        ("OP_1.out2:1", "OP_1", "out2", "R_2:1"),
        ("OP_2:2", "OP_2", "out", "OP_1.out1:1"),
    ]
    s.run("OP_2", "OP_3")
    inputs = {row[3] for row in s.rows("event_lineage") if row[1] == "OP_3"}
    assert inputs == {"OP_2:1", "OP_2:2", "OP_1.out2:1"}


def test_without_a_scope_no_lineage_is_recorded() -> None:
    p = Pipeline("example-5")
    p.source("R_1", Batches([A1])).apply("OP_1", Take()).apply("W", Store(), targets={"out": sinks.collect()})
    s = Stepper(p)
    s.start("R_1", "OP_1", "W")
    s.run("R_1", "OP_1", "W")
    assert s.rows("event_lineage") == []
    assert s.sent("OP_1") == 2  # one event, and the end
