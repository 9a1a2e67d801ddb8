"""The best of several trials is chosen only if it is better beyond the luck of being the best."""

import html
import json
import re
import shutil

import numpy as np
import pytest
from scipy import stats

from tests import replicas
from tests.conftest import TRAINED
from tests.refusals import refused
from trainer.evaluation.search_verdict import estimate_optimism, judge_search
from trainer.metrics.comparison import Pairs, Scores, compare
from trainer.report.search_page import render_search
from trainer.tasks.label_kinds import CLASSIFICATION
from vertex import checked_json

ACCURACY, _ = CLASSIFICATION.comparisons
BAD = TRAINED.replace("0.002", "0.00001").replace("--epochs=6", "--epochs=1")


def checked(content):
    return json.dumps(checked_json.with_checksum(content))


@pytest.fixture(scope="module")
def searched(shared, run_here, digit_records, trained):
    """Folders of a bad training with the recipe's values, and of a search that tries it, too.

    The search's third trial was stopped early, and the fourth failed before its first epoch ended.
    """

    def train(folder):
        run = folder / "trials" / "run"
        flags = replicas.flags(digit_records, folder / "defaults", BAD)
        assert run_here(flags) == 0
        shutil.copytree(folder / "defaults", run / "1")
        shutil.copytree(trained, run / "2")
        (run / "3").mkdir()
        shutil.copy(folder / "defaults" / "history.csv", run / "3")
        (run / "4").mkdir()
        for number, options in enumerate((BAD, TRAINED, "", ""), 1):
            begun = {"trial": number, "values": dict(re.findall(r"--(\w+)=(\S+)", options))}
            (run / str(number) / "trial.json").write_text(checked(begun))

    return shared("searched", train)


@pytest.mark.parametrize("metric", ["loss", "accuracy"])
def test_better_trial_is_chosen(metric, searched, digit_records):
    options = {"metric": metric, "confidence": 0.95}
    folders = str(searched / "defaults"), str(searched / "trials")
    verdict = judge_search(digit_records, *folders, **options)
    values = {one.name: one.value for one in verdict.trials if one.is_finished}
    assert values.keys() == {"1", "2"}
    assert len(verdict.trials) == 4
    assert verdict.best.value == (max if metric == "accuracy" else min)(values.values())
    assert verdict.chosen is verdict.best
    assert verdict.comparison.confidence == pytest.approx(1 - 0.05 / 3)
    assert 0 <= verdict.optimism < 0.1
    assert f"trial {verdict.best.name} is significantly better" in verdict.reason
    page = render_search("digits", verdict, {"epochs": 6})
    assert html.escape(verdict.reason) in page.replace("&#39;", "&#x27;")
    assert "not finished" in page
    names = {name for one in verdict.trials for name in one.values}
    assert page.count("<svg") == 2 + len(names)
    # Ticks of the learning rate, from 1e-5 to 2e-3, and of trials.
    assert {"0.001", "1", "2"} <= set(re.findall("<text[^>]*>([^<]*)<", page))
    assert "mathdefault" not in page


def test_recipe_stays_without_a_better_trial(searched, digit_records):
    options = {"metric": "loss", "confidence": 0.95}
    good = str(searched / "trials" / "run" / "2")
    verdict = judge_search(digit_records, good, str(searched / "trials"), **options)
    assert verdict.chosen.directory == good
    assert "is not significantly better than the recipe's values" in verdict.reason


@pytest.mark.parametrize(
    "damaged", ["", "{", "[]", '{"values": 5}', '{"values": {}, "sha256": "0"}']
)
def test_damaged_values_of_a_trial_are_named(searched, digit_records, tmp_path, damaged):
    shutil.copytree(searched / "trials", tmp_path / "trials")
    file = tmp_path / "trials" / "run" / "2" / "trial.json"
    file.write_text(damaged)
    options = {"metric": "loss", "confidence": 0.95}
    folders = str(searched / "defaults"), str(tmp_path / "trials")
    message = refused(judge_search, digit_records, *folders, **options)
    assert f"{file} is {'damaged (' if damaged else 'missing'}" in message


@pytest.mark.parametrize("value", [["0.1"], {"low": 1}, 0.1, None])
def test_value_of_another_type_in_a_file_of_a_trial_is_named(
    searched, digit_records, tmp_path, value
):
    shutil.copytree(searched / "trials", tmp_path / "trials")
    file = tmp_path / "trials" / "run" / "2" / "trial.json"
    file.write_text(checked({"trial": 2, "values": {"epochs": value}}))
    options = {"metric": "loss", "confidence": 0.95}
    folders = str(searched / "defaults"), str(tmp_path / "trials")
    message = refused(judge_search, digit_records, *folders, **options)
    assert f"{file} is damaged (values: epochs is {json.dumps(value)} instead of text)" in message
    file = file.with_name("metrics.json")
    file.write_text(checked({"validation": {"loss": str(value)}}))
    message = refused(judge_search, digit_records, *folders, **options)
    assert f"{file} is damaged (validation: loss is " in message


def test_search_without_finished_trials_is_refused(searched, digit_records, tmp_path):
    options = {"metric": "loss", "confidence": 0.95}
    message = refused(
        judge_search, digit_records, str(searched / "defaults"), str(tmp_path), **options
    )
    assert message == f"no trial in {tmp_path} has finished with a validation loss"


@pytest.mark.slow
def test_the_best_of_equal_trials_is_rarely_called_better():
    generator = np.random.default_rng(0)
    searches, trials, examples = 100, 8, 300
    wrong, optimism, gaps = 0, [], []
    for _ in range(searches):
        hard = generator.random(examples) < 0.5
        correct = generator.random((trials + 1, examples)) < np.where(hard, 0.8, 0.98)
        best = correct[1:].mean(axis=1).argmax()
        pairs = Pairs.from_scores(Scores(correct[1 + best], None), Scores(correct[0], None))
        found = compare(pairs, metric=ACCURACY, confidence=1 - 0.05 / trials)
        wrong += found.is_better
        optimism.append(estimate_optimism(correct[1:].astype(float), examples))
        gaps.append(correct[1:].mean(axis=1).max() - 0.89)
    assert wrong <= stats.binom.ppf(0.999, searches, 0.05)
    # Half to all of the luck of the best is expected, on average.
    assert 0.5 * np.mean(gaps) < np.mean(optimism) < 1.2 * np.mean(gaps)


def test_a_real_effect_is_found():
    generator = np.random.default_rng(1)
    correct = generator.random((9, 2000)) < np.r_[np.full(8, 0.9), 0.95][:, None]
    pairs = Pairs.from_scores(Scores(correct[8], None), Scores(correct[0], None))
    assert compare(pairs, metric=ACCURACY, confidence=1 - 0.05 / 8).is_better


@pytest.mark.slow
def test_trials_of_an_earlier_run_are_judged_too(searched, digit_records, tmp_path):
    trials = tmp_path / "trials"
    trials.mkdir()
    for run in ("first", "second"):
        (trials / run).symlink_to(searched / "trials" / "run")
    options = {"metric": "loss", "confidence": 0.95}
    verdict = judge_search(digit_records, str(searched / "defaults"), str(trials), **options)
    assert [one.name for one in verdict.trials if one.is_finished][::2] == ["first/1", "second/1"]
    assert verdict.comparison.confidence == pytest.approx(1 - 0.05 / 6)
