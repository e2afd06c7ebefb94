"""Lines in a pipe whose writer may be killed in the middle of one."""

from __future__ import annotations

import os

from logline.runtime.hosts.pipes import Speaker, listen
from logline.runtime.messages.reports import LogLine, Started
from logline.runtime.messages.wire import encode


def test_a_line_that_a_kill_has_cut_off_is_dropped() -> None:
    reader, writer = os.pipe()
    os.write(writer, encode(Started(7)) + b"\n" + encode(Started(8))[:-2])
    os.close(writer)
    assert list(listen(reader)) == [encode(Started(7))]
    os.close(reader)


def test_nobody_listens_any_more() -> None:
    reader, writer = os.pipe()
    speaker = Speaker(writer)
    assert speaker.say(LogLine("logline", 20, "heard"))
    os.close(reader)
    assert not speaker.say(LogLine("logline", 20, "not heard"))
    speaker.close()
    speaker.close()
