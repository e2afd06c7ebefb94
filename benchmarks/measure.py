"""What every benchmark shares: repeats with their spread, and results as JSON."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def repeat(run: Callable[[], float], times: int = 7) -> dict[str, float]:
    """Median, least and greatest of several repeats, after one that warms up."""
    run()
    found = sorted(run() for _ in range(times))
    return {"median": statistics.median(found), "min": found[0], "max": found[-1], "repeats": times}


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def write(name: str, result: dict[str, Any]) -> Path:
    """Keeps a result beside the others."""
    import os

    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    about = {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}
    path.write_text(json.dumps({"benchmark": name, "about": about, **result}, indent=2) + "\n")
    return path
