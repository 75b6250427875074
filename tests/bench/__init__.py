"""Benchmarks: each prints ratios measured interleaved in one run. None is a test: machines differ and are shared."""
