from __future__ import annotations

import functools
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from logline.errors import ShippingError
from logline.graph.connector import Sink, Source
from logline.graph.operator import Operator
from logline.graph.shipping import check_shippable
from logline.operators import MapBatches


class Enrich(Operator[Any, None]):
    outputs = {"out": "id long"}  # noqa: RUF012

    def __init__(self, client: object) -> None:
        self.client = client


class Read(Source):
    schema = pa.schema([("id", pa.int64())])

    def __init__(self, data: object) -> None:
        self.data = data

    def read(self, partition: str, offset: Any) -> Iterator[Any]:
        yield from ()


class Store(Sink):
    guarantee = "named"

    def __init__(self, connection: object) -> None:
        self.connection = connection

    def write(self, batch: pa.RecordBatch, number: int, write_id: str) -> None: ...


class Wrapper:
    def __init__(self) -> None:
        self.guard = threading.Lock()


class Slotted:
    __slots__ = ("guard",)

    def __init__(self) -> None:
        self.guard = threading.Lock()


def refused(obj: object) -> str:
    with pytest.raises(ShippingError) as info:
        check_shippable("enrich", obj)
    assert info.value.__cause__ is not None
    return str(info.value)


def test_what_can_travel() -> None:
    check_shippable("enrich", Enrich({"url": "http://localhost"}))
    check_shippable("enrich", MapBatches(lambda batch: batch, pa.schema([])))
    check_shippable("orders", Read([pa.record_batch({"id": [1]})]))


def test_a_client_is_named_with_its_attribute() -> None:
    with socket.socket() as client:
        assert refused(Enrich(client)) == (
            "operator 'enrich': attribute 'client' (socket) can't be shipped to a worker: create it in open()"
        )


def test_a_lock_a_thread_and_a_database_connection() -> None:
    assert "attribute 'client' (lock)" in refused(Enrich(threading.Lock()))
    assert "attribute 'client' (Thread)" in refused(Enrich(threading.Thread()))
    connection = sqlite3.connect(":memory:")
    try:
        assert "attribute 'connection' (Connection)" in refused(Store(connection))
    finally:
        connection.close()


@pytest.mark.parametrize("mode", ["r", "w", "rb", "wb"])
def test_an_open_file_also_one_that_could_be_copied(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "data"
    path.write_text("x")
    with path.open(mode) as file:
        assert f"attribute 'client' ({type(file).__name__})" in refused(Enrich(file))


def test_a_generator_is_to_be_made_by_a_function() -> None:
    message = refused(Read(x for x in range(3)))
    assert "attribute 'data' (generator) can't be shipped to a worker: pass a function that makes it" in message


def test_what_is_inside_an_author_s_own_object_is_found() -> None:
    assert "attribute 'guard', in attribute 'client' (lock)" in refused(Enrich(Wrapper()))
    assert "attribute 'guard', in attribute 'client' (lock)" in refused(Enrich(Slotted()))
    assert "item 1, in attribute 'client' (lock)" in refused(Enrich([1, threading.Lock()]))
    assert "item 'k', in attribute 'client' (lock)" in refused(Enrich({"k": threading.Lock()}))


def closing_over(guard: object) -> Callable[[Any], Any]:
    return lambda batch: guard


def test_a_variable_of_a_function_is_named_without_the_operator_s_own_attributes() -> None:
    op = MapBatches(closing_over(threading.Lock()), pa.schema([]))
    assert refused(op) == (
        "operator 'enrich': variable 'guard' used by <lambda>() (lock) can't be shipped to a worker: "
        "create it inside the function, or in open() of an Operator"
    )


def test_a_default_and_an_argument_of_a_partial() -> None:
    guard = threading.Lock()

    def fn(batch: Any, other: Any = guard) -> Any:
        return batch

    def two(guard: Any, batch: Any) -> Any:
        return batch

    assert "default of parameter 'other' of fn() (lock)" in refused(MapBatches(fn, pa.schema([])))
    op = MapBatches(functools.partial(two, threading.Lock()), pa.schema([]))
    assert "argument 0 of the partial (lock)" in refused(op)


def test_a_global_variable_of_a_script() -> None:
    space: dict[str, Any] = {"__name__": "__main__", "guard": threading.Lock()}
    exec("def fn(batch):\n    return [guard for _ in batch]", space)
    message = refused(MapBatches(space["fn"], pa.schema([])))
    assert "global variable 'guard' used by fn() (lock)" in message


def test_the_authors_class_is_left_alone() -> None:
    """Loading a class by value would give it methods whose globals are a copy."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("class Op:\n    def generate(self):\n        return counter\n", space)
    before = space["Op"].generate
    check_shippable("op", space["Op"]())
    assert space["Op"].generate is before
    assert before.__globals__ is space
