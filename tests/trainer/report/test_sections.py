"""Test the contents of the sections of the report."""

import dataclasses
import re

import numpy as np

from tests.trainer.report.document import HISTORY, TRAINING, report
from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation.drift import measure
from trainer.evaluation.gate import Verdict
from trainer.evaluation.scoring import evaluate
from trainer.report.formats import decimal


def test_the_summary_tells_accuracy_interval_time_speed_model_and_replicas(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    page = report(tmp_path / "report.html", evaluation, dataset)
    right = sum(evaluation.confusion_matrix[index][index] for index in range(5))
    assert f"{right} of 60 examples right" in page.text
    low, high = evaluation.accuracy_interval
    assert f"{100 * evaluation.accuracy:.1f}%" in page.text
    assert f"95% interval {100 * low:.1f}% to {100 * high:.1f}%" in page.text
    for words in ("1 min 15 s", "5,321 examples/s", "60,554 parameters"):
        assert words in page.text
    assert "small_<wbr>cnn" in page.source
    assert "chief; multi_worker_mirrored" in page.text


def test_what_was_set_for_the_run_is_told_apart_from_defaults(tmp_path, evaluated):
    details = {"worker_count": 2.0, "xla": False, "epochs": 12, "learning_rate": 0.001}
    page = report(tmp_path / "report.html", *evaluated(5), details=details)
    own, folded = page.section("recipe").split("<details>")
    assert own.index("epochs") < own.index("worker_<wbr>count")
    assert "2 more parameters, equal to their default" in folded
    assert "xla" in folded and "learning_<wbr>rate" in folded
    assert "chief, 2 workers" in page.text
    details |= {"source": "images:photos", "image_size": 224, "channels": 3, "min_accuracy": 0.5}
    sets = ["learning_rate", "image_size", "timeout"]
    page = report(tmp_path / "set.html", *evaluated(5), details=details, recipe_sets=sets)
    own, folded = page.section("recipe").split("<details>")
    for name in ("learning_<wbr>rate", "source", "image_<wbr>size", "min_<wbr>accuracy"):
        assert f"<dt>{name}</dt>" in own
    assert own.index("source") < own.index("epochs") < own.index("min_<wbr>accuracy")
    assert "2 more parameters, equal to their default" in folded
    assert "channels" in folded and "xla" in folded


def test_the_confusion_matrix_shows_every_count(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    page = report(tmp_path / "report.html", evaluation, dataset)
    body = page.source.split('class="confusion')[1].split("<tbody>")[1].split("</tbody>")[0]
    shown = [re.findall(r">(\d+)</td>", line) for line in body.split("</tr>")[:-1]]
    assert [[int(cell) for cell in line] for line in shown] == evaluation.confusion_matrix


def test_the_confusion_matrix_of_many_classes_is_a_picture_with_the_commonest(tmp_path, evaluated):
    evaluation, dataset = evaluated(30)
    page = report(tmp_path / "report.html", evaluation, dataset)
    assert [image for image in page.all("img") if image.get("class") == "heat"]
    assert page.source.count("<td") < 30 * 30
    commonest = max(
        (cell, row, column)
        for row, line in enumerate(evaluation.confusion_matrix)
        for column, cell in enumerate(line)
        if row != column
    )
    assert f">{commonest[0]}</td>" in page.section("confusion")


def test_mistakes_are_pictures_with_true_class_predicted_class_confidence_and_key(
    tmp_path, evaluated
):
    evaluation, dataset = evaluated(5)
    page = report(tmp_path / "report.html", evaluation, dataset)
    section = page.section("mistakes")
    assert section.count("data:image/png;base64,") == len(evaluation.mistakes) > 0
    first = evaluation.mistakes[0]
    for words in (first.key, first.label, first.predicted, f"{100 * first.confidence:.1f}%"):
        assert words in section


def test_a_single_epoch_is_told_in_figures(tmp_path, evaluated):
    evaluation, dataset = evaluated(2)
    training = {**TRAINING, "epochs": 1, "best_epoch": 1, "stopped_phases": ["no better loss"]}
    page = report(
        tmp_path / "report.html", evaluation, dataset, training=training, history=HISTORY[:1]
    )
    learning = page.section("learning")
    assert "<svg" not in learning
    assert "Validation loss</dt><dd>1.1<" in learning
    assert "Training stopped early: no better loss" in learning


def test_a_split_with_one_class_says_that_curves_are_undefined(tmp_path):
    names = ["here", "absent"]
    dataset = write_records(tmp_path / "r", names, [0, 0], np.full((2, 2), 9, np.uint8))
    evaluation = evaluate(write_model(tmp_path / "m", names), dataset.uri)
    page = report(tmp_path / "report.html", evaluation, dataset)
    assert "Undefined: the split holds examples of a single class." in page.text
    assert "No example of absent" in page.text.replace(" :", ":")


def test_a_run_of_two_phases_says_which_is_meant(tmp_path, evaluated):
    history = [{**HISTORY[0], "epoch": epoch, "phase": 1 + (epoch > 3)} for epoch in range(1, 7)]
    stopped = ["no better loss in 2 epochs", ""]
    training = {**TRAINING, "epochs": 6, "best_epoch": 5, "stopped_phases": stopped}
    page = report(tmp_path / "r.html", *evaluated(5), training=training, history=history)
    learning = page.section("learning")
    assert "Phase 2 begins with epoch 4" in learning
    assert "The dotted line is the best one, 5 of phase 2." in learning
    assert "Phase 1 stopped early: no better loss in 2 epochs." in learning
    assert "the best is 5 of phase 2" in page.text


def test_an_area_below_one_is_not_shown_as_one():
    assert [decimal(value) for value in (0.99996, 1.0, 0.9994)] == ["0.999", "1.000", "0.999"]


def test_drift_is_drawn_and_told_where_it_is_more_than_chance(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    train = dataset.splits["train"]
    counts = [400 * count for count in train.class_counts]
    splits = {"train": dataclasses.replace(train, class_counts=counts)}
    now = dataclasses.replace(dataset, splits=splits)
    half = {"train": dataclasses.replace(train, class_counts=[counts[0] // 4, *counts[1:]])}
    before = dataclasses.replace(dataset, splits=half)
    verdict = Verdict(accepted=True, role="champion", reason="better", champion="flowers@3")
    for other, words in ((before, "The classes have drifted"), (now, "No column has drifted")):
        drifts = measure(other, now)
        page = report(tmp_path / "report.html", evaluation, dataset, verdict=verdict, drifts=drifts)
        assert words in page.text
        assert "flowers@3" in page.section("drift")
        assert f"{drifts[0].distance:.3f}" in page.section("drift")
