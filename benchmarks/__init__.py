"""Benchmarks: several repeats with their spread, ratios within one run where things are compared. `make bench`."""
