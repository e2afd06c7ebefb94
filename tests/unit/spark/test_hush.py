"""A server of PySpark's own that fails with its JVM says nothing on the terminal."""

from __future__ import annotations

import socket
import socketserver
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from logline.spark.host import _hush


class Failing(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        raise EOFError("the JVM is gone")


def test_it_prints_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), Failing) as server:
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server))
        _hush(session)
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        socket.create_connection(("127.0.0.1", server.server_address[1])).close()
        thread.join()
    assert capsys.readouterr().err == ""
