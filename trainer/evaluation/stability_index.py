"""The population stability index of two histograms, and the index that chance alone yields."""

import numpy as np

FALSE_ALARMS = 0.01
"""Probability that any column of two datasets exceeds its noise without drift."""
_SIMULATIONS = 1000


def compute_indices(counts: np.ndarray, least: np.ndarray) -> np.ndarray:
    """Return population stability indices, float64 [...], of counts [..., 2, bins].

    An empty bin counts as half a row, or as its share of both samples if that is less. `least` is
    the least share of each bin.
    """
    totals = np.maximum(counts.sum(axis=-1, keepdims=True), 1.0)
    both = counts.sum(axis=-2, keepdims=True)
    empty = np.minimum(0.5 / totals, both / totals.sum(axis=-2, keepdims=True))
    shares = np.maximum(counts / totals, np.maximum(empty, least))
    shares = np.where(both > 0, shares, 0.0)
    shares /= shares.sum(axis=-1, keepdims=True)
    before, now = np.moveaxis(np.where(both > 0, shares, 1.0), -2, 0)
    return ((now - before) * np.log(now / before)).sum(axis=-1)


def simulate_noise(counts: np.ndarray, least: np.ndarray, chance: float) -> float:
    """Return the index that two samples of one distribution exceed with probability `chance`.

    The distribution is that of both samples (counts, [2, bins]) together. Simulations determine the
    quantile of 1 in 100; smaller chances follow from a chi-squared variable with their moments.
    """
    from scipy import stats

    generator = np.random.default_rng(0)
    distribution = counts.sum(axis=0) / counts.sum()
    samples = [
        generator.multinomial(round(total), distribution, _SIMULATIONS)
        for total in counts.sum(axis=1).tolist()
    ]
    indices = compute_indices(np.stack(samples, axis=1), least)
    if not indices.any():
        return 0.0
    freedom = 2 * indices.mean() ** 2 / indices.var()
    usual, rare = (stats.chi2.ppf(1 - share, freedom) for share in (FALSE_ALARMS, chance))
    return float(np.quantile(indices, 1 - FALSE_ALARMS) * rare / usual)
