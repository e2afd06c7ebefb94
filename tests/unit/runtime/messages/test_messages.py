"""Every message goes through a real pipe and comes back the same; what is no message is told."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import logline.runtime.messages
from logline.errors import PipelineFailed
from logline.names import LogId, OperatorName
from logline.runtime.hosts.pipes import Speaker, listen
from logline.runtime.messages.commands import (
    BEGIN,
    RUN_COMMANDS,
    WATCHDOG_ORDERS,
    WORKER_COMMANDS,
    Begin,
    Drain,
    Drop,
    Flush,
    KillProcess,
    Restart,
    Retry,
    Stop,
)
from logline.runtime.messages.forks import FORK_ANSWERS, FORK_REQUESTS, Exited, Fork, Forked, Kill, NotForked
from logline.runtime.messages.notes import (
    DRIVER_NOTES,
    EXPORT_NOTES,
    GROUP_STATUSES,
    STORY_NOTES,
    DriverNote,
    ExportNote,
    GroupStatus,
    StoryEntry,
    StoryNote,
    TaskLife,
)
from logline.runtime.messages.reports import (
    END,
    LETTERS,
    REPORTS_AND_END,
    Failed,
    Letter,
    LogLine,
    Over,
    Started,
    StatusReport,
)
from logline.runtime.messages.wire import SHOWN, Decoder, Message, NotAMessage, encode
from logline.runtime.status import OperatorStatus

KNOWN = {"hourly": OperatorStatus(taken=3, restarts=1, counters={"late": 2, "ratio": 0.5}), "store": OperatorStatus()}
TASK = TaskLife("7f3", 2, "12345", (17, "12344"), 1.5, 1, "web-1")
EXAMPLES: list[tuple[Decoder[Any], Message]] = [
    (
        BEGIN,
        Begin(["/a", "/caf\udce9"], ["job.py", "é"], "lmdb:log", LogId("ab12"), 20, "hourly", "", 3, b"\x00\xff\n"),
    ),
    (WORKER_COMMANDS, Stop()),
    (WORKER_COMMANDS, Drain()),
    (WORKER_COMMANDS, Flush()),
    (WATCHDOG_ORDERS, KillProcess(17, "12344", "web-1")),
    (RUN_COMMANDS, Stop()),
    (RUN_COMMANDS, Drain()),
    (RUN_COMMANDS, Restart(OperatorName("hourly"))),
    (RUN_COMMANDS, Retry(["enrich.errors:3"], True, b"\x00\n", "me")),
    (RUN_COMMANDS, Drop(["enrich.errors:3"])),
    (FORK_REQUESTS, Fork(0, "hourly")),
    (FORK_REQUESTS, Kill(0)),
    (FORK_ANSWERS, Forked(0, 17)),
    (FORK_ANSWERS, NotForked(0, "no memory")),
    (FORK_ANSWERS, Exited(0, -9)),
    (REPORTS_AND_END, Started(17, "was killed by signal 9")),
    (REPORTS_AND_END, StatusReport(KNOWN, quiet=True)),
    (REPORTS_AND_END, LogLine("logline.op.hourly", 30, "two\nlines, \udce9")),
    (REPORTS_AND_END, Over("handed")),
    (REPORTS_AND_END, Failed("operator 'hourly' failed", "hourly", "[1]", "Traceback ...")),
    (END, Over("fenced")),
    (END, Failed("no module")),
    (LETTERS, Letter("7f3", "hourly", 2, Started(17))),
    (LETTERS, Letter("7f3", "hourly", 2, LogLine("logline", 20, "hello"))),
    (DRIVER_NOTES, DriverNote("7f3", 17, 1.5, "running", "", KNOWN)),
    (GROUP_STATUSES, GroupStatus(17, "draining", KNOWN, quiet=False, at=1.5)),
    (GROUP_STATUSES, GroupStatus(17, "draining", KNOWN, quiet=False, at=1.5, task=TASK)),
    (EXPORT_NOTES, ExportNote("7f3", ["hourly", "store"], open=True)),
    (
        STORY_NOTES,
        StoryNote(3, "left", (StoryEntry(5, "running", "Bell", ("Fetch(a.out>b.in, after 7)",)),)),
    ),
]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe; the test closes what it writes to."""
    read, write = os.pipe()
    yield read, write
    os.close(read)


def all_messages() -> set[type[Message]]:
    for module in pkgutil.iter_modules(logline.runtime.messages.__path__, "logline.runtime.messages."):
        importlib.import_module(module.name)
    here = (kind for kind in Message.__subclasses__() if kind.__module__.startswith("logline.runtime.messages"))
    # Doctests that ran in this process have made classes of their own.
    return {kind for kind in here if getattr(sys.modules[kind.__module__], kind.__name__, None) is kind}


@pytest.mark.parametrize(("decoder", "message"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_a_message_comes_back_as_it_was(decoder: Decoder[Any], message: Message, pipe: tuple[int, int]) -> None:
    speaker = Speaker(pipe[1])
    assert speaker.say(message)
    assert speaker.say(message)
    speaker.close()
    assert [decoder.decode(line) for line in listen(pipe[0])] == [message, message]


def test_there_is_an_example_of_every_message() -> None:
    parts = {TaskLife, StoryEntry}  # they are sent inside of others
    assert {type(message) for _, message in EXAMPLES} == all_messages() - parts


def test_kinds_are_told_apart_and_read_as_words() -> None:
    kinds = [kind.__struct_config__.tag for kind in all_messages()]
    assert max(Counter(kinds).values()) == 1
    assert {"stop", "status_report", "not_forked"} <= set(kinds)


def test_what_an_operator_counts_with_numpy_is_a_number() -> None:
    counted = {"seen": numpy.int64(3), "part": numpy.float64(0.5)}
    sent = StatusReport({"a": OperatorStatus(counters=counted)}, quiet=False)  # type: ignore[arg-type]
    assert json.loads(encode(sent))["operators"]["a"]["counters"] == {"seen": 3, "part": 0.5}


def test_an_error_is_the_same_in_the_driver() -> None:
    error = PipelineFailed("it failed\n\nand how", operator="hourly", event="[1]", traceback="Traceback\n\n  x")
    again = Failed.of(error).error()
    assert str(again) == str(error)
    assert (again.operator, again.event, again.traceback) == (error.operator, error.event, error.traceback)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"stop",
        b"{",
        b'{"kind": "sto',
        b"[]",
        b"null",
        b"{}",
        b'{"do": "stop"}',
        b'{"kind": "explode"}',
        b'{"kind": "restart"}',
        b'{"kind": "restart", "operator": 3}',
        b'{"kind": "stop", "when": "now"}',
        b"\xff\xfe",
        b"[" * 100_000,
        encode(Started(17)),
    ],
    ids=lambda data: repr(data[:30]),
)
def test_what_is_no_message_is_told_and_those_around_it_are_heard(
    data: bytes, pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    os.write(pipe[1], encode(Drain()) + b"\n" + data[:10_000] + b"\n" + encode(Stop()) + b"\n" + b'{"kind": "sto')
    os.close(pipe[1])
    assert list(RUN_COMMANDS.understood(listen(pipe[0]), "somebody")) == [Drain(), Stop()]
    (record,) = caplog.records  # the half line at the end is no error: its sender was killed
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("somebody sent something that is not a command to a run: ")
    assert data[:30].decode(errors="replace") in record.getMessage()
    assert len(record.getMessage()) < 2 * SHOWN + 200
    with pytest.raises(NotAMessage):
        RUN_COMMANDS.decode(data)


def test_a_long_one_is_shortened() -> None:
    with pytest.raises(NotAMessage, match=r"\.\.\. of 5000 bytes") as told:
        RUN_COMMANDS.decode(b"x" * 5000)
    assert len(str(told.value)) < 2 * SHOWN
