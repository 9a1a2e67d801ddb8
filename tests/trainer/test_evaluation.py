"""Evaluation: metrics, curves, mistakes and progress of models whose answers are known."""

import csv
import functools
import json
import math
import random

import numpy as np
import pytest
from sklearn import metrics

from tests import small_records, tables
from tests.trainer.report_samples import probabilities_of, write_model, write_records
from trainer.data.tables.inputs import parse_rows
from trainer.evaluation import prediction, prediction_file
from trainer.evaluation.prediction import read_stored_batches
from trainer.evaluation.scoring import evaluate
from trainer.metrics.classifier import THRESHOLDS, operating_points
from trainer.metrics.disk_columns import ColumnValues, DiskColumns
from trainer.metrics.leakage import compute_column_aucs
from trainer.metrics.metric import Estimate
from trainer.metrics.worst_examples import WorstExamples
from trainer.tasks import class_answers


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """Return a function that evaluates a model whose probabilities are `pixels`' shares."""

    @functools.cache
    def model(classes: int) -> str:
        return write_model(tmp_path_factory.mktemp("model") / str(classes), names(classes))

    def judge(labels, pixels):
        folder, classes = tmp_path_factory.mktemp("records"), pixels.shape[1]
        write_records(folder, names(classes), labels, pixels)
        return evaluate(model(classes), str(folder))

    return judge


def names(classes: int) -> list[str]:
    return [f"c{index}" for index in range(classes)]


def sample(seed: int, n: int, classes: int, absent=()):
    """Draw labels and coarse pixels (many ties), better than chance."""
    random = np.random.default_rng(seed)
    labels = random.choice([index for index in range(classes) if index not in absent], n)
    pixels = random.integers(1, 6, (n, classes))
    pixels[np.arange(n), labels] += random.integers(0, 3, n)
    return labels, pixels.astype(np.uint8)


@pytest.mark.parametrize(
    ("classes", "absent"), [(2, ()), (3, ()), (4, (1,)), (7, ()), (12, (0, 11))]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_metric_equals_its_definition(judge, classes, absent, seed):
    n = 301  # more than a batch
    labels, pixels = sample(seed, n, classes, absent)
    evaluation = judge(labels, pixels)
    probabilities = probabilities_of(pixels).astype(float)
    guesses = probabilities.argmax(axis=1)  # the first of equals
    hits = guesses == labels

    assert evaluation.examples == n
    assert evaluation.metrics["accuracy"].value == pytest.approx(hits.mean())
    for bound in (evaluation.metrics["accuracy"].low, evaluation.metrics["accuracy"].high):
        # Wilson's bounds are where the score test's statistic is exactly the 97.5% quantile.
        z = abs(evaluation.metrics["accuracy"].value - bound) / math.sqrt(bound * (1 - bound) / n)
        assert z == pytest.approx(1.959964, abs=1e-5)
    k = {2: None, 3: None, 4: 3, 7: 5, 12: 5}[classes]
    assert [evaluation.metrics[f"top_{n}_accuracy"] is None for n in (3, 5)] == [k != 3, k != 5]
    if k:
        ranked = np.argsort(-pixels.astype(int), axis=1, kind="stable")[:, :k]
        expected = (ranked == labels[:, None]).any(axis=1).mean()
        assert evaluation.scalars()[f"top_{k}_accuracy"] == pytest.approx(expected)
    every = list(range(classes))
    log_loss = -np.log(probabilities[np.arange(n), labels]).mean()
    assert evaluation.metrics["log_loss"] == pytest.approx(log_loss, rel=1e-5)
    squares = ((probabilities - np.eye(classes)[labels]) ** 2).sum() / n
    assert evaluation.metrics["brier_score"] == pytest.approx(
        squares / (1 + (classes == 2)), rel=1e-5
    )

    confidence = probabilities.max(axis=1)
    bins = np.minimum(14, np.ceil(confidence * 15).astype(int) - 1)
    error = np.abs(np.bincount(bins, confidence - hits)).sum() / n
    assert evaluation.metrics["expected_calibration_error"] == pytest.approx(error, abs=1e-6)
    counts = np.bincount(bins, minlength=15).tolist()
    assert [bin.count for bin in evaluation.sums.calibration] == counts

    matrix = metrics.confusion_matrix(labels, guesses, labels=every)
    assert evaluation.sums.confusion.tolist() == matrix.tolist()
    baseline = matrix.sum(axis=1).max() / n
    assert evaluation.scalars()["baseline_accuracy"] == pytest.approx(baseline)

    shares = {"labels": every, "zero_division": 0}
    singles, scores = metrics.precision_recall_fscore_support(labels, guesses, **shares), []
    for index, row in enumerate(evaluation.per_class):
        *single, support = (values[index] for values in singles)
        assert (row.support, row.predicted) == (support, matrix[:, index].sum())
        row_values = [row.precision, row.recall, row.f1, row.roc_auc, row.pr_auc]
        if index in absent:
            assert row_values == [None] * 5
            continue
        for area in (metrics.roc_auc_score, metrics.average_precision_score):
            single.append(area(labels == index, probabilities[:, index]))
        assert row_values == pytest.approx(single, abs=1e-6)
        scores.append(single)
    means = np.mean(scores, axis=0)
    if classes == 2:
        means[3:] = scores[1][3:]
    row_values = [
        evaluation.metrics["precision"],
        evaluation.metrics["recall"],
        evaluation.metrics["f1"],
    ]
    row_values += [evaluation.metrics["roc_auc"], evaluation.metrics["pr_auc"]]
    assert row_values == pytest.approx(means.tolist(), abs=1e-6)
    assert np.isfinite(list(evaluation.scalars().values())).all()
    json.dumps(evaluation.registry_metrics(), allow_nan=False)


def test_split_of_one_class_has_neither_area_nor_curve(judge):
    evaluation = judge(np.zeros(4, int), np.full((4, 2), 7, np.uint8))
    assert evaluation.metrics["accuracy"] == Estimate(1, pytest.approx(0.5101, abs=1e-4), 1)
    assert evaluation.worst == []
    assert evaluation.metrics["roc_auc"] is None and evaluation.metrics["pr_auc"] is None
    assert evaluation.sums.rankings == [None, None] and evaluation.sums.curves() == ([], [])
    assert "roc_auc" not in evaluation.scalars()


def test_thinned_roc_curve_of_two_classes_keeps_its_area(judge):
    random = np.random.default_rng(5)
    labels = random.integers(0, 2, 3000)
    pixels = random.integers(1, 200, (3000, 2)).astype(np.uint8)
    pixels[np.arange(3000), labels] += 50
    evaluation = judge(labels, pixels)
    curve = evaluation.sums.rankings[1].roc
    assert 100 < len(curve.fpr) == len(curve.tpr) == len(curve.thresholds) <= 200
    assert all(map(math.isfinite, curve.thresholds))
    assert curve.thresholds == sorted(curve.thresholds, reverse=True)
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(
        evaluation.metrics["roc_auc"], abs=2e-3
    )
    score = probabilities_of(pixels)[:, 1]
    for fpr, tpr, threshold in list(zip(*curve, strict=True))[1:-1:20]:
        taken = score >= threshold
        assert fpr == pytest.approx(taken[labels == 0].mean())
        assert tpr == pytest.approx(taken[labels == 1].mean())


def test_more_than_ten_classes_have_curves_of_mean_and_worst(judge):
    assert len(judge(*sample(4, 300, 10)).sums.curves()[0]) == 10
    evaluation = judge(*sample(4, 300, 12))
    by_area = sorted(evaluation.per_class, key=lambda row: row.roc_auc)
    roc_curves, pr_curves = evaluation.sums.curves()
    assert [curve.name for curve in roc_curves] == ["", *[r.name for r in by_area[:4]]]
    for curve in pr_curves[1:]:
        # A precision holds from the recall before it: the steps add up to average precision.
        assert np.sum(np.diff(curve.x) * curve.y[1:]) == pytest.approx(curve.area)
    mean = roc_curves[0]
    assert mean.area == pytest.approx(evaluation.metrics["roc_auc"])
    assert np.trapezoid(mean.y, mean.x) == pytest.approx(mean.area, abs=5e-3)


def test_the_24_most_confident_mistakes_are_kept(judge):
    labels, pixels = sample(7, 600, 4)
    evaluation = judge(labels, pixels)
    confidence = probabilities_of(pixels).max(axis=1)
    wrong = np.flatnonzero(pixels.argmax(axis=1) != labels)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    assert len(wrong) > len(evaluation.worst) == 24
    for index, mistake in zip(wrong, evaluation.worst, strict=False):
        assert mistake.key == f"example-{index:04}"
        assert mistake.figures["label"] == f"c{labels[index]}"
        assert mistake.figures["predicted"] == f"c{pixels[index].argmax()}"
        assert mistake.figures["confidence"] == confidence[index]
        assert mistake.picture.ravel().tolist() == pixels[index].tolist()


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_mistakes_are_decoded_from_jpeg(tmp_path, channels):
    picture = np.full((16, 24, channels), 200, np.uint8)
    picture[:, :12] = 30
    shards = [(image[None], np.array([0])) for image in (picture // 4, picture // 4, picture)]
    dataset = small_records.write_records(tmp_path, {"test": shards}, names(2), encoding="jpeg")
    answers = np.array([[1, 0], [1, 0], [0.1, 0.9]], np.float32)
    candidates = WorstExamples(5)
    for batch in read_stored_batches(dataset, "test", 2):
        badness = np.where(answers.argmax(axis=1), answers.max(axis=1), 0)[: len(batch)]
        candidates.add(batch, badness, {})
        answers = answers[len(batch) :]
    (mistake,) = candidates.list_examples(dataset)
    assert mistake.key == "test/2/0"
    assert mistake.picture.shape == picture.shape
    assert np.abs(mistake.picture.astype(int) - picture).max() < 10


def test_progress_ends_with_the_number_of_examples(judge, monkeypatch, capsys):
    monkeypatch.setattr(prediction, "_LINE_SECONDS", 0.0)
    judge(*sample(8, 30, 3))
    *others, last = capsys.readouterr().out.splitlines()
    assert [line.partition(" examples")[0] for line in others] == ["evaluate_model: 30/30 test"]
    assert last.startswith("Evaluated 30 test examples in ")


def test_predictions_hold_the_probability_of_each_class(judge, tmp_path, monkeypatch, capsys):
    labels, pixels = sample(3, 40, 4)
    evaluation, classes = judge(labels, pixels), ["a,b", 'c"d', "e", "f"]
    evaluation.answers.names, evaluation.answers.classes = np.array(classes), classes
    capsys.readouterr()
    for most, columns in ((160, classes), (159, [])):
        monkeypatch.setattr(class_answers, "MOST_PROBABILITIES", most)
        path = tmp_path / "predictions.csv"
        prediction_file.write(str(path), evaluation.answers)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        shown = [f"probability_{name}" for name in columns]
        assert list(rows[0]) == ["key", "label", "prediction", "log_loss", *shown]
        values = [[float(row[name]) for name in shown] for row in rows]
        expected = probabilities_of(pixels)[:, : len(columns)]
        np.testing.assert_array_equal(np.array(values, np.float32), expected)
        examples, _, scores = prediction_file.parse(path.read_bytes())
        assert examples["label"].to_pylist() == [classes[label] for label in labels]
        assert scores.losses.mean() == pytest.approx(evaluation.metrics["log_loss"])
    assert capsys.readouterr().out == "predictions.csv holds no probabilities: more than 159\n"


def test_operating_points_are_micro_averages():
    labels = np.array([0, 1, 2, 2])
    answers = np.array(
        [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.0, 0.0, 1.0], [0.3, 0.35, 0.35]], np.float32
    )
    parts = slice(3), slice(3, None)
    blocks = [(labels[part], answers[part], np.ones(len(labels[part]))) for part in parts]
    points = dict(zip(THRESHOLDS, operating_points(blocks), strict=True))
    assert [point["confidenceThreshold"] for point in points.values()] == list(points)
    half, zero = points[0.5], points[0.0]
    # Three answers of at least 0.5, two of them right; the fourth example has none.
    assert (half["precision"], half["recall"]) == (pytest.approx(2 / 3), 0.5)
    assert half["f1Score"] == pytest.approx(4 / 7)
    assert half["falsePositiveRate"] == pytest.approx(1 / 8)
    # At 0 every class is an answer, but each example has one first answer.
    assert (zero["precision"], zero["recall"]) == (pytest.approx(1 / 3), 1)
    assert (zero["precisionAt1"], zero["recallAt1"]) == (0.5, 0.5)


COLUMNS = [
    {"name": "tip", "type": "numeric"},
    {"name": "noise", "type": "numeric"},
    {"name": "kind", "type": "vocabulary", "size": 3},
    {"name": "ticket", "type": "hashed", "buckets": 1000},
]


def read_columns(dataset):
    values = ColumnValues(dataset, "train")
    labels = DiskColumns(values.rows, {"label": np.int32})
    for batch in read_stored_batches(dataset, "train", 512):
        values.add(batch)
        labels.append({"label": parse_rows(batch, dataset)[1]})
    return values, labels


@pytest.mark.parametrize("classes", [3, 14])
def test_each_column_alone_has_the_mean_area_of_many_classes(tmp_path, classes):
    generator = random.Random(0)
    rows = []
    for number in range(3000):
        label = generator.randrange(classes)
        tip = label + generator.uniform(0, 0.9) if generator.random() < 0.8 else -1
        kind = "abc"[min(label, 2)]
        rows.append(f"{tip:.3f},{generator.random():.3f},{kind},t{number},class {label}")
    table = tables.write_csv(tmp_path / "t.csv", rows, "tip,noise,kind,ticket,type")
    label = {"column": "type"}
    dataset = tables.write(table, tmp_path / "r", columns=COLUMNS, crosses=[], label=label)
    areas = compute_column_aucs(*read_columns(dataset), classes)
    # A fifth of the rows have no tip: 0.8 + 0.2 * (0.8 + 0.2 / 2).
    assert areas["tip"] == pytest.approx(0.98, abs=0.01)
    for name in ("noise", "ticket"):
        assert areas[name] == pytest.approx(0.5, abs=0.03)
    # Two of the classes have a value of their own, which is no information about the others.
    assert areas["kind"] == pytest.approx(1 if classes == 3 else 0.62, abs=0.05)


def test_each_column_alone_has_its_area(tmp_path):
    generator = random.Random(0)
    rows = []
    for number in range(2400):
        big = generator.random() < 0.4
        # Neither high nor low but in the middle: no area of the raw number would show it.
        tip = generator.uniform(4, 6) if big else generator.choice([1.0, 9.0])
        kind = "card" if big or generator.random() < 0.2 else "cash"
        rows.append(f"{tip:.2f},{generator.random():.3f},{kind},t{number},{'yes' if big else 'no'}")
    table = tables.write_csv(tmp_path / "t.csv", rows, "tip,noise,kind,ticket,big")
    label = {"column": "big"}
    dataset = tables.write(table, tmp_path / "r", columns=COLUMNS, crosses=[], label=label)
    areas = compute_column_aucs(*read_columns(dataset), 2)
    assert areas["tip"] > 0.99
    assert areas["kind"] == pytest.approx(0.9, abs=0.03)
    assert areas["noise"] == pytest.approx(0.5, abs=0.05)
    assert areas["ticket"] == pytest.approx(0.5, abs=0.05)  # Each is seen once.
