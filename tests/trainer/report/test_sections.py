"""Sections of the report show what their names say."""

import dataclasses
import re

import numpy as np
import pytest

from tests.trainer.report.report_page import HISTORY, TRAINING, report
from tests.trainer.report_samples import write_model, write_records
from trainer.evaluation.drift import measure
from trainer.evaluation.gate import Verdict
from trainer.evaluation.scoring import evaluate
from trainer.metrics.comparison import Comparison
from trainer.report.document import describe_outcome
from vertex.formats import decimal


def test_summary_confusion_and_mistakes_have_their_figures(render, evaluated):
    page, (evaluation, _) = render(), evaluated()
    matrix, accuracy = evaluation.sums.confusion.tolist(), evaluation.metrics["accuracy"]
    for words in (
        f"{sum(matrix[index][index] for index in range(5))} of 60 examples right",
        f"{100 * accuracy.value:.1f}%",
        f"95% interval {100 * accuracy.low:.1f}% to {100 * accuracy.high:.1f}%",
        *("1 min 15 s", "5,321 examples/s", "60,554 parameters"),
        "chief; multi_worker_mirrored",
    ):
        assert words in page.text
    assert "small_<wbr>cnn" in page.source

    body = page.source.split('class="confusion')[1].split("<tbody>")[1].split("</tbody>")[0]
    shown = [re.findall(r">(\d+)</td>", line) for line in body.split("</tr>")[:-1]]
    assert [[int(cell) for cell in line] for line in shown] == matrix

    section, first = page.section("mistakes"), evaluation.worst[0]
    assert section.count("data:image/png;base64,") == len(evaluation.worst)
    confidence = f"{100 * first.figures['confidence']:.1f}%"
    for words in (first.key, first.figures["label"], first.figures["predicted"], confidence):
        assert words in section


def test_parameters_that_were_set_come_before_defaults(render):
    details = {"worker_count": 2.0, "xla": False, "epochs": 12, "learning_rate": 0.001}
    page = render(details=details)
    settings, folded = page.section("recipe").split("<details>")
    assert settings.index("epochs") < settings.index("worker_<wbr>count")
    assert "2 parameters at their default" in folded
    assert "xla" in folded and "learning_<wbr>rate" in folded
    assert "chief, 2 workers" in page.text
    details |= {"source": "images:photos", "image_size": 224, "channels": 3, "min_accuracy": 0.5}
    page = render(details=details, recipe_sets=["learning_rate", "image_size", "timeout"])
    settings, folded = page.section("recipe").split("<details>")
    for name in ("learning_<wbr>rate", "source", "image_<wbr>size", "min_<wbr>accuracy"):
        assert f"<dt>{name}</dt>" in settings
    assert settings.index("source") < settings.index("epochs") < settings.index("min_<wbr>accuracy")
    assert "2 parameters at their default" in folded
    assert "channels" in folded and "xla" in folded


def test_records_of_a_table_have_no_options_of_images(render):
    made = {"options": {"jpeg_quality": 85, "shard_megabytes": 64.0}}
    assert "<dt>jpeg_<wbr>quality</dt>" in render(dataset={"creation": made}).section("data")
    table = render(dataset={"creation": made, "features": []}).section("data")
    assert "jpeg" not in table and "<dt>shard_<wbr>megabytes</dt>" in table


def test_confusion_matrix_of_many_classes_is_a_picture(render, evaluated):
    page, matrix = render(30), evaluated(30)[0].sums.confusion
    assert [image for image in page.all("img") if image.get("class") == "heat"]
    assert page.source.count("<td") < 30 * 30
    np.fill_diagonal(matrix, 0)
    assert f">{matrix.max()}</td>" in page.section("confusion")


def test_single_epoch_is_shown_in_figures(render):
    training = {**TRAINING, "epochs": 1, "best_epoch": 1, "stopped_phases": ["no better loss"]}
    learning = render(2, training=training, history=HISTORY[:1]).section("learning")
    assert "<svg" not in learning
    assert "Validation loss</dt><dd>1.1<" in learning
    assert "Training stopped early: no better loss" in learning


def test_epoch_of_the_weights_is_named(render):
    text = render(training={**TRAINING, "kept_epoch": 2}).text
    assert "The dotted line is the best one, 2, whose weights the model has." in text
    text = render(training={**TRAINING, "kept_epoch": 3}).text
    assert (
        "The dotted line is the best one, 2. The model has the weights of epoch 3, the last."
        in text
    )


def test_curves_of_a_split_with_one_class_are_undefined(tmp_path):
    names = ["here", "absent"]
    dataset = write_records(tmp_path / "r", names, [0, 0], np.full((2, 2), 9, np.uint8))
    evaluation = evaluate(write_model(tmp_path / "m", names), dataset.uri)
    page = report(tmp_path / "report.html", evaluation, dataset)
    assert "Undefined: the split holds examples of a single class." in page.text
    words = "Class 'absent' has no image in the test split: it is not evaluated"
    assert words in page.text


def test_two_phases_are_told_apart(render):
    history = [{**HISTORY[0], "epoch": epoch, "phase": 1 + (epoch > 3)} for epoch in range(1, 7)]
    stopped = ["no better loss in 2 epochs", ""]
    training = {**TRAINING, "epochs": 6, "best_epoch": 5, "stopped_phases": stopped}
    page = render(training=training, history=history)
    learning = page.section("learning")
    assert "Phase 2 begins with epoch 4" in learning
    assert "The dotted line is the best one, 5 of phase 2, whose" in learning
    assert "Phase 1 stopped early: no better loss in 2 epochs." in learning
    assert "the best is 5 of phase 2" in page.text


def test_area_below_one_is_not_rounded_to_one():
    assert [decimal(value) for value in (0.99996, 1.0, 0.9994)] == ["0.999", "1.000", "0.999"]


def test_drift_is_shown_and_named_if_more_than_chance(render, evaluated):
    dataset = evaluated()[1]

    def with_counts(first: int, others: int):
        split = dataset.splits["train"]
        counts = [first * split.class_counts[0], *(others * n for n in split.class_counts[1:])]
        splits = {"train": dataclasses.replace(split, class_counts=counts)}
        return dataclasses.replace(dataset, splits=splits)

    verdict = Verdict(accepted=True, role="champion", reason="better", champion="flowers@3")
    now = with_counts(400, 400)
    for before, words in (
        (with_counts(100, 400), "The labels have drifted"),
        (now, "No column has drifted"),
    ):
        drifts = measure(before, now)
        page = render(verdict=verdict, drifts=drifts)
        assert words in page.text
        assert "flowers@3" in page.section("drift")
        assert "pixels have no statistics" in page.section("drift")
        assert f"{drifts.columns[0].distance:.3f}" in page.section("drift")
        assert "The test split, which is the newest" in render(in_time=drifts).section("time")


BETTER = "better than the champion digits@1"
SCORES = ", accuracy 0.9788 against 0.7725"
RESULT = Comparison(
    metric="accuracy",
    examples=189,
    candidate=0.9788,
    champion=0.7725,
    difference=0.2063,
    low=0.1622,
    high=0.2587,
    p_value=1.8e-12,
    candidate_only=39,
    champion_only=0,
    confidence=0.95,
)
VERDICT = Verdict(
    accepted=True,
    role="champion",
    reason=BETTER,
    champion="digits@1",
    rule="better",
    margin=0.01,
    comparison=RESULT,
)


@pytest.fixture
def page(render):
    """Return a function that writes the report of a changed verdict."""
    return lambda **changes: render(2, verdict=dataclasses.replace(VERDICT, **changes))


def test_section_has_the_verdict_and_all_figures(page):
    text = page().section("champion")
    for words in (
        "<strong>Accepted</strong>: better than the champion digits@1",
        "+0.2063",
        "+0.1622 to +0.2587, each bound at 95% confidence",
        *("0.9788", "0.7725", "39", "189", "1.8e-12"),
        "exact McNemar test",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("low", "high", "place"), [(0, 0, "0.5000"), (-1, 1, "0.1000"), (-0.1, 0.1, "0.1000")]
)
def test_drawing_has_no_difference_in_its_middle(page, low, high, place):
    result = dataclasses.replace(RESULT, low=low, high=high)
    text = page(comparison=result).section("champion")
    assert f"--low:{place};--high:{1 - float(place):.4f}" in text
    assert 'class="baseline" style="--at:0.5"' in text


def test_verdict_without_a_comparison_has_its_reason_alone(page):
    document = page(accepted=False, comparison=None, reason="<b>no</b> model at x")
    summary, text = document.section("summary"), document.section("champion")
    for section in (summary, text):
        assert "<strong>Rejected</strong>: &lt;b&gt;no&lt;/b&gt; model at x" in section
    assert "digits@1" in text
    assert 'class="scale"' not in text
    assert 'href="#champion"' in summary
    first = page(champion="", comparison=None)
    assert "champion" not in first.ids() and "#champion" not in first.source


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reason": f"{BETTER}: and more"}, f"{BETTER}{SCORES}. It becomes the champion."),
        ({"champion": "", "comparison": None, "role": ""}, f"{BETTER}. It is not registered."),
        (
            {"accepted": False, "role": ""},
            f"{BETTER}{SCORES}. It is not registered; the champion stays.",
        ),
        (
            {"accepted": False, "role": "challenger"},
            f"{BETTER}{SCORES}. It is registered as challenger; the champion stays.",
        ),
    ],
)
def test_outcome_gives_the_reason_and_what_follows(changes, expected):
    outcome = describe_outcome(dataclasses.replace(VERDICT, **changes))
    assert f"{outcome['reason']}. {outcome['effect']}" == expected
