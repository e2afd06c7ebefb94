"""Sends OpenLineage events to a file or a server, on a thread of its own, so that no pipeline ever waits for them.

Events leave in their order. While the server can't be reached the sender tries the first one again, as long as the
run lasts. At most `MOST` events wait; it leaves out those that come then, but never the START or the end of a run.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from logline.graph.secrets import Secret
from logline.lineage.openlineage.settings import OpenLineage

MOST = 1000
"""Events that wait."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_TRY_AGAIN = (408, 425, 429)

logger = logging.getLogger("logline")

Deliver = Callable[[bytes], None]
"""Takes one event; raises OSError if it may be tried again, Refused if that is of no use."""


class Refused(Exception):
    """The server does not want this event."""


class Sender:
    """Delivers events one after the other."""

    def __init__(self, to: OpenLineage) -> None:
        self._deliver = (
            _to_file(to.file) if to.file is not None else _to_server(to.url, to.api_key, to.timeout.total_seconds())
        )
        self._where = to.where
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._until: float | None = None
        self._left_out = 0
        self._warned = False
        self._thread = threading.Thread(target=self._work, name="logline-openlineage-sender", daemon=True)
        self._thread.start()

    def put(self, event: Mapping[str, Any], *, must: bool) -> None:
        """Returns at once. `must`: it is not left out, however many wait."""
        text = json.dumps(event, separators=(",", ":")).encode()
        with self._changed:
            if len(self._waiting) >= MOST and not must:
                self._left_out += 1
                return
            self._waiting.append(text)
            self._changed.notify()

    def close(self, patience: float) -> bool:
        """No more events; whether all were delivered. Waits for that, but not for longer than `patience` seconds."""
        with self._changed:
            self._until = time.monotonic() + patience
            self._changed.notify()
        self._thread.join(patience)
        with self._changed:
            lost = len(self._waiting) + self._left_out
            all_there = not self._waiting
        if lost:
            logger.warning("OpenLineage: %d events of this run were not delivered to %s", lost, self._where)
        return all_there

    def _work(self) -> None:
        pause = _FIRST_PAUSE
        while (event := self._next()) is not None:
            try:
                self._deliver(event)
            except (OSError, http.client.HTTPException) as error:
                self._warn(f"can't be delivered to {self._where}, and are tried again", error)
                with self._changed:
                    self._changed.wait(self._time_left(pause))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            except Refused as error:
                self._warn(f"are refused by {self._where}", error)
            pause = _FIRST_PAUSE
            with self._changed:
                self._waiting.popleft()

    def _next(self) -> bytes | None:
        """The first of those that wait; None once the run is over and there is none, or no time for it."""
        with self._changed:
            while not self._waiting and self._until is None:
                self._changed.wait()
            return self._waiting[0] if self._waiting and self._time_left(1.0) > 0 else None

    def _time_left(self, pause: float) -> float:
        """At the end of a run, tried again sooner: there is not much time."""
        return pause if self._until is None else min(pause, _FIRST_PAUSE, self._until - time.monotonic())

    def _warn(self, what: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("OpenLineage events %s: %s. The pipeline goes on", what, error)


def _to_file(path: Path) -> Deliver:
    def deliver(event: bytes) -> None:
        with path.open("ab") as file:
            file.write(event + b"\n")

    return deliver


def _to_server(url: str, api_key: Secret | None, timeout: float) -> Deliver:
    opener = urllib.request.build_opener(_NoRedirects)

    def deliver(event: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key.resolve()}"
        request = urllib.request.Request(url, event, headers, method="POST")
        try:
            with opener.open(request, timeout=timeout) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            with error:  # it holds the connection
                if error.code < 500 and error.code not in _TRY_AGAIN:
                    raise Refused(f"{error.code} {error.reason}") from None
                raise OSError(f"{error.code} {error.reason}") from None

    return deliver


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An API key is for the server it was given for, not for whomever that one names."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None
