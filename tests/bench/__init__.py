"""Benchmarks: ratios against a peer and counts, never absolute speed. `make bench` writes `build/bench.json`."""
