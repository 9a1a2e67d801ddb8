"""Benchmarks, which `python -m tests.benchmarks` runs."""
