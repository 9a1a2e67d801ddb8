"""The report points out findings that are more than chance."""

import dataclasses

import pytest

from tests.trainer.report.report_page import TRAINING
from trainer.evaluation.slices import Slice, Slices


def test_baseline_overfitting_and_slow_input_are_named(render):
    text = render(right=0.0).text
    assert "Not reliably better than always answering" in text
    assert "Overfitting: 99.0% right in training, 80.0% in validation." in text
    # The records hold raw pixels already.
    assert "40% of the training time went into waiting for input: faster storage" in text
    text = render(10, right=1.0, training={**TRAINING, "train": {"accuracy": 0.8}}).text
    assert "Every example of every class was recognized." in text
    assert "Overfitting" not in text


@pytest.mark.parametrize(("examples", "is_named"), [(20, False), (2000, True)])
def test_gap_of_a_small_validation_split_is_no_overfitting(render, evaluated, examples, is_named):
    splits = evaluated()[1].splits
    shards = [dataclasses.replace(splits["test"].shards[0], examples=examples)]
    splits = {**splits, "validation": dataclasses.replace(splits["test"], shards=shards)}
    training = {**TRAINING, "train": {"accuracy": 0.92}, "validation": {"accuracy": 0.85}}
    page = render(dataset={"splits": splits}, training=training)
    assert ("Overfitting" in page.text) == is_named


@pytest.mark.parametrize(
    ("accuracy", "examples", "is_named"), [(0.7, 400, True), (0.7, 20, False), (0.95, 400, False)]
)
def test_slice_that_fails_by_more_than_chance_is_named(render, accuracy, examples, is_named):
    figures = {"accuracy": accuracy, "positive_rate": 0.3, "roc_auc": 0.5}
    part = Slice(name="card", examples=examples, **figures)
    cut = Slices(column="payment", by="by value", slices=[part])
    text = render(evaluation={"accuracy": 0.9, "slices": [cut]}).text
    words = "Weakest where payment is card : 70.0% of 400 examples right; a constant answer"
    assert (words in text) == ("Weakest where" in text) == is_named
    assert ("would get 70.0%" in text) == is_named


def test_class_without_answers_is_not_the_least_reliable(render, evaluated):
    rows = evaluated()[0].per_class
    unasked = dataclasses.replace(rows[0], predicted=0, precision=0.0, recall=0.0, f1=0.0)
    poor = dataclasses.replace(rows[1], predicted=8, precision=0.25)
    fitted = {**TRAINING, "train": {"accuracy": 0.8}}
    sure = {"accuracy_interval": (0.66, 0.74), "expected_calibration_error": 0.0}
    text = render(
        evaluation={**sure, "per_class": [unasked, poor, *rows[2:]]}, training=fitted
    ).text
    assert "The weakest class is class-0 : 0 of" in text
    assert "The least reliable answer is class-1 : right 2 of 8 times." in text
    never = [dataclasses.replace(row, predicted=0, precision=0.0) for row in rows]
    text = render(evaluation={**sure, "per_class": never}, training=fitted).text
    assert "The most common mistake" in text and "The least reliable" not in text


def test_equal_examples_of_different_labels_are_named(render):
    assert "Equal examples with" not in render().text
    contradictions = {"count": 3, "first": [["cat/1.png (cat)", "dog/<2>.png (dog)"]]}
    text = render(dataset={"creation": {"contradictions": contradictions}}).text
    assert "different labels: cat/1.png (cat) = dog/<2>.png (dog) ; 3 pairs in all." in text


def test_nearly_empty_column_is_named(render, evaluated):
    features = [*evaluated()[1].features]
    for name, share in (("tract", 0.999), ("company", 0.3)):
        statistics = {"missing": {"train": share}}
        features.append(dataclasses.replace(features[0], name=name, statistics=statistics))
    text = render(dataset={"features": features}).text
    assert "tract has no value in 99.9% of the training rows" in text
    assert "company has no value" not in text


@pytest.mark.parametrize(("area", "is_named"), [(0.95, True), (0.7, False)])
def test_column_nearly_as_good_as_the_model_is_named(render, area, is_named):
    areas = {"tip": area, "noise": 0.5}
    text = render(2, evaluation={"roc_auc": 0.96, "column_areas": areas}).text
    words = "tip predicts the label almost alone: ROC AUC 0.950 by itself, 0.960 for the model."
    assert (words in text) == ("almost alone" in text) == is_named
