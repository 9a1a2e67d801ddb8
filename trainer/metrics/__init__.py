"""Metrics and statistical tests, from labels and answers alone."""

PERMUTATIONS = 9_999
"""Number of random sign patterns of a permutation test, whose p-value is above its reciprocal."""
COMPARISONS = {
    "log_loss": ("accuracy", "log_loss"),
    "squared_error": ("r2",),
    "f1_loss": ("example_f1",),
}
"""Metrics with which two models are compared, by the loss of an example."""
BLOCK = 1 << 16
"""Examples that are read or counted at a time."""
