"""Comparisons tell progress from noise; tests and intervals are those of their authors."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from trainer.metrics import comparison
from trainer.metrics.baseline import compare_with_constants
from trainer.metrics.comparison import (
    Pairs,
    Scores,
    bootstrap_interval,
    compare,
    log_losses,
    mcnemar,
    sign_flip_test,
    tango_interval,
)
from trainer.metrics.intervals import wilson_interval
from trainer.tasks.label_kinds import CLASSIFICATION

ACCURACY, LOG_LOSS = CLASSIFICATION.comparisons
EXAMPLES = 189  # as many as the test split of digits has
DRAWS = 600
# Three standard deviations of a share of 0.05 in so many draws.
TOLERANCE = 3 * math.sqrt(0.05 * 0.95 / DRAWS)


def compare_often(candidate_skill, champion_skill, seed):
    """Compare models that know all easy examples and a share of the hard ones, on many draws."""
    generator = np.random.default_rng(seed)

    def answer(hard, skill):
        return Scores(np.where(hard, generator.random(EXAMPLES) < skill, True), None)

    results = []
    for _ in range(DRAWS):
        hard = generator.random(EXAMPLES) < 0.2
        pairs = Pairs.from_scores(answer(hard, candidate_skill), answer(hard, champion_skill))
        results.append(compare(pairs, metric=ACCURACY, confidence=0.95))
    return results


def test_equal_candidate_seldom_wins_and_better_one_does():
    equal = compare_often(0.5, 0.5, seed=1)
    assert np.mean([result.is_better for result in equal]) <= 0.05 + TOLERANCE
    # The draws are noisy enough to mislead whoever takes the higher accuracy for better.
    assert np.mean([result.difference > 0 for result in equal]) > 0.3
    assert np.mean([result.is_better for result in compare_often(0.9, 0.4, seed=2)]) > 0.95


def test_candidate_worse_by_the_margin_seldom_passes():
    # Worse by 0.04 of the examples, which is the margin.
    worse = compare_often(0.4, 0.6, seed=3)
    assert np.mean([result.is_not_worse(0.04) for result in worse]) <= 0.05 + TOLERANCE
    equal = compare_often(0.5, 0.5, seed=4)
    assert np.mean([result.is_not_worse(0.08) for result in equal]) > 0.9


def test_interval_covers_the_true_difference():
    difference = 0.2 * (0.7 - 0.5)
    results = compare_often(0.7, 0.5, seed=6)
    assert np.mean([result.low > difference for result in results]) <= 0.05 + TOLERANCE
    assert np.mean([result.high < difference for result in results]) <= 0.05 + TOLERANCE


@pytest.mark.parametrize(
    ("scale", "tries", "least", "most"),
    [(1.0, 400, 0.0, 0.05 + TOLERANCE), (0.6, 40, 0.9, 1.0)],
    ids=["equal", "better"],
)
def test_only_the_better_log_loss_wins(monkeypatch, scale, tries, least, most):
    # The test of permutations is exact with any number of them; the interval is not asked for.
    monkeypatch.setattr(comparison, "PERMUTATIONS", 999)
    monkeypatch.setattr(comparison, "_BOOTSTRAPS", 100)
    generator = np.random.default_rng(5)
    right, wins = np.ones(60, bool), 0
    for _ in range(tries):
        hardness = generator.gamma(0.3, 1, 60)
        losses = [hardness * generator.gamma(8, factor / 8, 60) for factor in (scale, 1)]
        pairs = Pairs.from_scores(*(Scores(right, loss) for loss in losses))
        wins += compare(pairs, metric=LOG_LOSS, confidence=0.95).is_better
    assert least <= wins / tries <= most


def judge_first(frequencies, predict, seed, draws=DRAWS):
    """Return the share of models that are found better than constant answers, on many draws."""
    generator, count = np.random.default_rng(seed), len(frequencies)
    better = 0
    for _ in range(draws):
        labels = generator.choice(count, EXAMPLES, p=frequencies)
        probabilities = predict(generator, np.eye(count)[labels])
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        matrix = np.zeros((count, count), int)
        np.add.at(matrix, (labels, probabilities.argmax(axis=1)), 1)
        loss = log_losses(probabilities[np.arange(EXAMPLES), labels]).mean()
        names = [str(number) for number in range(count)]
        better += compare_with_constants([matrix] * 2, log_loss=loss, classes=names).p_value <= 0.05
    return better / draws


@pytest.mark.parametrize("frequencies", [(0.47, 0.53), (0.98, 0.02), (0.1,) * 10, (0.6, 0.3, 0.1)])
@pytest.mark.parametrize("spread", [0.0, 0.3, 2.0])
def test_model_that_has_learned_nothing_is_seldom_better_than_a_constant(frequencies, spread):
    def guess(generator, labels):
        return frequencies * np.exp(spread * generator.normal(size=labels.shape))

    assert judge_first(frequencies, guess, seed=11, draws=200) <= 0.05


def test_accuracy_or_log_loss_makes_a_model_better_than_a_constant():
    def overconfident(generator, labels):
        """Right in 75%, but sure of every answer: its log loss is worse than a constant's."""
        answers = np.where(generator.random((len(labels), 1)) < 0.75, labels, 1 - labels)
        return answers + 1e-6

    def rare(generator, labels):
        """Never answers the rare class, but finds it three times as probable where it is."""
        return [0.95, 0.05] * np.where(labels[:, 1:] > 0, [1.0, 8.0], [1.0, 0.5])

    assert judge_first((0.5, 0.5), overconfident, seed=12, draws=100) > 0.95
    assert judge_first((0.95, 0.05), rare, seed=13, draws=100) > 0.9


def test_first_champion_is_compared_with_each_constant_answer():
    # 61 of 100 right; "b" alone has 55, and is right where the model is not on 27.
    matrix = [[33, 12], [27, 28]]
    baseline = compare_with_constants([matrix] * 2, log_loss=0.6, classes=["a", "b"])
    assert (baseline.commonest, baseline.accuracy) == ("b", 0.55)
    assert baseline.accuracy_p_value == pytest.approx(2 * mcnemar(33, 27))
    entropy = -(0.45 * math.log(0.45) + 0.55 * math.log(0.55))
    assert baseline.log_loss == pytest.approx(entropy)
    assert baseline.log_loss_p_value == pytest.approx(2 * math.exp(100 * (0.6 - entropy)))
    worse = compare_with_constants([[[0, 0], [1, 4]]] * 2, log_loss=0.7, classes=["a", "b"])
    assert (worse.accuracy, worse.log_loss, worse.p_value) == (1, 0, 1)


def test_mcnemar_is_the_tail_of_a_fair_coin():
    for b, c in itertools.product(range(6), range(6)):
        n = b + c
        expected = sum(math.comb(n, k) for k in range(b, n + 1)) / 2**n
        assert mcnemar(b, c) == pytest.approx(expected), (b, c)
    assert mcnemar(60_000, 60_000) == pytest.approx(0.5, abs=0.01)
    assert mcnemar(60_000, 50_000) < 1e-12


def test_interval_of_two_shares_is_tangos():
    # Without discordant examples: -z^2 / (n + z^2), from his equation at b = c = 0.
    z = 1.6448536269514722
    low, high = tango_interval(0, 0, 100, 0.95)
    assert low == pytest.approx(-(z**2) / (100 + z**2))
    assert high == pytest.approx(-low)
    low, high = tango_interval(12, 2, 50, 0.975)
    assert (low, high) == (-tango_interval(2, 12, 50, 0.975)[1], pytest.approx(0.3447, abs=1e-4))
    assert low == pytest.approx(0.0611, abs=1e-4)


def test_interval_of_a_share_is_wilsons():
    # From his equation: the bounds are where the score statistic is the 97.5% quantile.
    for right, n in ((0, 9), (23, 31), (185, 189), (400, 400)):
        low, high = wilson_interval(right, n)
        for bound in {low, high} - {0.0, 1.0}:
            z = abs(right / n - bound) / math.sqrt(bound * (1 - bound) / n)
            assert z == pytest.approx(1.959964, abs=1e-5), (right, n)


def test_bounds_of_a_mean_are_quantiles_of_its_resamples():
    # The sum of a resample of zeros and ones is binomial.
    gains, share = np.repeat([1.0, 0.0], [3, 17]), 0.15
    expected = stats.binom.ppf([0.05, 0.95], 20, share) / 20
    interval = bootstrap_interval(gains, 0.95, np.random.default_rng(0))
    assert interval == pytest.approx(tuple(expected))


@pytest.mark.parametrize("gains", [[0.5], [0.5] * 3, [0.25] * 9], ids=len)
def test_interval_of_equal_gains_is_the_gain(gains):
    interval = bootstrap_interval(np.array(gains), 0.95, np.random.default_rng(0))
    assert interval == (gains[0], gains[0])


def test_sign_flips_of_few_gains_are_counted():
    assert sign_flip_test(np.zeros(5), np.random.default_rng(0)) == 1
    # Of 2^4 sign patterns one has as large a mean.
    assert sign_flip_test(np.ones(4), np.random.default_rng(0)) == pytest.approx(1 / 16, abs=0.01)


def test_comparison_has_all_its_figures_and_repeats_itself():
    probabilities = np.array([[0.9, 0.8, 0.6, 0.3], [0.9, 0.4, 0.3, 0.8]])
    pairs = Pairs.from_scores(*(Scores(row > 0.5, log_losses(row)) for row in probabilities))
    result = compare(pairs, metric=ACCURACY, confidence=0.9)
    assert (result.candidate, result.champion, result.difference) == (0.75, 0.5, 0.25)
    assert (result.candidate_only, result.champion_only, result.examples) == (2, 1, 4)
    assert result.p_value == pytest.approx(0.5)
    loss = compare(pairs, metric=LOG_LOSS, confidence=0.9)
    assert loss.candidate == pytest.approx(-np.log([0.9, 0.8, 0.6, 0.3]).mean())
    assert loss.difference == pytest.approx(loss.champion - loss.candidate)
    assert loss.low < loss.difference < loss.high
    assert loss == compare(pairs, metric=LOG_LOSS, confidence=0.9)


def test_gains_beyond_a_million_are_summed_with_neighbors(monkeypatch):
    generator = np.random.default_rng(7)
    right = np.ones(1000, bool)
    scores = [Scores(right, generator.gamma(1, scale, 1000)) for scale in (0.95, 1)]
    whole = compare(Pairs.from_scores(*scores), metric=LOG_LOSS, confidence=0.95)
    monkeypatch.setattr(comparison, "_MAX_GAINS", 300)
    pairs = Pairs(1000)
    for part in (slice(130), slice(130, None)):
        pairs.add(*(Scores(score.correct[part], score.losses[part]) for score in scores))
    assert len(pairs.gains) == 250
    summed = compare(pairs, metric=LOG_LOSS, confidence=0.95)
    for name in ("examples", "candidate", "champion", "difference"):
        assert getattr(summed, name) == pytest.approx(getattr(whole, name)), name
    for name in ("low", "high", "p_value"):
        assert getattr(summed, name) == pytest.approx(getattr(whole, name), abs=0.01), name
