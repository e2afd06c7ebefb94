"""A sink says whether another try can help. What it refuses for good fails the run at the first try."""

from __future__ import annotations

import pyarrow as pa
import pytest

import logline as ll
from logline.errors import ConnectorError, OptionError, PermanentError, SchemaError


class Refusing(ll.Sink):
    guarantee = "positioned"

    def __init__(self, error: Exception, tries: list[str], when: str) -> None:
        self.error, self.tries, self.when = error, tries, when

    def __deepcopy__(self, memo: object) -> Refusing:
        return self

    def position(self) -> int:
        self._refuse("position")
        return 0

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None:
        self._refuse("write")

    def _refuse(self, what: str) -> None:
        if what == self.when:
            self.tries.append(what)
            raise self.error


@pytest.mark.parametrize("when", ["position", "write"])
@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (PermanentError("no such column"), 1),
        (OptionError("the variable is not set"), 1),
        (SchemaError("no type for it"), 1),
        (ConnectorError("it is away"), 3),
        (OSError("it is away"), 3),
    ],
)
def test_only_what_may_pass_is_tried_again(error: Exception, tries: int, when: str) -> None:
    p, made = ll.Pipeline("refused"), list[str]()
    source = p.source("ids", ll.sources.batches([pa.table({"id": [1]})]))
    source.sink("store", Refusing(error, made, when), retry=ll.Retry(attempts=3, wait="1ms"))
    with pytest.raises(ll.PipelineFailed, match=str(error)):
        p.run(engine="inline")
    assert made == [when] * tries
