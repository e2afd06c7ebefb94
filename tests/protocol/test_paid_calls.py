"""`map_rows` with 50 calls in flight against a real HTTP server that counts: with crashes every row is once at the
sink, and no answer that was committed is asked for again (R9)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import PATIENCE, until

import logline as ll
from logline.engine import codec
from logline.names import InstanceName

ROWS, PER_EVENT, IN_FLIGHT = 600, 40, 50


class PaidServer:
    """Answers `GET /ID` with a number it never gives twice. Holds answers back until enough calls are in flight,
    so that "50 at once" is something that happened and not something that was timed; and gives so many and no more
    until it may."""

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()
        self.answers = 0
        self.flying = self.most = 0
        self._allowed = 0
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._full, self._more = asyncio.Event(), asyncio.Event()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            while (await reader.readline()).strip():
                pass
            row = int(line.split()[1].strip(b"/"))
            self.asked[row] += 1
            self.flying += 1
            self.most = max(self.most, self.flying)
            if self.flying >= IN_FLIGHT:
                self._full.set()
            await self._full.wait()
            while self.answers >= self._allowed:
                self._more.clear()
                await self._more.wait()
            self.flying -= 1
            self.answers += 1
            body = json.dumps({"score": self.answers}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
        except (ConnectionError, IndexError):
            pass  # the client was killed
        finally:
            writer.close()

    def allow(self, answers: int) -> None:
        """So many, from the first on."""

        def go_on() -> None:
            self._allowed = answers
            self._more.set()

        self._loop.call_soon_threadsafe(go_on)

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def server() -> Iterator[PaidServer]:
    server = PaidServer()
    yield server
    server.close()


def pipeline(port: int) -> ll.Pipeline:
    async def score(row: dict[str, Any], ctx: ll.Context[None]) -> dict[str, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % row["id"])
            *_, length = [line async for line in _headers(reader)]
            return {"id": row["id"], **json.loads(await reader.readexactly(int(length.split(b":")[1])))}
        finally:
            writer.close()

    async def _headers(reader: asyncio.StreamReader) -> Any:
        while line := (await reader.readline()).strip():
            yield line

    p = ll.Pipeline("paid")
    ids = [pa.record_batch({"id": list(range(n, n + PER_EVENT))}) for n in range(0, ROWS, PER_EVENT)]
    rows = p.source("rows", ll.sources.batches(ids))
    scored = rows.map_rows("score", score, schema="id long, score long", concurrency=IN_FLIGHT)
    scored.sink("kept", ll.sinks.collect())
    return p


def committed_rows(run: ll.Run) -> set[int]:
    """Rows whose answer is in the log: kept for a set that is not done, or in an event that is out."""
    reader = run.log.store.read(InstanceName("score"))
    kept = {codec.decode(a.value)["id"] for answers in reader.image().answers.values() for a in answers}
    return kept | set(run.result("kept")["id"].to_pylist() if run.result("kept").num_columns else [])


def given(server: PaidServer, answers: int) -> bool:
    return server.answers == answers


def test_fifty_calls_in_flight_and_three_crashes(server: PaidServer) -> None:
    strikes = (70, 200, 380)
    known: list[set[int]] = [set()]
    asked: list[Counter[int]] = [Counter()]
    with pipeline(server.port).start(engine="inline") as run:
        for strike in strikes:
            server.allow(strike)
            until(partial(given, server, strike))
            until(lambda: len(committed_rows(run)) > len(known[-1]))
            known.append(committed_rows(run))
            asked.append(Counter(server.asked))
            run.restart("score")
        server.allow(100 * ROWS)
        status = run.wait(PATIENCE)
        result = run.result("kept")
    assert sorted(result["id"].to_pylist()) == list(range(ROWS))
    assert len(set(result["score"].to_pylist())) == ROWS
    assert status.operators["score"].restarts == len(strikes)
    for paid, before in zip(known, asked, strict=True):
        again = {row for row in paid if server.asked[row] != before[row]}
        assert again == set()
    # Only what a crash made vanish is asked again.
    assert max(server.asked.values()) <= len(strikes) + 1


def test_without_a_crash_every_row_is_asked_once(server: PaidServer) -> None:
    server.allow(ROWS)
    run = pipeline(server.port).run(engine="inline")
    assert sorted(run.result("kept")["id"].to_pylist()) == list(range(ROWS))
    assert set(server.asked.values()) == {1}
    assert server.most == IN_FLIGHT
