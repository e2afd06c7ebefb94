"""Sources and sinks: what the code that reads and writes outside must offer, so that rules R8 and R9 hold.

A *source* yields batches with an offset. How it survives a crash is a property of what it reads:

- replayable (default): `read(partition, offset)` goes on exactly after `offset`; the offset is stored
  with each output.
- not replayable (`replayable = False`): reading again gives other data. One pass of `read` up to its end,
  or up to a `None`, is one read action; its effect is staged whole before any of it is shown.
- destructive (`destructive = True`, a queue): each item is a message with its id in the place of the
  offset. `confirm` is called once the message is in the log; one that comes again is dropped.

A *sink* says how a repeated write is told apart, see `Sink.guarantee`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

import pyarrow as pa

from logline.errors import a_kind
from logline.graph.operator import Duration

Guarantee = Literal["positioned", "guarded", "named", "at_least_once"]


class Source(ABC):
    """Reads from an external system.

    >>> class Numbers(Source):
    ...     schema = pa.schema([("n", pa.int64())])
    ...     def read(self, partition, offset):
    ...         for n in range(offset or 0, 3):
    ...             yield pa.record_batch({"n": [n]}), n + 1
    >>> [offset for _, offset in Numbers().read("0", 1)]          # a new life goes on after the logged offset
    [2, 3]
    """

    schema: pa.Schema | str
    """The columns of what it reads: a pyarrow.Schema, or Spark DDL as in "id long, name string"."""
    replayable: bool = True
    destructive: bool = False
    gather: bool = True
    """Whether small batches may be put together into one event, within the `rows` and `within` of the source."""
    reuses_memory: bool = True
    """Whether it may change a batch after it was read, as one does that fills the same NumPy array again. Batches
    over memory that can be written to are copied then. False saves the copy."""
    grows: bool = True
    """Whether a partition that was read to its end may have more at the next run, as a table has. False where the end
    is the end, as that of a file: what is new comes as a new partition."""
    in_turn: bool = False
    """Whether partitions are read one after the other, in their order, rather than side by side."""
    apart: bool = False
    """Whether each partition comes to a task of its own, where the engine has tasks: it shares them with nobody."""
    on_driver: bool = False
    """Whether it must live in the driver's process, since it needs what only the driver has: a Spark session."""
    time: str | None = None
    """The column of the event time, a timestamp or a date. Its port then says how far time is (R30). The options
    `time=`, `lateness=` and `idle=` of `Pipeline.source` take the place of these three."""
    lateness: Duration = timedelta(0)
    """How far behind the greatest time of its partition a row may be, and still be in time."""
    idle: Duration | None = None
    """How long a partition may have nothing to read, and still be waited for; None: for ever."""

    def partitions(self) -> Sequence[str]:
        """The names of the parts that can be read independently. They must stay the same: the log keeps how far each
        was read under its name."""
        return ("0",)

    @abstractmethod
    def read(self, partition: str, offset: Any) -> Iterator[tuple[pa.RecordBatch, Any] | None]:
        """Yields (batch, offset after it), or None for "nothing now"; returns when the partition has ended.

        `offset` is None at first, later the one that was yielded with the last logged batch. `read` may block. What
        it yielded before is shown meanwhile, and a stop does not wait for it; other partitions and `confirm` do.
        """

    def confirm(self, partition: str, ids: Sequence[Any]) -> None:
        """For destructive sources: deletes these messages outside, since they are in the log. After a crash it may be
        called again with the same ids."""

    def describe(self, partition: str) -> str:
        """The text of the read action, for READ_ACTION. Must not contain secrets."""
        return f"{type(self).__name__}[{partition}]"

    def dataset(self) -> tuple[str, str] | None:
        """What it reads, as catalogues name it: OpenLineage's namespace and name, ("file", "/data/orders"). None if
        it has no name that others would know. Must not contain secrets."""
        return None

    def sample(self, rows: int) -> Source:
        """The source that `preview` reads in its place: one that does less work for the first `rows` records, or
        itself."""
        return self

    def close(self) -> None:
        """Called when a life ends in order. Nothing may depend on it: a process that dies calls nothing."""


def is_read_item(item: object) -> bool:
    """Whether it is a batch with its offset. A record batch of two columns can be taken apart as well as a pair."""
    return isinstance(item, tuple | list) and len(item) == 2


def no_read_item(item: object, source: str) -> TypeError:
    """What to say of anything else that `read` has yielded."""
    what = f"{a_kind(item)} of {len(item)}" if isinstance(item, tuple | list) else a_kind(item)
    return TypeError(f"read() of {source} must yield (batch, offset) or None, and it yielded {what}")


class Sink(ABC):
    """Writes to an external system (R8). `guarantee` says how it tells a repeated write apart:

    - `positioned`: keeps the last number together with the data and applies n only after n - 1.
    - `guarded`: an upsert that compares numbers; an older one never overwrites a newer one.
    - `named`: each write has a name (`write_id`) that nothing else writes.
    - `at_least_once`: none of these; the author has to accept it.

    >>> class Files(Sink):
    ...     guarantee = "named"
    ...     def __init__(self):
    ...         self.files = {}
    ...     def write(self, batch, number, write_id):
    ...         self.files[write_id] = batch.num_rows         # once more: the same rows under the same name
    >>> files = Files()
    >>> for _ in range(2):
    ...     files.write(pa.record_batch({"n": [1, 2]}), 1, "log/store/out/1")
    >>> files.files
    {'log/store/out/1': 2}
    """

    guarantee: Guarantee
    kept: bool = False
    """Whether its write actions stay in the log; `Run.result` reads them from there."""
    _GUARANTEES: ClassVar[tuple[Guarantee, ...]] = ("positioned", "guarded", "named", "at_least_once")

    def check_schema(self, schema: pa.Schema) -> None:
        """Raises SchemaError if it could never write rows like these. Called by `Stream.sink`, when the pipeline is
        defined and nothing is open. What only the external system knows is found later."""

    def open(self, scope: str) -> None:
        """Called once per life, before anything else. `scope` names log id, instance and target. Keep positions and
        guards under this key, so that a fresh log is not mistaken for an old one."""

    @abstractmethod
    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        """Writes the batch, and returns when the target has it. The numbers of one target rise by one; `write_id` is
        unique and stays the same when a write is repeated. A write may be repeated with the same number, also by a
        life that is over."""

    def dataset(self) -> tuple[str, str] | None:
        """What it writes, as catalogues name it; see `Source.dataset`."""
        return None

    def position(self) -> int:
        """For positioned targets: the last number that was applied in this scope."""
        raise TypeError(f"{type(self).__name__} is positioned and needs position()")

    def highest(self) -> int | None:
        """For other targets, if they can tell: the highest number that is there in this scope, or None. It is asked
        when a life begins: a target that has more than the log knows of means that the log is an older copy."""
        return None

    def close(self) -> None:
        """Called when a life ends in order. Nothing may depend on it: a process that dies calls nothing."""
