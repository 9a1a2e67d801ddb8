"""Test which findings the report points out, and which it does not."""

import dataclasses

from tests.trainer.report.document import TRAINING, report
from trainer.evaluation.slices import Slice, Slices

FITTED = {**TRAINING, "train": {"accuracy": 0.8}}


def test_what_stands_out_is_said(tmp_path, evaluated):
    page = report(tmp_path / "report.html", *evaluated(5, right=0.0))
    assert "Not reliably better than always answering" in page.text
    assert "Overfitting: 99.0% right in training, 80.0% in validation." in page.text
    # The records hold raw pixels already.
    assert "40% of the training time went into waiting for input: faster storage" in page.text
    page = report(tmp_path / "report.html", *evaluated(10, right=1.0), training=FITTED)
    assert "Every example of every class was recognized." in page.text
    assert "Overfitting" not in page.text


def test_a_gap_that_a_small_validation_split_may_have_by_chance_is_no_overfitting(
    tmp_path, evaluated
):
    evaluation, dataset = evaluated(5)
    told = []
    for examples in (20, 2000):
        split = dataset.splits["test"]
        shard = dataclasses.replace(split.shards[0], examples=examples)
        split = dataclasses.replace(split, shards=[shard])
        larger = dataclasses.replace(dataset, splits={**dataset.splits, "validation": split})
        training = {**TRAINING, "train": {"accuracy": 0.92}, "validation": {"accuracy": 0.85}}
        page = report(tmp_path / "report.html", evaluation, larger, training=training)
        told.append("Overfitting" in page.text)
    assert told == [False, True]


def test_the_slice_that_fails_by_more_than_chance_is_named(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)

    def told(accuracy: float, examples: int) -> str:
        part = Slice(
            name="card", examples=examples, accuracy=accuracy, positive_rate=0.3, roc_auc=0.5
        )
        cut = Slices(column="payment", by="by value", slices=[part])
        judged = dataclasses.replace(evaluation, accuracy=0.9, slices=[cut])
        return report(tmp_path / "report.html", judged, dataset).text

    words = "Weakest where payment is card : 70.0% of 400 examples right; a constant answer"
    assert words in told(0.7, 400)
    assert "would get 70.0%" in told(0.7, 400)
    assert "Weakest where" not in told(0.7, 20)
    assert "Weakest where" not in told(0.95, 400)


def test_equal_examples_under_two_labels_are_named(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    assert "Equal examples with" not in report(tmp_path / "report.html", evaluation, dataset).text
    found = {"count": 3, "first": [["cat/1.png (cat)", "dog/<2>.png (dog)"]]}
    dataset = dataclasses.replace(dataset, creation={"contradictions": found})
    page = report(tmp_path / "report.html", evaluation, dataset)
    words = "different labels: cat/1.png (cat) = dog/<2>.png (dog) ; 3 pairs in all."
    assert words in page.text


def test_a_column_that_is_all_but_empty_is_named(tmp_path, evaluated):
    evaluation, dataset = evaluated(5)
    features = [
        dataclasses.replace(
            dataset.features[0], name=name, statistics={"missing": {"train": share}}
        )
        for name, share in (("tract", 0.999), ("company", 0.3))
    ]
    dataset = dataclasses.replace(dataset, features=[*dataset.features, *features])
    page = report(tmp_path / "report.html", evaluation, dataset)
    assert "tract has no value in 99.9% of the training rows" in page.text
    assert "company has no value" not in page.text
