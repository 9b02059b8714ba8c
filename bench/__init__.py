"""Benchmarks: ratios within one run, on data that the seed makes again."""
