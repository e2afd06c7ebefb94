"""Runs the benchmarks: all of them, or those named on the command line. `make bench`, `make bench ARGS=machine`."""

from __future__ import annotations

import argparse
import importlib

BENCHMARKS = (
    "machine",
    "relay",
    "hop",
    "stores",
    "growth",
    "eventual",
    "sales",
    "windows",
    "idle",
    "restart",
    "sink_gap",
    "startup",
    "lineage_overhead",
    "lineage_query",
)
"""The modules of this folder that measure something, each with a `main()`."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all by default")
    names = parser.parse_args().names or BENCHMARKS
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        print(f"-- {name}", flush=True)
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
