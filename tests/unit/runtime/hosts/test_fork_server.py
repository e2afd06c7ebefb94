"""The fork server and the workers that it makes, spoken to over a real socket and real pipes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.waiting import PATIENCE

from logline.runtime.hosts.pipes import listen
from logline.runtime.messages.forks import FORK_ANSWERS, Exited, Fork, ForkAnswer, Forked, Kill
from logline.runtime.messages.reports import END, Failed
from logline.runtime.messages.wire import encode


class Server:
    """A fork server in a process of its own, and this end of its line."""

    def __init__(self) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.line.settimeout(PATIENCE)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "logline.runtime.hosts.fork_server", str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stderr=subprocess.PIPE,
                text=True,
            )

    def fork(self, number: int) -> tuple[int, int]:
        """Asks for a process; returns where its commands go and its reports come."""
        commands_in, commands_out = os.pipe()
        reports_in, reports_out = os.pipe()
        socket.send_fds(self.line, [encode(Fork(number, "hourly"))], (commands_in, reports_out))
        os.close(commands_in)
        os.close(reports_out)
        return commands_out, reports_in

    def answer(self) -> ForkAnswer:
        return FORK_ANSWERS.decode(self.line.recv(1 << 16))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.line.close()
    made.process.kill()
    made.process.communicate(timeout=PATIENCE)


def test_processes_are_made_and_killed(server: Server) -> None:
    pipes = [server.fork(number) for number in range(2)]
    pids = []
    for number in range(2):
        match server.answer():
            case Forked(n, pid):
                assert n == number
                pids.append(pid)
            case other:
                raise AssertionError(other)
    assert len({*pids, server.process.pid}) == 3
    server.line.send(encode(Kill(1)))
    assert server.answer() == Exited(1, -9)
    assert list(listen(pipes[1][1])) == []
    os.close(pipes[0][0])  # the driver is gone before it has said anything
    assert isinstance(server.answer(), Exited)
    os.close(pipes[1][0])
    for _, reports in pipes:
        os.close(reports)


@pytest.mark.parametrize("data", [b"nonsense", b'{"kind": "explode"}', b'{"kind": "kill"}', encode(Forked(1, 2))])
def test_a_server_that_is_asked_what_it_does_not_know_ends_with_a_traceback(server: Server, data: bytes) -> None:
    server.line.send(data)
    _, told = server.process.communicate(timeout=PATIENCE)
    assert server.process.returncode == 1
    assert "not a request to the fork server" in told
    assert data.decode() in told


@pytest.mark.parametrize("data", [b"nonsense", b'{"kind": "stop"}'])
def test_a_worker_that_cannot_read_what_to_run_says_so(server: Server, data: bytes) -> None:
    commands, reports = server.fork(0)
    os.write(commands, data + b"\n")
    (line,) = listen(reports)
    match END.decode(line):
        case Failed(text):
            assert text.startswith("a worker process can't begin: what it was sent is not a worker's first message: ")
            assert data.decode() in text
        case other:
            raise AssertionError(other)
    assert isinstance(server.answer(), Forked)
    assert server.answer() == Exited(0, 1)
    os.close(commands)
    os.close(reports)
