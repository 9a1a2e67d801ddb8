"""Test whether one model is better than another on the same examples, beyond chance.

    result = compare(Pairs.from_scores(candidate, champion), metric=accuracy, confidence=0.95)
    result.p_value <= 0.05   # better by more than noise
    result.low > -0.01       # not worse by a hundredth

Both models predict every example, so only examples on which they differ carry information: a
paired test detects differences that two separate intervals hide.

- accuracy: exact one-sided McNemar test (McNemar 1947, Psychometrika 12:153-157, with the
  binomial tail instead of chi-squared), interval by Tango (1998, Statistics in Medicine
  17:891-908), whose score test is also the usual test of non-inferiority of paired proportions.
- log_loss: one-sided sign-flip permutation test of the mean difference (Good 2005,
  Permutation, Parametric, and Bootstrap Tests of Hypotheses, 3rd ed.), interval by the
  paired percentile bootstrap (Efron and Tibshirani 1993, An Introduction to the Bootstrap).
- r2: the same of squared errors, as shares of the variance of the labels.
- example_f1: the same of 1 - F1, of the labels of each example.

Weighted examples are as many as have the same variance.

If two models differ only by chance, the exact test and the permutation test judge the candidate to
be better with a probability of at most 1 - confidence.
"""

import dataclasses
import statistics
from typing import NamedTuple

import numpy as np

from trainer.metrics import PERMUTATIONS
from trainer.metrics.intervals import GroupSums
from trainer.metrics.metric import Compared, Metric

_BOOTSTRAPS = 4_000
_CELLS = 4_000_000  # numbers held in memory by one round of resampling
_MAX_GAINS = 1 << 20
"""Number of differences in loss that are kept: with more examples, neighbors are summed."""


class Scores(NamedTuple):
    """A model's scores on each example, in stored order."""

    correct: np.ndarray | None  # bool [n]; None if labels are numbers
    losses: np.ndarray | None  # float64 [n]: nats, squared errors or 1 - F1; None where undefined
    numbers: np.ndarray | None = None  # labels that are numbers, float64 [n]
    weights: np.ndarray | None = None  # float64 [n], with a mean of 1; None: all are 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A candidate compared with a champion."""

    metric: str
    examples: int
    candidate: float  # the candidate's value of the metric
    champion: float
    difference: float  # the candidate's improvement; above 0 if it is better, for any metric
    # Bounds of the true difference, each of which holds with `confidence`.
    low: float
    high: float
    # Probability of at least this improvement if the models differ only by chance.
    p_value: float
    # Numbers of examples that only this model predicts correctly or, of numbers, more closely.
    candidate_only: int
    champion_only: int
    confidence: float

    @property
    def is_better(self) -> bool:
        """Return True if the candidate is better by more than noise."""
        return self.difference > 0 and self.p_value <= 1 - self.confidence + 1e-12

    def is_not_worse(self, margin: float) -> bool:
        """Return True if the candidate is worse by less than `margin`, in units of the metric."""
        return self.low > -margin


class Pairs:
    """The scores of a candidate and a champion on the same `examples`, added in blocks.

    The candidate's scores have the examples' weights.

    Memory is bounded: with more than a million examples, the gains of neighbors are summed. The
    tests remain valid, because sums of independent gains are independent.
    """

    def __init__(self, examples: int) -> None:
        self.examples = examples
        # Examples by (candidate is right, champion is right); of numbers, is closer.
        self.right = np.zeros((2, 2), int)
        # Of these, the sums of weights and of their squares.
        self.weights = np.zeros((2, 2, 2))
        self.losses = np.zeros(2)  # sums of the losses of the candidate and the champion
        self._sums = GroupSums(examples, 1, _MAX_GAINS)
        # Improvements in loss by the candidate; None if a loss is undefined.
        self.gains: np.ndarray | None = self._sums.groups[:, 0]
        # Of labels that are numbers; the first is subtracted from each.
        self._origin: float | None = None
        self._moments = np.zeros(2)

    @classmethod
    def from_scores(cls, candidate: Scores, champion: Scores) -> "Pairs":
        """Pair scores on the same examples, at least one."""
        first = candidate.losses if candidate.correct is None else candidate.correct
        assert first is not None
        pairs = cls(len(first))
        pairs.add(candidate, champion)
        return pairs

    def add(self, candidate: Scores, champion: Scores) -> None:
        """Add a block of examples."""
        gains = None
        if candidate.losses is not None and champion.losses is not None:
            gains = champion.losses - candidate.losses
        ahead, behind = candidate.correct, champion.correct
        if ahead is None or behind is None:
            assert gains is not None
            ahead, behind = gains > 0, gains < 0
        cells = 2 * ahead.astype(int) + behind
        weights = np.ones(len(cells)) if candidate.weights is None else candidate.weights
        self.right += np.bincount(cells, minlength=4).reshape(2, 2)
        for sums, powers in zip(self.weights, (weights, weights**2), strict=True):
            sums += np.bincount(cells, powers, minlength=4).reshape(2, 2)
        if candidate.numbers is not None:
            if self._origin is None:
                self._origin = float(candidate.numbers[0])
            shifted = candidate.numbers - self._origin
            self._moments += weights @ shifted, weights @ np.square(shifted)
        if self.gains is None or gains is None:
            self.gains = None
            return
        assert candidate.losses is not None
        assert champion.losses is not None
        self.losses += weights @ candidate.losses, weights @ champion.losses
        self._sums.add([weights * gains])

    @property
    def variance(self) -> float:
        """Return the variance of labels that are numbers."""
        mean, square = self._moments / self.examples
        return float(square - mean**2)


def log_losses(label_probabilities: np.ndarray) -> np.ndarray:
    """Return negative log-likelihoods, float64 [n], of true classes' probabilities, in nats.

    Probabilities are clipped at float32's epsilon, as in scikit-learn's log_loss.
    """
    smallest = float(np.finfo(np.float32).eps)
    return -np.log(np.clip(label_probabilities.astype(np.float64), smallest, 1.0))


def compare(pairs: Pairs, *, metric: Metric, confidence: float) -> Comparison:
    """Compare two models in a metric that has `compared`; the result is deterministic.

    Unless right answers are compared, the pairs must have losses.
    """
    n = pairs.examples
    (_, champion_only), (candidate_only, _) = pairs.right.tolist()
    if metric.compared is Compared.RIGHT:
        ahead, behind = pairs.weights[:, 1, 0], pairs.weights[:, 0, 1]
        means = np.array([pairs.weights[0, 1].sum(), pairs.weights[0, :, 1].sum()]) / n
        difference = float(ahead[0] - behind[0]) / n
        effective = count_discordant(ahead, behind)
        p_value = mcnemar(*effective)
        scale = sum(effective) / (ahead[0] + behind[0] or 1.0) or 1.0
        low, high = tango_interval(*effective, scale * n, confidence)
    else:
        gains = pairs.gains
        assert gains is not None
        means = pairs.losses / n
        if metric.compared is Compared.EXPLAINED:
            gains, means = gains / pairs.variance, 1 - means / pairs.variance
        if metric.compared is Compared.GAIN:
            means = 1 - means
        difference = float(gains.sum()) / n
        generator = np.random.default_rng(0)
        p_value = sign_flip_test(gains, generator)
        share = len(gains) / n
        low, high = (share * bound for bound in bootstrap_interval(gains, confidence, generator))
    return Comparison(
        metric=metric.name,
        examples=n,
        candidate=float(means[0]),
        champion=float(means[1]),
        difference=difference,
        low=low,
        high=high,
        p_value=p_value,
        candidate_only=candidate_only,
        champion_only=champion_only,
        confidence=confidence,
    )


def count_discordant(ahead: np.ndarray, behind: np.ndarray) -> tuple[float, float]:
    """Return the numbers of discordant examples, effective ones if they have weights.

    Their difference has the same number of standard deviations (Kish 1965, Survey Sampling).

    Args:
        ahead: sums of weights and of their squares of examples that only one model has right, [2].
        behind: those of the examples that only the other has right.
    """
    weight, squares = (ahead + behind).tolist()
    scale = weight / squares if squares else 1.0
    return scale * float(ahead[0]), scale * float(behind[0])


def mcnemar(candidate_only: float, champion_only: float) -> float:
    """Return P(X >= candidate_only) of a binomial X over the discordant examples, with p = 0.5.

    Of numbers that are not whole, it is interpolated by the incomplete beta function.
    """
    # Imported here, because it takes half a second, which the command line must not wait for.
    from scipy import special

    if not candidate_only:
        return 1.0
    return float(special.betainc(candidate_only, champion_only + 1, 0.5))


def tango_interval(
    candidate_only: float, champion_only: float, n: float, confidence: float
) -> tuple[float, float]:
    """Return bounds of the difference of two paired proportions, each valid with `confidence`.

    Tango's score test does not reject the differences between the bounds.
    """
    from scipy import optimize

    z = statistics.NormalDist().inv_cdf(confidence)
    b, c = candidate_only, champion_only
    estimate = (b - c) / n

    def score(delta: float) -> float:
        """Return the score statistic, which falls from inf to -inf as delta rises from -1 to 1."""
        # The maximum-likelihood proportion of champion_only, given this difference.
        beta = -b - c + (2 * n - b + c) * delta
        gamma = -c * delta * (1 - delta)
        share = (np.sqrt(max(0.0, beta**2 - 8 * n * gamma)) - beta) / (4 * n)
        variance = n * (2 * share + delta * (1 - delta))
        distance = b - c - n * delta
        if variance <= 0:
            return float(np.sign(distance) * np.inf) if distance else 0.0
        return float(distance / np.sqrt(variance))

    def bound(end: float) -> float:
        if estimate == end:
            return end
        return float(optimize.bisect(lambda delta: score(delta) + end * z, end, estimate))

    return bound(-1.0), bound(1.0)


def sign_flip_test(gains: np.ndarray, generator: np.random.Generator) -> float:
    """Return the share of random sign patterns whose mean is at least that of `gains`.

    The observed pattern counts as one of these patterns.
    """
    gains = gains[gains != 0]
    if not len(gains):
        return 1.0
    # With a tolerance, because sums of the same numbers may differ by rounding.
    threshold = gains.sum() - 1e-9 * np.abs(gains).sum()
    count, rows = 0, max(1, _CELLS // len(gains))
    for start in range(0, PERMUTATIONS, rows):
        shape = min(rows, PERMUTATIONS - start), len(gains)
        signs = generator.integers(0, 2, shape, np.int8) * 2 - 1
        count += int((signs @ gains >= threshold).sum())
    return (1 + count) / (1 + PERMUTATIONS)


def bootstrap_interval(
    gains: np.ndarray, confidence: float, generator: np.random.Generator
) -> tuple[float, float]:
    """Return bounds of the mean of `gains`, each valid with `confidence`."""
    from scipy import stats

    if len(gains) == 1:  # SciPy raises ValueError for a single value.
        return float(gains[0]), float(gains[0])
    low, high = stats.bootstrap(
        (gains,),
        np.mean,
        n_resamples=_BOOTSTRAPS,
        batch=max(1, _CELLS // len(gains)),
        confidence_level=2 * confidence - 1,
        method="percentile",
        rng=generator,
    ).confidence_interval
    return float(low), float(high)
