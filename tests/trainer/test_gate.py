"""The gate's rules, on real evaluations of small models; comparisons that separate noise."""

import itertools
import json
import math
import re

import numpy as np
import pytest

from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation import comparison, gate
from trainer.evaluation.champion_scores import score
from trainer.evaluation.comparison import (
    Pairs,
    Scores,
    bootstrap_interval,
    compare,
    log_losses,
    mcnemar,
    sign_flip_test,
    tango_interval,
)
from trainer.evaluation.gate import ChampionScores
from trainer.evaluation.gate_options import GateOptions
from trainer.evaluation.scoring import evaluate

N = 40


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """Evaluate a model that recognizes the first 30 of 40 examples, all of them tulips."""
    folder, classes = tmp_path_factory.mktemp("gate"), ["rose", "tulip"]
    pixels = np.array([[1, 9]] * 30 + [[6, 4]] * 10, np.uint8)
    write_records(folder / "records", classes, np.ones(N, int), pixels)
    return evaluate(write_model(folder / "model", classes), str(folder / "records"))


def recognizes(evaluation, right):
    """Return the scores of a champion that recognizes the first `right` examples."""
    candidate = evaluation.answers.scores(0, N)
    pairs = Pairs.of(candidate, candidate._replace(correct=np.arange(N) < right))
    return ChampionScores(name="digits@1", pairs=pairs)


def judge(evaluation, champion, *, registry=True, **options):
    return gate.judge(evaluation, GateOptions(**options), registry=registry, champion=champion)


def test_floors_alone_decide_without_a_champion(evaluation):
    verdict = judge(evaluation, None, min_accuracy=0.75)
    assert (verdict.accepted, verdict.role) == (True, "champion")
    assert verdict.line == "accepted: accuracy 0.7500 (at least 0.7500); no champion yet"
    unregistered = judge(evaluation, None, registry=False)
    assert (unregistered.accepted, unregistered.role) == (True, "")
    assert judge(evaluation, None, min_recall=0.9, class_floors={"tulip": 0.7}).accepted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_accuracy": 0.76}, "accuracy 0.7500 is below min_accuracy 0.7600"),
        ({"min_recall": 0.8}, "recall of 'tulip' 0.7500 is below its floor 0.8000"),
        ({"class_floors": {"tulip": 0.8}}, "recall of 'tulip' 0.7500 is below its floor 0.8000"),
        ({"class_floors": {"rose": 0.1}}, "'rose' has a floor, but no test example"),
    ],
)
def test_model_below_a_floor_is_not_even_a_challenger(evaluation, options, message):
    verdict = judge(evaluation, recognizes(evaluation, 0), register_challengers=True, **options)
    assert (verdict.accepted, verdict.role, verdict.reason) == (False, "", message)


@pytest.mark.parametrize(
    ("options", "right", "role", "claim"),
    [
        ({}, 30, "", "not better than the champion digits@1 at 95% confidence"),
        ({}, 26, "", "not better than"),  # 4 of 4 discordant examples: p 0.0625
        ({}, 25, "champion", "better than the champion digits@1"),  # 5 of 5: p 0.03125
        ({"confidence": 0.99}, 25, "", "not better than the champion digits@1 at 99%"),
        ({"champion_rule": "not_worse", "margin": 0.1}, 30, "champion", "not worse than the"),
        ({"champion_rule": "not_worse", "margin": 0.1}, 33, "", "perhaps worse than the"),
        ({"champion_rule": "none"}, 40, "champion", "champion_rule is none"),
        ({"champion_metric": "log_loss"}, 30, "", "log loss 0.3081 against 0.3081"),
        ({"register_challengers": True}, 40, "challenger", "not better than"),
    ],
)
def test_champion_rule_decides_the_role(evaluation, options, right, role, claim):
    verdict = judge(evaluation, recognizes(evaluation, right), **options)
    assert (verdict.accepted, verdict.role) == (role == "champion", role)
    assert claim in verdict.reason
    assert "\n" not in verdict.line
    assert verdict.champion == "digits@1"


def test_figures_of_a_verdict_are_plain_values(evaluation):
    figures = judge(evaluation, recognizes(evaluation, 25)).to_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert (figures["verdict"], figures["champion"]) == ("accepted", "digits@1")
    assert (figures["candidate_score"], figures["champion_score"]) == (0.75, 0.625)
    assert (figures["candidate_only"], figures["champion_only"]) == (5, 0)
    assert figures["p_value"] == pytest.approx(1 / 32)
    assert figures["low"] < figures["difference"] == 0.125 < figures["high"]


def test_champion_is_scored_on_the_same_examples(evaluation):
    pairs = score("digits@1", evaluation.model, evaluation).pairs
    assert pairs.right.tolist() == [[10, 0], [0, 30]]
    assert pairs.losses / N == pytest.approx([evaluation.log_loss] * 2)
    assert pairs.gains.tolist() == [0] * N


def test_champion_without_a_class_is_compared_by_accuracy(evaluation, tmp_path):
    old = score("digits@1", write_model(tmp_path / "old", ["rose", "lily"]), evaluation)
    assert old.pairs.right.tolist() == [[10, 0], [30, 0]]
    assert old.pairs.gains is None
    assert judge(evaluation, old).accepted
    verdict = judge(evaluation, old, champion_metric="log_loss")
    assert (verdict.accepted, verdict.role) == (False, "")
    assert "its classes differ from the records'" in verdict.reason


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a", "b", "c"], "it expects 1x3x1 images, the records have 1x2x1"),
        (["lily", "aster"], "it predicts none of the classes of"),
        ([], "no SavedModel at"),
    ],
)
def test_incomparable_champion_stays(evaluation, tmp_path, classes, message):
    model = write_model(tmp_path / "old", classes) if classes else str(tmp_path / "gone")
    champion = score("digits@3", model, evaluation)
    verdict = judge(evaluation, champion)
    assert (verdict.accepted, verdict.role) == (False, "")
    assert re.fullmatch(
        rf"not comparable with the champion digits@3: .*{message}.*"
        "; set model_name= to another model, or champion_rule=none",
        verdict.reason,
    )
    assert len(verdict.reason.replace(str(tmp_path), "")) < 150
    assert judge(evaluation, champion, register_challengers=True).role == "challenger"


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
        pairs = Pairs.of(answer(hard, candidate_skill), answer(hard, champion_skill))
        results.append(compare(pairs, metric="accuracy", confidence=0.95))
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
        pairs = Pairs.of(*(Scores(right, loss) for loss in losses))
        wins += compare(pairs, metric="log_loss", confidence=0.95).is_better
    assert least <= wins / tries <= most


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
    pairs = Pairs.of(*(Scores(row > 0.5, log_losses(row)) for row in probabilities))
    result = compare(pairs, metric="accuracy", confidence=0.9)
    assert (result.candidate, result.champion, result.difference) == (0.75, 0.5, 0.25)
    assert (result.candidate_only, result.champion_only, result.examples) == (2, 1, 4)
    assert result.p_value == pytest.approx(0.5)
    loss = compare(pairs, metric="log_loss", confidence=0.9)
    assert loss.candidate == pytest.approx(-np.log([0.9, 0.8, 0.6, 0.3]).mean())
    assert loss.difference == pytest.approx(loss.champion - loss.candidate)
    assert loss.low < loss.difference < loss.high
    assert loss == compare(pairs, metric="log_loss", confidence=0.9)


def test_gains_beyond_a_million_are_summed_with_neighbors(monkeypatch):
    generator = np.random.default_rng(7)
    right = np.ones(1000, bool)
    scores = [Scores(right, generator.gamma(1, scale, 1000)) for scale in (0.95, 1)]
    whole = compare(Pairs.of(*scores), metric="log_loss", confidence=0.95)
    monkeypatch.setattr(comparison, "_MAX_GAINS", 300)
    pairs = Pairs(1000)
    for part in (slice(130), slice(130, None)):
        pairs.add(*(Scores(*(values[part] for values in score)) for score in scores))
    assert len(pairs.gains) == 250
    summed = compare(pairs, metric="log_loss", confidence=0.95)
    for name in ("examples", "candidate", "champion", "difference"):
        assert getattr(summed, name) == pytest.approx(getattr(whole, name)), name
    for name in ("low", "high", "p_value"):
        assert getattr(summed, name) == pytest.approx(getattr(whole, name), abs=0.01), name
