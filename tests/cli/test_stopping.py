"""Ctrl-C, SIGTERM, `logline stop` and `--takeover` in real processes: what is begun, what is kept, exit codes."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.harness import logline, started
from tests.waiting import PATIENCE, until

ROWS = 12
PAID = f'''
"""Each row is a paid call, which notes that it was made and waits for a file `answer`."""

import asyncio
from pathlib import Path

import pyarrow as pa

import logline as ll

HERE = Path(__file__).parent


async def ask(row, ctx):
    with (HERE / "asked").open("a") as file:
        file.write(f"{{row['n']}}\\n")
    while not (HERE / "answer").exists():
        await asyncio.sleep(0.02)
    return row


p = ll.Pipeline("paid")
rows = p.source("rows", ll.sources.batches([pa.table({{"n": range({ROWS})}})]))
rows.map_rows("ask", ask, schema="n long", concurrency=5).sink("store", ll.sinks.parquet(str(HERE / "out")))
'''


class Paid:
    """The pipeline above, on its way, up to where it waits for five answers."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder = folder
        (folder / "paid.py").write_text(PAID)
        self.command = ("run", folder / "paid.py", "--log", folder / "log", "--engine", engine)
        self.child = started(*self.command)
        until(lambda: len(self.asked()) == 5)

    def asked(self) -> list[int]:
        file = self.folder / "asked"
        return sorted(map(int, file.read_text().split())) if file.exists() else []

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Sends the signal, and reads up to where the run says what it waits for."""
        self.child.send_signal(number)
        assert self.child.stderr is not None
        while "paid stopping (5 calls in flight)" not in (line := self.child.stderr.readline()):
            assert line, "it ended"

    def answer(self) -> None:
        (self.folder / "answer").touch()

    def end(self) -> tuple[int, str]:
        said, wrong = self.child.communicate(timeout=PATIENCE)
        return self.child.returncode, said + wrong

    def finish(self) -> subprocess.CompletedProcess[str]:
        self.answer()
        return logline(*self.command)


@pytest.fixture
def paid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Paid]:
    paid = Paid(tmp_path, getattr(request, "param", "inline"))
    yield paid
    paid.child.kill()
    paid.child.communicate()


@pytest.mark.parametrize(
    ("paid", "number", "code"),
    [("inline", signal.SIGTERM, 143), ("processes", signal.SIGINT, 130)],
    indirect=["paid"],
)
def test_calls_in_flight_are_kept_and_no_other_is_made(paid: Paid, number: signal.Signals, code: int) -> None:
    paid.interrupt(number)
    paid.answer()
    ended, said = paid.end()
    assert (ended, "Traceback" in said) == (code, False), said
    assert "paid stopped; run again to go on" in said
    assert paid.asked() == [0, 1, 2, 3, 4]
    assert paid.finish().returncode == 0
    assert paid.asked() == list(range(ROWS))


def test_a_second_ctrl_c_does_not_wait(paid: Paid) -> None:
    paid.interrupt()
    paid.child.send_signal(signal.SIGINT)
    ended, said = paid.end()
    assert (ended, "Traceback" in said) == (130, False), said
    assert "cut short; what is logged stays logged. Run again to go on" in said
    ran = paid.finish()
    assert ran.returncode == 0, ran.stderr
    assert paid.asked() == sorted([0, 1, 2, 3, 4, *range(ROWS)])


@pytest.mark.parametrize("paid", ["processes"], indirect=True)
def test_stop_from_another_process(paid: Paid) -> None:
    stop = started("stop", paid.folder / "log")
    assert stop.stdout is not None
    assert stop.stdout.readline().startswith("stopping")
    paid.answer()
    said, wrong = stop.communicate(timeout=PATIENCE)
    assert stop.returncode == 0, wrong
    assert said.endswith("is over: stopped; run again to go on\n")
    ended, told = paid.end()
    assert ended == 0 and "stopped; run again to go on" in told
    assert paid.asked() == [0, 1, 2, 3, 4]


def test_a_run_that_was_taken_over_does_not_end_well(paid: Paid) -> None:
    other = started(*paid.command, "--takeover")
    ended, said = paid.end()
    assert ended == 4, said
    assert "another run has taken the log" in said and "Traceback" not in said
    paid.answer()
    _, wrong = other.communicate(timeout=PATIENCE)
    assert other.returncode == 0, wrong


def test_ctrl_c_before_the_command_line_is_imported() -> None:
    early = """
import runpy, sys

class Finder:
    def find_spec(self, name, *given):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
runpy.run_module("logline", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", early], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
