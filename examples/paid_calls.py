"""Rows enriched by a paid, slow service that never gives the same answer twice. An event is a batch of records.

`score` asks an HTTP service once per row: 50 calls in flight, at most 200 a second. Each answer is logged as it
comes. Its process is killed with kill -9 three times. An answer that is in the log is never asked for again; a call
that was in flight, or whose answer had just come and was not logged yet, is made again. The service counts, and at
the end it is known what it was paid for.

    python examples/paid_calls.py [--rows 600] [--engine processes|spark]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

import logline as ll

PER_EVENT, IN_FLIGHT, KILLS = 20, 50, 3


class Service:
    """`GET /ID` takes a while and answers with a score that it makes up; every call is remembered, and costs."""

    def __init__(self) -> None:
        self.answers: dict[int, list[float]] = defaultdict(list)
        self.calls = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                score = random.random()
                service.answers[int(self.path.strip("/"))].append(score)
                service.calls += 1
                time.sleep(0.05)
                body = json.dumps({"score": score}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 2 * IN_FLIGHT

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # a client that was killed while it waited

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def texts(rows: int) -> Iterator[pa.RecordBatch]:
    """What is to be scored."""
    for first in range(0, rows, PER_EVENT):
        ids = range(first, min(first + PER_EVENT, rows))
        yield pa.record_batch({"id": pa.array(ids, pa.int64()), "text": [f"text {n}" for n in ids]})


def pipeline(rows: int, url: str) -> ll.Pipeline:
    """texts -> score -> store."""

    def score(row: dict[str, Any], ctx: ll.Context) -> dict[str, Any]:
        # ctx.id is the same on every try of this row: a service that knows idempotency keys would want it.
        request = urllib.request.Request(f"{url}/{row['id']}", headers={"Idempotency-Key": ctx.id})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return {"id": row["id"], "score": json.load(answer)["score"]}

    p = ll.Pipeline("scores")
    found = p.source("texts", ll.sources.batches(lambda: texts(rows)), rows=PER_EVENT).map_rows(
        "score", score, schema="id long, score double", concurrency=IN_FLIGHT, rate="12000/min"
    )
    found.sink("store", ll.sinks.collect())
    return p


def kill_now_and_then(run: ll.Run, service: Service, rows: int) -> int:
    """kill -9 of the process of `score`, whenever another quarter of the rows has been answered."""
    killed, victims = 0, set()
    while killed < KILLS and run.status().phase == "running":
        pid = run.pid("score")
        if pid is not None and pid not in victims and service.calls >= (killed + 1) * rows // (KILLS + 1):
            os.kill(pid, signal.SIGKILL)
            victims.add(pid)
            killed += 1
            print(f"killed the process of 'score' ({pid}) after {service.calls} calls", flush=True)
        time.sleep(0.005)
    return killed


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=600)
    options.add_argument("--engine", choices=["processes", "spark"], default="processes")
    given = options.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    service = Service()
    with tempfile.TemporaryDirectory(prefix="logline-paid-") as folder:
        with pipeline(given.rows, service.url).start(f"lmdb:{folder}/log", engine=given.engine) as run:
            killed = kill_now_and_then(run, service, given.rows)
            run.wait()
        stored = {row["id"]: row["score"] for row in run.result("store").to_pylist()}
        count = run.result("store").num_rows
    service.close()
    # Had an answer been logged and asked for again all the same, the log's answer would not be the service's last.
    wasted = [n for n, score in stored.items() if service.answers[n][-1] != score]
    again = service.calls - given.rows
    print(
        f"{count} rows are stored, {service.calls} calls were paid for: {again} of them again, after {killed} kills"
    )
    print(f"calls made although their answer was in the log: {len(wasted)}")
    print(
        f"A kill repeats at most what was not in the log: the {IN_FLIGHT} calls in flight, and answers that came in\n"
        "the moment before it, while the last commit was being written. Starting over would have cost all of them."
    )
    whole = count == len(stored) == given.rows
    return 0 if whole and killed and not wasted else 1


if __name__ == "__main__":
    sys.exit(main())
