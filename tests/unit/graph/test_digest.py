from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from logline.connectors import sinks, sources
from logline.graph.digest import code_digest
from logline.graph.operator import Operator
from logline.operators import Filter, MapBatches

SCRIPT = """
from logline.graph.digest import code_digest
from logline.graph.operator import Operator

LIMIT = {limit}
WORDS = frozenset(["a", "b", "c", "d", "e"])

def helper(x):
    return x + LIMIT if str(x) in {{"q", "w", "e", "r"}} else WORDS

class Op(Operator):
    outputs = {{"out": "id long"}}
    def __init__(self, factor):
        self.factor = factor
        self.names = {{"x", "y", "z"}}
    def generate(self, inset, acc, ctx):
        yield {body}

print(code_digest(Op({factor})))
"""


def run(tmp_path: Path, limit: int = 1, body: str = "helper(acc)", factor: int = 2, before: str = "") -> str:
    """The digest in another process, from another file, with another seed for hashes."""
    script = tmp_path / f"script{len(list(tmp_path.iterdir()))}.py"
    script.write_text(before + SCRIPT.format(limit=limit, body=body, factor=factor))
    env = {**os.environ, "PYTHONHASHSEED": str(len(list(tmp_path.iterdir())))}
    return subprocess.run([sys.executable, str(script)], env=env, check=True, capture_output=True, text=True).stdout


def test_the_same_in_every_process_whatever_the_file_the_line_and_the_order_of_sets(tmp_path: Path) -> None:
    assert run(tmp_path) == run(tmp_path) == run(tmp_path, before="\n\n# moved down\n\n")


def test_code_constants_and_what_the_code_uses_count(tmp_path: Path) -> None:
    digests = {
        run(tmp_path),
        run(tmp_path, limit=2),
        run(tmp_path, body="helper(acc + 1)"),
        run(tmp_path, factor=3),
    }
    assert len(digests) == 4


def scaled(factor: int) -> Any:
    return lambda batch: batch * factor


def test_functions_in_ready_made_operators_count() -> None:
    schema = pa.schema([("id", pa.int64())])
    same = code_digest(MapBatches(scaled(2), schema)), code_digest(MapBatches(scaled(2), schema))
    assert same[0] == same[1]
    assert code_digest(MapBatches(scaled(3), schema)) != same[0]
    assert code_digest(Filter(pc.field("id") > 1)) != code_digest(Filter(pc.field("id") > 2))


class Recursive(Operator[Any, None]):
    def __init__(self) -> None:
        self.itself = self

    def generate(self, inset: Any, acc: Any, ctx: Any) -> Any:
        return Recursive()


def test_what_refers_to_itself_has_a_digest_too() -> None:
    assert code_digest(Recursive()) == code_digest(Recursive())


def test_where_a_connector_points_to_is_not_code() -> None:
    one, two = (sources.batches([pa.table({"id": [n]})]) for n in (1, 2))
    assert code_digest(one) == code_digest(two)


class InSet:
    def __init__(self) -> None:
        self.around = frozenset([self])


class Holds(Operator[Any, None]):
    def __init__(self) -> None:
        self.names = frozenset([InSet()])
        self.target = sinks.collect()


def test_sets_that_hold_themselves_and_connectors_inside_do_not_disturb() -> None:
    assert code_digest(Holds()) == code_digest(Holds())
