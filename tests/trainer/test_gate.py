"""The gate's rules, on real evaluations of small models."""

import dataclasses
import json
import re

import numpy as np
import pytest

from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation import gate
from trainer.evaluation.champion_scores import score
from trainer.evaluation.gate import ChampionScores
from trainer.evaluation.gate_options import GateOptions
from trainer.evaluation.scoring import evaluate
from trainer.metrics.comparison import Pairs

N = 40


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """Evaluate a model that recognizes the first 30 of 40 examples, and takes 10 for roses."""
    folder, classes = tmp_path_factory.mktemp("gate"), ["rose", "tulip", "daisy"]
    pixels = np.array([[1, 9, 0], [1, 0, 9]] * 15 + [[6, 4, 0], [6, 0, 4]] * 5, np.uint8)
    write_records(folder / "records", classes, [1, 2] * (N // 2), pixels)
    return evaluate(write_model(folder / "model", classes), str(folder / "records"))


def recognizes(evaluation, right):
    """Return the scores of a champion that recognizes the first `right` examples."""
    candidate = evaluation.answers.scores(0, N)
    pairs = Pairs.from_scores(candidate, candidate._replace(correct=np.arange(N) < right))
    return ChampionScores(name="digits@1", pairs=pairs)


def with_log_loss(evaluation, value):
    return dataclasses.replace(evaluation, metrics={**evaluation.metrics, "log_loss": value})


def judge(evaluation, champion, *, registers=True, **options):
    return gate.judge(evaluation, GateOptions(**options), registers=registers, champion=champion)


def test_first_champion_meets_the_floors_and_beats_constant_answers(evaluation):
    verdict = judge(evaluation, None, min_accuracy=0.75)
    assert (verdict.accepted, verdict.role) == (True, "champion")
    claim = "accuracy 0.7500 (minimum 0.7500), better than always answering 'tulip' (0.5000)"
    assert verdict.line == f"accepted: {claim}; no champion yet"
    unregistered = judge(evaluation, None, registers=False, min_accuracy=0.75)
    assert (unregistered.line, unregistered.role) == (f"accepted: {claim}", "")
    assert judge(evaluation, None, min_recall=0.7, class_floors={"tulip": 0.7}).accepted
    figures = verdict.to_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert (figures["baseline_commonest"], figures["baseline_accuracy"]) == ("tulip", 0.5)
    calm = judge(with_log_loss(evaluation, 0.5), None, confidence=0.99)
    claim = "log loss 0.5000 better than that of the class frequencies (0.6931); no champion yet"
    assert calm.reason == f"accuracy 0.7500, {claim}"
    # Right alone on 15 examples, a constant answer on 5.
    assert figures["baseline_accuracy_p_value"] == pytest.approx(2 * 0.0206947327)


def test_first_model_that_fails_is_registered_without_an_alias(evaluation):
    floor = judge(evaluation, None, min_accuracy=0.8)
    assert (floor.accepted, floor.role) == (False, "candidate")
    sure = with_log_loss(evaluation, 0.9)  # of wrong answers, too
    noise = judge(sure, None, confidence=0.99)
    assert (noise.accepted, noise.role) == (False, "candidate")
    assert noise.reason == (
        "not better than always answering 'tulip' at 99% confidence: accuracy 0.7500 against "
        "0.5000, log loss 0.9000 against 0.6931 of the class frequencies, p 0.0414; "
        "first_champion=any accepts it"
    )
    assert judge(sure, None, registers=False, confidence=0.99).role == ""
    loud = judge(sure, None, confidence=0.99, first_champion="any")
    assert (loud.accepted, loud.role) == (True, "champion")
    assert loud.reason.endswith(
        ", not better than always answering 'tulip' (0.5000); first_champion is any; no champion "
        "yet"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_accuracy": 0.76}, "accuracy 0.7500 is below min_accuracy 0.7600"),
        (
            {"min_recall": 0.8, "class_floors": {"tulip": 0.75}},
            "recall of 'daisy' 0.7500 is below its floor 0.8000",
        ),
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
        # A champion is beaten, not a constant answer.
        ({"champion_rule": "none", "confidence": 0.99}, 40, "champion", "champion_rule is none"),
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
    unregistered = judge(evaluation, recognizes(evaluation, right), registers=False, **options)
    assert (unregistered.accepted, unregistered.role) == (verdict.accepted, "")


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
    assert pairs.losses / N == pytest.approx([evaluation.metrics["log_loss"]] * 2)
    assert pairs.gains.tolist() == [0] * N


def test_champion_without_a_class_is_compared_by_accuracy(evaluation, tmp_path):
    old = score("digits@1", write_model(tmp_path / "old", ["rose", "lily", "aster"]), evaluation)
    assert old.pairs.right.tolist() == [[10, 0], [30, 0]]
    assert old.pairs.gains is None
    assert judge(evaluation, old).accepted
    verdict = judge(evaluation, old, champion_metric="log_loss")
    assert (verdict.accepted, verdict.role) == (False, "")
    assert "its classes differ from the records'" in verdict.reason


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a", "b"], "it expects 1x2x1 images, the records have 1x3x1"),
        (["lily", "aster", "iris"], "it predicts none of the classes of"),
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
