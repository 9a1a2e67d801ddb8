"""The gate's rules, on real evaluations of small models that answer as the test says."""

import json

import numpy as np
import pytest

from components.registry.model_evaluation import THRESHOLDS, operating_points
from tests.trainer.report_samples import write_model, write_records
from trainer import fields
from trainer.errors import InputError
from trainer.evaluation.champion_scores import score
from trainer.evaluation.comparison import Pairs
from trainer.evaluation.gate import ChampionScores, judge
from trainer.evaluation.gate_options import GateOptions
from trainer.evaluation.scoring import evaluate

CLASSES = ["rose", "tulip"]
N = 40


def pixels(right):
    """Pixels of a class that is 1 throughout, of which the first `right` are recognized."""
    return np.array([[1, 9]] * right + [[6, 4]] * (N - right), np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, and the records of 30 of 40 right answers with their evaluation."""
    folder = tmp_path_factory.mktemp("gate")
    write_model(folder / "model", CLASSES)
    write_records(folder / "records", CLASSES, np.ones(N, int), pixels(30))
    return folder


@pytest.fixture(scope="module")
def evaluation(folder):
    return evaluate(str(folder / "model"), str(folder / "records"))


def scored(evaluation, right):
    """A champion with the first `right` examples right; those after have been missed."""
    candidate = evaluation.answers.scores(0, N)
    pairs = Pairs.of(candidate, candidate._replace(correct=np.arange(N) < right))
    return ChampionScores(name="digits@1", pairs=pairs)


def test_floors_alone_decide_where_there_is_no_champion(evaluation):
    verdict = judge(evaluation, GateOptions(min_accuracy=0.75), registry=True, champion=None)
    assert (verdict.accepted, verdict.role) == (True, "champion")
    assert verdict.line == "accepted: accuracy 0.7500 (at least 0.7500); no champion yet"
    unregistered = judge(evaluation, GateOptions(), registry=False, champion=None)
    assert (unregistered.accepted, unregistered.role) == (True, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_accuracy": 0.76}, "accuracy 0.7500 is below min_accuracy 0.7600"),
        ({"min_recall": 0.8}, "recall of 'tulip' 0.7500 is below its floor 0.8000"),
        ({"class_floors": {"tulip": 0.8}}, "recall of 'tulip' 0.7500 is below its floor 0.8000"),
        ({"class_floors": {"rose": 0.1}}, "'rose' has a floor, but no test example"),
    ],
)
def test_a_model_below_a_floor_is_rejected_however_bad_the_champion(evaluation, options, message):
    options = GateOptions(register_challengers=True, **options)
    verdict = judge(evaluation, options, registry=True, champion=scored(evaluation, 0))
    assert (verdict.accepted, verdict.role, verdict.reason) == (False, "", message)


def test_a_floor_of_one_class_stands_in_for_the_floor_of_all(evaluation):
    options = GateOptions(min_recall=0.9, class_floors={"tulip": 0.7})
    assert judge(evaluation, options, registry=True, champion=None).accepted


@pytest.mark.parametrize(
    ("options", "champion", "accepted", "claim"),
    [
        ({}, 30, False, "not better than the champion digits@1 at 95% confidence"),
        ({}, 26, False, "not better than"),  # 4 of 4 discordant examples: p 0.0625
        ({}, 25, True, "better than the champion digits@1"),  # 5 of 5: p 0.03125
        ({"confidence": 0.99}, 25, False, "not better than the champion digits@1 at 99%"),
        ({"champion_rule": "not_worse", "margin": 0.1}, 30, True, "not worse than the champion"),
        ({"champion_rule": "not_worse", "margin": 0.1}, 33, False, "perhaps worse than the"),
        ({"champion_rule": "none"}, 40, True, "champion_rule is none"),
        ({"champion_metric": "log_loss"}, 30, False, "log loss 0.3081 against 0.3081"),
    ],
)
def test_the_champion_is_displaced_only_where_the_rule_says_so(
    evaluation, options, champion, accepted, claim
):
    verdict = judge(
        evaluation, GateOptions(**options), registry=True, champion=scored(evaluation, champion)
    )
    assert verdict.accepted is accepted
    assert verdict.role == ("champion" if accepted else "")
    assert claim in verdict.reason
    assert "\n" not in verdict.line
    assert verdict.champion == "digits@1"


def test_a_loser_is_registered_as_challenger_on_request(evaluation):
    options = GateOptions(register_challengers=True)
    verdict = judge(evaluation, options, registry=True, champion=scored(evaluation, 40))
    assert (verdict.accepted, verdict.role) == (False, "challenger")


def test_the_figures_of_a_verdict_are_plain_values(evaluation):
    verdict = judge(evaluation, GateOptions(), registry=True, champion=scored(evaluation, 25))
    figures = verdict.figures()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert figures["verdict"] == "accepted"
    assert figures["champion"] == "digits@1"
    assert (figures["candidate_score"], figures["champion_score"]) == (0.75, 0.625)
    assert (figures["candidate_only"], figures["champion_only"]) == (5, 0)
    assert figures["p_value"] == pytest.approx(1 / 32)
    assert figures["low"] < figures["difference"] == 0.125 < figures["high"]


def test_the_champion_is_scored_on_the_very_examples_of_the_candidate(evaluation):
    met = score("digits@1", evaluation.model, evaluation)
    assert met.pairs.right.tolist() == [[10, 0], [0, 30]]
    assert met.pairs.losses / N == pytest.approx([evaluation.log_loss] * 2)
    assert met.pairs.gains.tolist() == [0] * N


def test_a_champion_without_the_new_class_has_its_examples_wrong(folder, evaluation, tmp_path):
    """It answers the names that it knows; accuracy compares, log loss can't."""
    old = write_model(tmp_path / "old", ["rose", "lily"])
    met = score("digits@1", old, evaluation)
    assert met.pairs.right.tolist() == [[10, 0], [30, 0]]
    assert met.pairs.gains is None
    verdict = judge(evaluation, GateOptions(), registry=True, champion=met)
    assert verdict.accepted
    by_loss = GateOptions(champion_metric="log_loss")
    verdict = judge(evaluation, by_loss, registry=True, champion=met)
    assert (verdict.accepted, verdict.role) == (False, "")
    assert "its classes differ from the records'" in verdict.reason


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda path: write_model(path, ["a", "b", "c"]),
            "it takes 1x3x1 images, the records have 1x2x1",
        ),
        (lambda path: write_model(path, ["lily", "aster"]), "it predicts none of the classes of"),
        (lambda path: str(path / "gone"), "no SavedModel at"),
    ],
)
def test_a_champion_that_can_not_answer_stays_until_somebody_decides(
    evaluation, tmp_path, make, message
):
    met = score("digits@3", make(tmp_path / "old"), evaluation)
    verdict = judge(evaluation, GateOptions(), registry=True, champion=met)
    assert (verdict.accepted, verdict.role) == (False, "")
    assert verdict.reason.startswith("not comparable with the champion digits@3: ")
    assert message in verdict.reason
    assert verdict.reason.endswith("; set model_name= to another model, or champion_rule=none")
    assert len(verdict.reason.replace(str(tmp_path), "")) < 150
    asked = GateOptions(register_challengers=True)
    assert judge(evaluation, asked, registry=True, champion=met).role == "challenger"


@pytest.mark.parametrize("floor", [1.5, -1, "high", True])
def test_a_floor_that_is_no_recall_is_refused(floor):
    with pytest.raises(InputError, match=r"class_floors: 'rose' is .*, not a recall from 0 to 1"):
        fields.build(GateOptions, {"class_floors": {"rose": floor}})


def test_operating_points_are_micro_averages_over_examples_and_classes():
    labels = np.array([0, 1, 2, 2])
    probabilities = np.array(
        [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.0, 0.0, 1.0], [0.3, 0.35, 0.35]], np.float32
    )
    blocks = [(labels[part], probabilities[part]) for part in (slice(3), slice(3, None))]
    points = dict(zip(THRESHOLDS, operating_points(blocks), strict=True))
    assert [one["confidenceThreshold"] for one in points.values()] == list(points)
    half = points[0.5]
    # Three answers of at least 0.5, two of them right; the fourth example has none.
    assert (half["precision"], half["recall"]) == (pytest.approx(2 / 3), 0.5)
    assert half["f1Score"] == pytest.approx(4 / 7)
    assert half["falsePositiveRate"] == pytest.approx(1 / 8)
    # At 0 every class is an answer, but each example has one first answer.
    assert (points[0.0]["precision"], points[0.0]["recall"]) == (pytest.approx(1 / 3), 1)
    assert (points[0.0]["precisionAt1"], points[0.0]["recallAt1"]) == (0.5, 0.5)
