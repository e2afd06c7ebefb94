"""Taking ends back in a log that somebody may live on (R11'): who is claimed, what one who died has left to do."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.unit.runtime.taps import IDS, Bucket, shared, start
from tests.waiting import PATIENCE

from logline.connectors import sources
from logline.engine.events import Output, Position
from logline.engine.progress import Progress
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.errors import Fenced
from logline.graph.instances import Channel
from logline.graph.operator import Context, Emit, Event, Operator
from logline.names import IN, OUT, ChannelName, InsetId, InstanceName, PartitionName, Serial, Ssn
from logline.pipeline import Pipeline
from logline.runtime.control.reopening import finish_reopening, in_order, reopen, take_back_ends
from logline.store.memory import MemoryStore

ORDERS, HOURLY, STORE = InstanceName("orders"), InstanceName("hourly"), InstanceName("store")
FIRST = Channel(ChannelName("orders.out>hourly.in"), ORDERS, OUT, HOURLY, IN)
SECOND = Channel(ChannelName("hourly.out>store.in"), HOURLY, OUT, STORE, IN)
SPECS = in_order(
    [
        InstanceSpec(STORE, inputs=(SECOND,)),
        InstanceSpec(HOURLY, inputs=(FIRST,), ports={OUT: (SECOND,)}),
        InstanceSpec(ORDERS, ports={OUT: (FIRST,)}),
    ]
)


def end(name: InstanceName, taken: Channel | None = None) -> Step:
    """Takes the end of a channel, and gives its own as the first output."""
    outputs = [] if name == STORE else [Output(OUT, Ssn(1), None, 0, 0, 0, Serial(0), "end")]
    return Step(outputs=outputs, positions=took(taken) if taken else {}, ended=True, left=True)


def took(channel: Channel) -> dict[ChannelName, Position]:
    return {channel.name: Position(Ssn(1), 0, marks=1)}


def commit(store: MemoryStore, name: InstanceName, step: Step) -> None:
    journal = store.claim(name)
    step.number = journal.image.commits + 1
    journal.commit(step)
    journal.close()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def marks(store: MemoryStore) -> dict[str, int]:
    return {str(spec.name): store.read(spec.name).image().marks for spec in SPECS}


def test_all_that_is_downstream_is_reopened(store: MemoryStore) -> None:
    commit(store, ORDERS, end(ORDERS))
    commit(store, HOURLY, end(HOURLY, FIRST))
    commit(store, STORE, end(STORE, SECOND))
    assert set(reopen(store, SPECS, [ORDERS])) == {ORDERS, HOURLY, STORE}
    assert marks(store) == {"orders": 2, "hourly": 2, "store": 2}
    assert not any(store.read(spec.name).image().left for spec in SPECS)


def test_a_life_that_has_taken_the_old_end_and_not_given_its_own_is_fenced_off(store: MemoryStore) -> None:
    """It would end without what comes after the mark."""
    commit(store, ORDERS, end(ORDERS))
    journal = store.claim(HOURLY)
    journal.commit(Step(number=1, positions=took(FIRST)))
    assert set(reopen(store, SPECS, [ORDERS])) == {ORDERS, HOURLY, STORE}
    with pytest.raises(Fenced):
        journal.commit(Step(number=2, ended=True))
    assert marks(store) == {"orders": 2, "hourly": 0, "store": 0}


def test_a_start_finishes_what_one_who_died_half_way_has_begun(store: MemoryStore) -> None:
    commit(store, ORDERS, end(ORDERS))
    commit(store, HOURLY, end(HOURLY, FIRST))
    commit(store, STORE, end(STORE, SECOND))
    commit(store, ORDERS, Step(outputs=[Output(OUT, Ssn(2), None, 0, 0, 0, Serial(0), "reopened")], reopened=True))
    finish_reopening(store, SPECS)
    assert marks(store) == {"orders": 2, "hourly": 2, "store": 2}
    finish_reopening(store, SPECS)  # asking twice changes nothing
    assert marks(store) == {"orders": 2, "hourly": 2, "store": 2}


class Fragile(Operator[list[int], None]):
    """Gathers, one event in a set; the set of 2 fails until `closed` is set."""

    outputs = {"out": IDS}  # noqa: RUF012

    def __init__(self, key: str) -> None:
        self.key = key

    def assign(self, event: Event, ctx: Context[None]) -> list[InsetId]:
        ctx.fire(event.name)
        return [event.name]

    def update(self, inset: InsetId, acc: list[int] | None, event: Event) -> list[int]:
        return [*(acc or ()), *event.batch["id"].to_pylist()]

    def generate(self, inset: InsetId, acc: list[int], ctx: Context[None]) -> Iterator[Emit]:
        if acc == [2] and not shared(self.key).closed:
            raise ValueError("not yet")
        yield Emit(pa.table({"id": acc}))


def test_a_set_that_failed_is_retried_after_all_have_left(key: str) -> None:
    """The end does not close it: its members are there, and what comes of it follows the end."""
    bucket = Bucket(key)
    p = Pipeline("retried")
    numbers = p.source("numbers", sources.batches([pa.table({"id": [n]}) for n in (1, 2, 3)]), rows=1)
    numbers.apply("check", Fragile(key), on_error="divert").sink("store", bucket)
    run = start(p, f"memory:{key}")
    assert run.wait(PATIENCE).phase == "finished"
    shared(key).closed = True
    assert run.retry("check.errors:1")
    assert start(p, f"memory:{key}").wait(PATIENCE).phase == "finished"
    assert bucket.written == [1, 3, 2]


# ---- sources of a run until now -----------------------------------------------------------------------------------


def read_to_the_end() -> Step:
    """The end of a partition, without that of the source itself."""
    step = Step()
    step.reads.progress[PartitionName("0")] = Progress(offset=b"7", status="complete", ended=True)
    return step


def test_a_source_that_died_before_its_own_end_reads_on(store: MemoryStore) -> None:
    commit(store, ORDERS, read_to_the_end())
    take_back_ends(store, SPECS)
    image = store.read(ORDERS).image()
    assert image.reads[PartitionName("0")] == Progress(offset=b"7", status="incomplete", ended=False)
    assert image.marks == 0  # nobody has seen an end


def test_a_late_life_of_a_source_gives_no_end_after_the_look(store: MemoryStore) -> None:
    late = store.claim(ORDERS)
    take_back_ends(store, SPECS)
    step = read_to_the_end()
    step.number = late.image.commits + 1
    with pytest.raises(Fenced):
        late.commit(step)
