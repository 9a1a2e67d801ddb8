"""Estimate metrics of a split with 95% intervals, from sums over groups of its examples.

Groups make the bootstrap's cost independent of the number of examples: each is one example of a
small split, and neighbors of a large one. Examples are stored in the order of a digest, so groups
are random samples.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.metrics.metric import Estimate

GROUPS = 2048
"""Largest number of groups, unless another is given."""
_RESAMPLES = 2000
_Z95 = statistics.NormalDist().inv_cdf(0.975)
_TINY = np.finfo(np.float64).tiny
_FARTHEST = 10.0
"""Largest number of standard errors: in a resample of few groups, they may be equal."""
_CELLS = 2_000_000  # numbers held in memory by one round of resampling


class GroupSums:
    """Sums of columns over groups of neighbors, added in blocks of the `examples` of a split."""

    def __init__(self, examples: int, columns: int, most: int = GROUPS) -> None:
        self._size = -(-examples // most)
        self.groups = np.zeros((-(-examples // self._size), columns))
        self._added = 0

    def add(self, columns: Sequence[np.ndarray]) -> None:
        """Add a block of m examples: a value of each, float [m], for every column."""
        values = np.stack(columns, axis=1)
        places = np.arange(self._added, self._added + len(values)) // self._size
        np.add.at(self.groups, places, values)
        self._added += len(values)


def estimate(
    groups: np.ndarray, named: Callable[..., Any], metrics: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Estimate]:
    """Return metrics by name, with intervals (percentile bootstrap).

    Args:
        groups: sums over groups, [groups, columns].
        named: from the columns' sums over groups or resampled groups, float [...] each, return the
            argument of the metrics.
        metrics: return a metric, float [...], of such sums.
    """

    def compute(*columns: np.ndarray, axis: int) -> np.ndarray:
        sums = named(*(column.sum(axis=axis) for column in columns))
        return np.stack([metric(sums) for metric in metrics.values()])

    values = compute(*groups.T, axis=0)
    low, high = values, values
    if len(groups) > 1:
        # Of skewed errors, accelerated intervals (BCa) contain the truth no more often.
        low, high = _resample(groups, compute)
    rows = np.stack([values, low, high], axis=1).tolist()
    return {name: Estimate(*row) for name, row in zip(metrics, rows, strict=True)}


def estimate_root(groups: np.ndarray) -> Estimate:
    """Return the square root of a mean of skewed numbers, such as squared errors.

    The interval is of the logarithm, in standard errors of each resample: the bootstrap-t (Efron
    and Tibshirani 1993, An Introduction to the Bootstrap, chapter 12). It contains the truth more
    often than that of `estimate`.

    Args:
        groups: sums of weights, and of weights times numbers, over groups, [groups, 2].
    """
    first, second = groups.T
    mean = second.sum() / first.sum()
    value = float(np.sqrt(mean))

    def log_and_error(weights: np.ndarray, sums: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
        means = sums.sum(axis=axis) / weights.sum(axis=axis)
        residuals = sums - np.expand_dims(means, axis) * weights
        errors = np.sqrt(np.square(residuals).sum(axis=axis)) / np.maximum(_TINY, sums.sum(axis))
        return np.log(np.maximum(_TINY, means)), errors

    logarithm, error = log_and_error(first, second, axis=0)

    def studentize(weights: np.ndarray, sums: np.ndarray, axis: int) -> np.ndarray:
        logarithms, errors = log_and_error(weights, sums, axis)
        distances: np.ndarray = (logarithms - logarithm) / np.maximum(_TINY, errors)
        return np.clip(distances, -_FARTHEST, _FARTHEST)

    if len(groups) == 1 or not mean:
        return Estimate(value, value, value)
    low, high = _resample(groups, studentize)
    ends = [float(np.exp((logarithm - distance * error) / 2)) for distance in (high, low)]
    return Estimate(value, *ends)


def _resample(groups: np.ndarray, compute: Callable[..., np.ndarray]) -> tuple[Any, Any]:
    """Return the 2.5% and the 97.5% quantiles of what `compute` returns for resampled groups."""
    # Imported here, because it takes half a second, which the command line must not wait for.
    from scipy import stats

    low, high = stats.bootstrap(
        tuple(groups.T),
        compute,
        paired=True,
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=max(1, _CELLS // groups.size),
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return low, high


def wilson_interval(successes: float, trials: float) -> tuple[float, float]:
    """Return the 95% interval of a proportion (Wilson 1927, JASA 22:209-212).

    Numbers need not be whole: those of weighted examples are effective ones.
    """
    share, square = successes / trials, _Z95**2 / trials
    center = (share + square / 2) / (1 + square)
    width = math.sqrt(share * (1 - share) * square + square**2 / 4) / (1 + square)
    return (center - width if share else 0.0), (center + width if share < 1 else 1.0)


class Share:
    """The share of a split's examples of which something is true, added in weighted blocks."""

    def __init__(self) -> None:
        self._sums = np.zeros((2, 2))  # of weights and of their squares: if true, and of all

    def add(self, is_true: np.ndarray, weights: np.ndarray) -> None:
        """Add a block of m examples: whether it is true, bool [m], and weights, float64 [m]."""
        for sums, powers in zip(self._sums, (weights, weights**2), strict=True):
            sums += powers[is_true].sum(), powers.sum()

    @property
    def value(self) -> float:
        (true, total), _ = self._sums.tolist()
        return true / total

    @property
    def estimate(self) -> Estimate:
        """Return the share with Wilson's interval of as many examples as have its variance.

        (Korn and Graubard 1998, Survey Methodology 24:193-201.)
        """
        (_, total), (true_squares, squares) = self._sums.tolist()
        share = self.value
        variance = (true_squares * (1 - 2 * share) + share**2 * squares) / total**2
        trials = share * (1 - share) / variance if variance > 0 else total**2 / squares
        return Estimate(share, *wilson_interval(share * trials, trials))
