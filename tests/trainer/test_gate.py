"""The gate's rules, on real evaluations of small models."""

import json
import re

import numpy as np
import pytest

from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation import gate
from trainer.evaluation.champion_scores import score
from trainer.evaluation.comparison import Pairs
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
