"""`logline log copy` in processes of its own."""

from __future__ import annotations

from pathlib import Path

from tests.cli.harness import logline, write_sales


def test_a_log_is_moved_and_goes_on_there(tmp_path: Path) -> None:
    sales = write_sales(tmp_path)
    before, after = f"lmdb:{tmp_path}/before", f"lmdb:{tmp_path}/after"
    assert logline("run", sales, "--log", before, "--engine", "inline").returncode == 0
    moved = logline("log", "copy", before, after)
    assert (moved.returncode, moved.stdout.split(" events ")[1]) == (0, "moved\n"), moved.stderr
    assert "orders: " in moved.stderr  # a line for each journal
    refused = logline("run", sales, "--log", before, "--engine", "inline")
    assert refused.returncode == 1
    assert f"this log has moved to {after}: go on there" in refused.stderr
    assert logline("status", before).returncode == 0
    again = logline("run", sales, "--log", after, "--engine", "inline")
    assert again.returncode == 0, again.stderr


def test_a_copy_to_read_and_what_is_refused(tmp_path: Path) -> None:
    sales = write_sales(tmp_path)
    log, copy = f"{tmp_path}/log", f"lmdb:{tmp_path}/copy"
    assert logline("run", sales, "--log", f"lmdb:{log}", "--engine", "inline").returncode == 0
    assert logline("log", "copy", log, copy, "--keep").stdout.endswith("copied\n")
    assert logline("lineage", copy, "blocks:1").stdout == logline("lineage", log, "blocks:1").stdout
    refused = logline("log", "copy", log, copy)
    assert refused.returncode == 1
    assert "there is a log in" in refused.stderr
