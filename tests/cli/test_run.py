"""`logline run` and `logline check`: files, exit codes, what is said."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.harness import TOTALS, environment, logline, started, write_sales
from tests.waiting import PATIENCE, until

import logline as ll
from logline.runtime.log.log_status import log_status


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_file_is_run(engine: str, tmp_path: Path) -> None:
    """Its class and the module beside it reach the workers; it need not be in the current folder."""
    write_sales(tmp_path)
    ran = logline("run", "sales.py", "--log", "lmdb:log", "--engine", engine, cwd=tmp_path)
    assert (ran.returncode, ran.stdout.split(":")[0]) == (0, "sales finished"), ran.stderr
    assert pq.read_table(tmp_path / "out")["total"].to_pylist() == TOTALS


def test_what_a_script_began_the_command_line_goes_on_with(tmp_path: Path) -> None:
    """To the log, the file's own classes are the same either way (R14)."""
    path = write_sales(tmp_path)
    subprocess.run([sys.executable, path, f"lmdb:{tmp_path / 'log'}"], env=environment(), check=True)
    ran = logline("run", path, "--log", tmp_path / "log", "--engine", "inline")
    assert ran.returncode == 0, ran.stderr
    assert "nothing is run twice" in ran.stderr and "has changed" not in ran.stderr
    refused = logline("run", path, "--log", tmp_path / "log", "--engine", "inline", "--fresh")
    assert refused.returncode == 1
    assert f"--fresh: the log lmdb:{tmp_path / 'log'} has been used by pipeline 'sales'" in refused.stderr
    assert "leave --fresh out to go on with it" in refused.stderr and "resume" not in refused.stderr


def test_ctrl_c_stops_it_in_order_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = write_sales(tmp_path, go=False)
    command = ("run", path, "--log", tmp_path / "log", "--engine", "processes")
    child = started(*command)
    until((tmp_path / "log" / "graph.json").exists)
    log = ll.open_log(f"lmdb:{tmp_path / 'log'}")
    until(lambda: log_status(log.store).operators["blocks"].taken == 25)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130, said
    assert "Traceback" not in said
    assert log_status(log.store).phase == "stopped"
    (tmp_path / "go").touch()
    assert logline(*command).returncode == 0
    assert pq.read_table(tmp_path / "out")["total"].to_pylist() == TOTALS


def test_a_terminal_sees_how_it_goes(tmp_path: Path) -> None:
    path = write_sales(tmp_path)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "logline", "run", str(path), "--engine", "inline"]
    child = subprocess.Popen(
        command, env=environment(TERM="xterm", COLUMNS="120"), stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    seen = b""
    while select.select([ours], [], [], PATIENCE)[0]:
        try:
            seen += os.read(ours, 4096)
        except OSError:  # the other side is gone
            break
    os.close(ours)
    assert child.wait(PATIENCE) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    assert "events/s" in text
    assert re.search(r"sales finished, \d+ s", text)
    assert re.search(r"blocks +40 +4 ", text)


def test_a_failed_operator_shows_its_own_traceback_and_not_ours(tmp_path: Path) -> None:
    path = write_sales(tmp_path)
    (tmp_path / "prices.py").write_text("def price(n):\n    return 1 // (n - 7)\n")
    for engine in ("inline", "processes"):
        ran = logline("run", path, "--log", tmp_path / engine, "--engine", engine)
        assert ran.returncode == 1
        assert "logline: operator 'priced' failed on orders:8: ZeroDivisionError" in ran.stderr
        assert "return 1 // (n - 7)" in ran.stderr
        assert "src/logline" not in ran.stderr
        said = logline("status", tmp_path / engine)
        assert "sales: failed" in said.stdout and "ZeroDivisionError" in said.stdout


@pytest.mark.parametrize(
    ("code", "target", "exit_code", "says"),
    [
        ("import logline as ll\np = ll.Pipeline('a')\nq = ll.Pipeline('b')\n", "", 2, "several pipelines: say"),
        ("x = 1\n", "", 2, "has no Pipeline at module level"),
        ("x = 1\n", ":make", 2, "no function 'make'"),
        ("def make():\n    return 7\n", ":make", 2, "returned 7, not a Pipeline"),
        ("import logline as ll\n\np = ll.Pipeline('no good')\n", "", 1, "job.py:3: 'no good' can't name a pipeline"),
        ("def f():\n    return 1 // 0\n\nf()\n", "", 1, "ZeroDivisionError"),
        ("def f(:\n", "", 1, "SyntaxError"),
    ],
)
def test_a_file_that_is_wrong(code: str, target: str, exit_code: int, says: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(code)
    ran = logline("check", f"job.py{target}", cwd=tmp_path)
    assert (ran.returncode, says in " ".join(ran.stderr.split())) == (exit_code, True), ran.stderr
    assert "src/logline" not in ran.stderr
    assert "frozen importlib" not in ran.stderr


def test_a_command_line_that_is_wrong(tmp_path: Path) -> None:
    assert logline("run", tmp_path / "none.py").returncode == 2
    assert logline("run", write_sales(tmp_path), "--engine", "steam").returncode == 2
    assert logline("run", tmp_path / "sales.py", "--engine", "inline", "--master", "local[2]").returncode == 2
    without = logline("run", tmp_path / "sales.py", "--engine", "processes")
    assert without.returncode == 2 and "--log lmdb:PATH" in without.stderr
    assert logline("fly").returncode == 2


def test_a_log_that_can_not_be_made_is_one_line(tmp_path: Path) -> None:
    ran = logline("run", write_sales(tmp_path), "--log", "/proc/none/log", "--engine", "inline")
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("logline: the log can't be in /proc/none/log (No such file or directory")


def test_check_says_what_can_run_and_what_can_go_on(tmp_path: Path) -> None:
    path = write_sales(tmp_path)
    said = logline("check", f"{path}:sales")
    assert said.returncode == 0 and "store: exactly once" in said.stdout
    assert logline("run", path, "--log", tmp_path / "log", "--engine", "inline").returncode == 0
    path.write_text(path.read_text().replace('ll.Pipeline("sales")', 'll.Pipeline("buys")'))
    said = logline("check", path, "--log", tmp_path / "log")
    assert said.returncode == 1 and "the log belongs to pipeline 'sales'" in said.stdout


def test_an_operator_is_made_anew_by_name_and_check_shows_the_plan(tmp_path: Path) -> None:
    path, log = write_sales(tmp_path), tmp_path / "log"
    again = ("run", path, "--log", log, "--engine", "inline")
    assert logline(*again).returncode == 0
    plan = logline("check", path, "--log", log, "--fresh", "store")
    assert "operator 'store' is made anew, from what the log still has" in plan.stdout
    assert "what the old one wrote stays in its target" in plan.stdout
    unknown = logline(*again, "--fresh", "nobody")
    assert unknown.returncode == 1
    assert "fresh: there is no operator 'nobody'; there are" in unknown.stderr
    made = logline(*again, "--fresh", "store")
    assert made.returncode == 0, made.stderr
    assert "operator 'store' is made anew" in made.stderr
    assert any(log.rglob("store@2*"))
    alone = logline("run", "--fresh", path, "--log", log, "--engine", "inline")
    assert "--fresh: the log" in alone.stderr


def test_a_file_that_starts_its_pipeline_is_not_run_by_a_check(tmp_path: Path) -> None:
    """And `run` runs it once, on the log of the command line."""
    path = write_sales(tmp_path)
    text = path.read_text().replace('if __name__ == "__main__":\n    import sys\n\n    ', "try:\n    ")
    line = text[: text.index("sales.run(")].count("\n") + 1
    path.write_text(
        text.replace("sales.run(sys.argv[1], ", 'sales.run("memory:own", ') + "except Exception:\n    pass\n"
    )
    checked = logline("check", path)
    assert checked.returncode == 0, checked.stderr
    assert f"{path}:{line} starts the pipeline when the file is loaded: it was not started" in checked.stderr
    assert 'Put it under `if __name__ == "__main__":`' in checked.stderr
    assert "exactly once" in checked.stdout and not (tmp_path / "out").exists()
    ran = logline("run", path, "--log", tmp_path / "log", "--engine", "inline")
    assert ran.returncode == 0, ran.stderr
    assert pq.read_table(tmp_path / "out")["total"].to_pylist() == TOTALS


def test_changed_code_is_tried_on_all_that_a_version_has_made(tmp_path: Path) -> None:
    path, log = write_sales(tmp_path), tmp_path / "log"
    assert logline("run", path, "--log", log, "--engine", "inline").returncode == 0
    (version,) = ll.open_log(f"lmdb:{log}").versions("blocks")["version"].unique().to_pylist()
    unknown = logline("rerun", log, "--since", "never")
    assert (unknown.returncode, "no operator has had the version 'never'" in unknown.stderr) == (1, True)
    both = logline("rerun", log, "blocks:1", "--since", version)
    assert both.returncode == 2
    assert "name one EVENT, or say --since VERSION" in both.stderr
