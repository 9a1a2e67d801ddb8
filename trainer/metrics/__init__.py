"""Metrics and statistical tests, from labels and answers alone."""

PERMUTATIONS = 9_999
"""Number of random sign patterns of a permutation test, whose p-value is above its reciprocal."""
BLOCK = 1 << 16
"""Examples that are read or counted at a time."""
