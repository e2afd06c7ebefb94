"""Benchmarks: ratios measured in one run, several repeats, with the spread. `make bench` runs them all."""
