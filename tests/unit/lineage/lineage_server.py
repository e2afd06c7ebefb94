"""A server that takes OpenLineage events, as Marquez does: a POST each."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import PATIENCE


class LineageServer:
    """What came, and what to answer."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.answers: list[int] = []
        """Codes for the next requests; then 201."""
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[LineageServer]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.set()
                outer.open.wait(PATIENCE)
                code = outer.answers.pop(0) if outer.answers else 201
                outer.paths.append(self.path)
                outer.keys.append(self.headers["Authorization"])
                if code == 201:
                    outer.events.append(body)
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.open.set()
            server.shutdown()
            thread.join()
            server.server_close()
