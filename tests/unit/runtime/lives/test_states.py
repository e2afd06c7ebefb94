"""A state whose class is written in the script that runs the pipeline: it goes to the workers by value."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import PATIENCE

SCRIPT = """
{future}
import sys
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import msgspec
import pyarrow as pa

import logline as ll


@dataclass
class Seen:
    items: list[str] = field(default_factory=list)


@dataclass
class Plain:
    n: Annotated[int, msgspec.Meta(ge=0)] = 0
    seen: Seen = field(default_factory=Seen)

    def add(self, item):
        self.n += 1
        self.seen.items.append(item)
        return self.n


class Made(msgspec.Struct):
    last: str
    at: int = 0


class Base(msgspec.Struct):
    n: int = 0

    def up(self):
        self.n += 1
        return self.n


class Struct(Base, rename="camel"):
    so_far: list[Made] = []
    first_item: str = ""
    limit: ClassVar[int] = 3

    def __post_init__(self):
        self.so_far = self.so_far[-self.limit :]

    def add(self, item):
        assert isinstance(self, Struct)
        assert len(self.so_far) <= Struct.limit + 3, "it does not forget"
        self.so_far.append(Made(item, at=super().up()))
        self.first_item = self.first_item or item
        assert self.first_item == "a", "it does not remember"
        return self.n


class Numbering(ll.Operator):
    outputs = {{"out": "n long, item string"}}
    State = {kind}

    def assign(self, event, ctx):
        assert sys.argv[2] in ("inline", "processes"), "a worker has other arguments than its driver"
        assert isinstance(ctx.state, {kind})
        return [ctx.state.add(event.batch["item"][0].as_py())]

    def update(self, inset, acc, event):
        return event.batch["item"][0].as_py()

    def ready(self, inset, acc, ctx):
        return True

    def generate(self, inset, acc, ctx):
        yield pa.table({{"n": [inset], "item": [acc]}})


if __name__ == "__main__":
    p = ll.Pipeline("numbering")
    source = p.source("items", ll.sources.batches([pa.table({{"item": [x]}}) for x in "abcdef"]))
    source.apply("numbers", Numbering()).sink("store", ll.sinks.collect())
    run = p.run(f"lmdb:{{sys.argv[1]}}", engine=sys.argv[2], durability="process")
    rows = run.result("store").to_pylist()
    print([(row["n"], row["item"]) for row in rows], run.status().operators["numbers"].restarts)
"""


@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
@pytest.mark.parametrize("kind", ["Plain", "Struct"])
@pytest.mark.parametrize(("engine", "restarts"), [("inline", 0), ("processes", 1)])
def test_it_comes_back_after_a_crash(kind: str, future: str, engine: str, restarts: int, tmp_path: Path) -> None:
    script = tmp_path / "numbering.py"
    script.write_text(SCRIPT.format(kind=kind, future=future))
    fault = {"LOGLINE_FAULT": "numbers:commit.inside:2"} if restarts else {}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "log"), engine],
        env={**os.environ, **fault},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    wanted = [(n, item) for n, item in enumerate("abcdef", start=1)]
    assert done.stdout == f"{wanted} {restarts}\n", done.stderr
