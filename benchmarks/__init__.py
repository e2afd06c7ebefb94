"""Benchmarks: measured in one run, as ratios where something is compared, several repeats, with the spread. `make bench` runs them all."""
