"""Which process a pid means, and which processes a store may kill."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from logline.store.processes import as_worker_process, is_worker_process, started


def test_a_process_is_a_worker_for_as_long_as_its_life_lasts() -> None:
    @as_worker_process()
    def life() -> None:
        seen.append(is_worker_process())
        raise OSError("it ends")

    seen = [is_worker_process()]
    with pytest.raises(OSError, match="it ends"):
        life()
    assert [*seen, is_worker_process()] == [False, True, False]


def test_a_pid_with_its_start_names_one_process() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        born = started(child.pid)
        assert int(born) >= int(started(os.getpid()))
        child.communicate(b"\n")
    assert started(child.pid) == ""
