"""The report's page is complete, self-contained and small; findings are more than chance."""

import dataclasses
import re
import time

import matplotlib as mpl
import numpy as np
import pytest

from tests.trainer.report.report_page import HOSTILE, TRAINING
from trainer.metrics.metric import Estimate
from trainer.metrics.slices import Slice, Slices


def assert_self_contained(page):
    """Check that the page fetches nothing and runs nothing."""
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "embed", "form", "base"}
    assert all(image["src"].startswith("data:image/") for image in page.all("img"))
    assert not re.search(r"@import|url\((?!#)", page.source)
    for _, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "xlink:href"}:
                assert value.startswith(("data:", "#"))
    policy = next(meta for meta in page.all("meta") if "http-equiv" in meta)
    assert policy["content"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    ("classes", "right"), [(2, 0.7), (5, 0.5), (10, 1.0), (12, 0.0), (30, 0.6)]
)
def test_page_is_well_formed_and_has_every_section(render, classes, right):
    page = render(classes, right=right)
    assert page.open == []
    assert " ".join(page.ids()) == (
        "summary learning confusion curves calibration classes mistakes balance data recipe "
        "environment"
    )
    assert {link["href"] for link in page.all("a")} == {f"#{name}" for name in page.ids()[1:]}
    assert len(page.all("svg")) == 5
    assert "nan" not in page.text.lower().split()
    assert len(page.source) < 500_000
    assert_self_contained(page)


@pytest.mark.parametrize("classes", [2, 5, 30])
def test_hostile_names_stay_text(render, classes):
    page = render(
        classes,
        hostile=True,
        dataset={
            "name": HOSTILE,
            "rejected": {"count": 1, "reasons": {HOSTILE: 1}, "file": HOSTILE},
            "creation": {HOSTILE: HOSTILE, "options": {HOSTILE: [HOSTILE]}},
        },
        title=HOSTILE,
        details={HOSTILE: HOSTILE, "list": [HOSTILE], "object": {HOSTILE: HOSTILE}},
        training={**TRAINING, "model": HOSTILE, "stopped_phases": [HOSTILE], "strategy": HOSTILE},
    )
    assert page.open == []
    assert_self_contained(page)
    assert page.text.count(HOSTILE) >= 10
    assert HOSTILE in page.words  # a name, whole and as it was


def test_pictures_leave_the_page_below_its_limit(render, evaluated):
    mistake, random = evaluated()[0].worst[0], np.random.default_rng(0)
    noise = [random.integers(0, 256, (299, 299, 3), np.uint8) for _ in range(24)]
    noisy = [dataclasses.replace(mistake, picture=picture) for picture in noise]
    assert len(render(evaluation={"worst": noisy}).source) < 1_500_000


def test_page_is_reproducible_and_matplotlib_unchanged(render, drawings):
    before = dict(mpl.rcParams)
    page = render()
    drawings.clear()
    assert render().source == page.source
    assert dict(mpl.rcParams) == before


def test_undecodable_file_name_is_replaced(render, evaluated):
    odd = dataclasses.replace(evaluated()[0].worst[0], key="photo-\udce9.jpg")
    assert "photo-?.jpg" in render(evaluation={"worst": [odd]}).text


def test_page_takes_a_small_part_of_a_short_run(render, evaluated, drawings):
    evaluated(10, right=0.9)
    drawings.clear()
    started = time.process_time()
    render(10, right=0.9)
    assert time.process_time() - started < 3


def test_baseline_overfitting_and_slow_input_are_named(render):
    text = render(right=0.0).text
    assert "Not reliably better than always answering" in text
    assert "Overfitting: 99.0% right in training, 80.0% in validation." in text
    text = render(10, right=1.0, training={**TRAINING, "train": {"accuracy": 0.8}}).text
    assert "Every example of every class was recognized." in text
    assert "Overfitting" not in text
    # The records hold raw pixels already.
    words = "40% of the time. Unless other programs kept the machine busy, faster storage"
    assert f"Training waited for input {words}" in text


@pytest.mark.parametrize(("examples", "is_named"), [(20, False), (2000, True)])
def test_gap_of_a_small_validation_split_is_no_overfitting(render, evaluated, examples, is_named):
    splits = evaluated()[1].splits
    shards = [dataclasses.replace(splits["test"].shards[0], examples=examples)]
    splits = {**splits, "validation": dataclasses.replace(splits["test"], shards=shards)}
    training = {**TRAINING, "train": {"accuracy": 0.92}, "validation": {"accuracy": 0.85}}
    page = render(dataset={"splits": splits}, training=training)
    assert ("Overfitting" in page.text) == is_named


@pytest.mark.parametrize(
    ("accuracy", "examples", "is_named"),
    [(0.7, 400, True), (0.7, 20, False), (0.95, 400, False), (None, 400, False)],
)
def test_slice_that_fails_by_more_than_chance_is_named(render, accuracy, examples, is_named):
    figures = {"accuracy": accuracy, "positive_rate": 0.3, "roc_auc": 0.5}
    part = Slice(name="card", examples=examples, figures=figures)
    cut = Slices(column="payment", by="by value", slices=[part], compared=1)
    text = render(evaluation={"metrics": {"accuracy": Estimate(0.9, 0.8, 1)}, "slices": [cut]}).text
    words = "Weakest where payment is card : 70.0% of 400 examples right; a constant answer"
    assert (words in text) == ("Weakest where" in text) == is_named
    assert ("would get 70.0%" in text) == is_named


def test_class_without_answers_is_not_the_least_reliable(render, evaluated):
    rows = evaluated()[0].per_class
    unasked = dataclasses.replace(rows[0], predicted=0, right=0, precision=0.0, recall=0.0, f1=0.0)
    poor = dataclasses.replace(rows[1], predicted=8, right=2, precision=0.25)
    fitted = {**TRAINING, "train": {"accuracy": 0.8}}
    metrics = {"accuracy": Estimate(0.7, 0.66, 0.74), "expected_calibration_error": 0.0}
    text = render(
        evaluation={"metrics": metrics, "per_class": [unasked, poor, *rows[2:]]}, training=fitted
    ).text
    assert "The weakest class is class-0 : 0 of" in text
    assert 'Precision is lowest for " class-1 ": 2 of 8.' in text
    never = [dataclasses.replace(row, predicted=0, precision=0.0) for row in rows]
    text = render(evaluation={"metrics": metrics, "per_class": never}, training=fitted).text
    assert "The most common mistake" in text and "Precision is lowest" not in text


@pytest.mark.parametrize(
    ("right", "support", "is_warning"),
    [(0, 27, True), (0, 2, True), (12, 40, True), (4, 10, False)],
)
def test_class_that_is_mostly_missed_is_a_warning(render, evaluated, right, support, is_warning):
    rows = evaluated(10, right=1.0)[0].per_class
    missed = dataclasses.replace(rows[3], support=support, right=right, recall=right / support)
    page = render(10, right=1.0, evaluation={"per_class": [*rows[:3], missed, *rows[4:]]})
    bullet = next(line for line in page.source.split("<li") if "The weakest class is" in line)
    assert f"{right} of {support} recognized" in page.text
    assert ("warn" in bullet.partition(">")[0]) == is_warning


def test_equal_examples_of_different_labels_are_named(render):
    assert "Equal examples with" not in render().text
    contradictions = {"count": 3, "first": [["cat/1.png (cat)", "dog/<2>.png (dog)"]]}
    text = render(dataset={"creation": {"contradictions": contradictions}}).text
    assert "different labels: 3 pairs, such as cat/1.png (cat) = dog/<2>.png (dog) ." in text


def test_nearly_empty_column_is_named(render, evaluated):
    features = [*evaluated()[1].features]
    for name, share in (("tract", 0.999), ("company", 0.3)):
        statistics = {"missing": {"train": share}}
        features.append(dataclasses.replace(features[0], name=name, statistics=statistics))
    text = render(dataset={"features": features}).text
    assert "tract is missing in 99.9% of the training rows" in text
    assert "company has no value" not in text


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize(("area", "is_named"), [(0.95, True), (0.7, False)])
def test_column_nearly_as_good_as_the_model_is_named(render, evaluated, classes, area, is_named):
    areas = {"tip": area, "noise": 0.5}
    rows = [dataclasses.replace(row, roc_auc=0.96) for row in evaluated(classes)[0].per_class]
    # A rare class that the model can't tell.
    rows[-1] = dataclasses.replace(rows[-1], support=0, recall=None, roc_auc=None)
    figures = {"metrics": {"roc_auc": 0.96}, "per_class": rows, "column_areas": areas}
    text = render(classes, evaluation=figures).text
    words = "tip alone predicts the label almost as well as the model: ROC AUC 0.950 against 0.960"
    assert (words in text) == ("almost as well" in text) == is_named
