"""Estimate metrics of a split with 95% intervals, from sums over groups of its examples.

Groups make the bootstrap's cost independent of the number of examples: each is one example of a
small split, and neighbors of a large one. Examples are stored in the order of a digest, so groups
are random samples.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

GROUPS = 2048
"""Largest number of groups."""
_RESAMPLES = 2000
_CELLS = 2_000_000  # numbers held in memory by one round of resampling


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A metric with its 95% interval (percentile bootstrap)."""

    value: float
    low: float
    high: float


class GroupSums:
    """Sums of columns over groups of neighbors, added in blocks of the `examples` of a split."""

    def __init__(self, examples: int, columns: int) -> None:
        self._size = -(-examples // GROUPS)
        self.groups = np.zeros((-(-examples // self._size), columns))
        self._added = 0

    def add(self, columns: Sequence[np.ndarray]) -> None:
        """Add a block of m examples: a value of each, float [m], for every column."""
        values = np.stack(columns, axis=1)
        places = np.arange(self._added, self._added + len(values)) // self._size
        np.add.at(self.groups, places, values)
        self._added += len(values)


def estimate(groups: np.ndarray, compute: Callable[..., np.ndarray]) -> list[Estimate]:
    """Return the metrics that `compute` returns, with intervals.

    Args:
        groups: sums over groups, [groups, columns].
        compute: from the columns as arguments, each of shape [..., groups], and `axis`, the axis of
            groups, return metrics, stacked first.
    """
    # Imported here, because it takes half a second, which the command line must not wait for.
    from scipy import stats

    values = compute(*groups.T, axis=0)
    low, high = values, values
    if len(groups) > 1:
        # Of skewed errors, accelerated intervals (BCa) contain the truth no more often.
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
    rows = zip(values.tolist(), low.tolist(), high.tolist(), strict=True)
    return [Estimate(value=value, low=least, high=most) for value, least, most in rows]
