import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from components.registry.model_evaluation import classification_metrics
from tests.trainer.report_samples import probabilities_of, write_model, write_records
from trainer.data.schema import Feature
from trainer.evaluation import prediction
from trainer.evaluation.mistakes import MostConfident
from trainer.evaluation.prediction import stored_batches
from trainer.evaluation.scoring import evaluate


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """PixelModel of n classes named c0, c1, ...; built once a size."""
    built = {}

    def model(classes: int) -> str:
        if classes not in built:
            folder = tmp_path_factory.mktemp("model") / str(classes)
            built[classes] = write_model(folder, names(classes))
        return built[classes]

    return model


def names(classes: int) -> list[str]:
    return [f"c{index}" for index in range(classes)]


def sample(seed: int, n: int, classes: int, absent=(), levels: int = 6):
    """Labels and coarse pixels (many ties), better than chance."""
    random = np.random.default_rng(seed)
    present = [index for index in range(classes) if index not in absent]
    labels = random.choice(present, n)
    pixels = random.integers(1, levels, (n, classes))
    pixels[np.arange(n), labels] += random.integers(0, 3, n)
    return labels, pixels.astype(np.uint8)


def run(models, folder, labels, pixels):
    classes = pixels.shape[1]
    write_records(folder, names(classes), labels, pixels)
    return evaluate(models(classes), str(folder))


def area_by_pairs(positive, score):
    """Chance that a positive scores above a negative, ties half: the ROC area's definition."""
    pairs = list(itertools.product(score[positive], score[~positive]))
    return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)


def average_precision(positive, score):
    """Sum over distinct thresholds of precision times the gain in recall."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(score), reverse=True):
        taken = score >= threshold
        recall = (positive & taken).sum() / positive.sum()
        total += (recall - before) * (positive & taken).sum() / taken.sum()
        before = recall
    return total


@pytest.mark.parametrize(
    ("classes", "absent"), [(2, ()), (3, ()), (4, (1,)), (7, ()), (12, (0, 11))]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_every_metric_equals_its_definition(models, tmp_path, classes, absent, seed):
    n = 301  # more than a batch
    labels, pixels = sample(seed, n, classes, absent)
    evaluation = run(models, tmp_path, labels, pixels)
    given = probabilities_of(pixels)
    guesses = [int(np.flatnonzero(row == row.max())[0]) for row in given]
    hits = [guess == label for guess, label in zip(guesses, labels, strict=True)]
    present = [index for index in range(classes) if index not in absent]

    assert evaluation.examples == n
    assert evaluation.accuracy == pytest.approx(sum(hits) / n)
    k = {2: None, 3: None, 4: 3, 7: 5, 12: 5}[classes]
    assert evaluation.top_k == k
    if k:
        ranked = [np.argsort(-row, kind="stable")[:k] for row in pixels.astype(int)]
        expected = np.mean([label in row for label, row in zip(labels, ranked, strict=True)])
        assert evaluation.top_k_accuracy == pytest.approx(expected)
    own = [float(row[label]) for row, label in zip(given, labels, strict=True)]
    assert evaluation.log_loss == pytest.approx(-sum(map(math.log, own)) / n, rel=1e-5)
    squares = [
        sum((float(p) - (index == label)) ** 2 for index, p in enumerate(row))
        for row, label in zip(given, labels, strict=True)
    ]
    assert evaluation.brier_score == pytest.approx(
        sum(squares) / n / (2 if classes == 2 else 1), rel=1e-5
    )

    bins = [[] for _ in range(15)]
    for row, hit in zip(given, hits, strict=True):
        bins[min(14, math.ceil(float(row.max()) * 15) - 1)].append((float(row.max()), hit))
    error = sum(abs(sum(c for c, _ in one) - sum(h for _, h in one)) for one in bins) / n
    assert evaluation.expected_calibration_error == pytest.approx(error, abs=1e-6)
    assert [one.count for one in evaluation.calibration] == [len(one) for one in bins]

    matrix = [
        [
            sum(1 for guess, label in zip(guesses, labels, strict=True) if (label, guess) == cell)
            for cell in itertools.product([true], range(classes))
        ]
        for true in range(classes)
    ]
    assert evaluation.confusion_matrix == matrix

    scores = []
    for index, row in enumerate(evaluation.per_class):
        support, predicted = sum(matrix[index]), sum(line[index] for line in matrix)
        assert (row.support, row.predicted) == (support, predicted)
        if index in absent:
            assert {row.precision, row.recall, row.f1, row.roc_auc, row.pr_auc} == {None}
            continue
        right = matrix[index][index]
        precision, recall = right / predicted if predicted else 0, right / support
        f1 = 2 * right / (support + predicted)
        roc = area_by_pairs(labels == index, given[:, index])
        pr = average_precision(labels == index, given[:, index])
        scores.append([precision, recall, f1, roc, pr])
        found = [row.precision, row.recall, row.f1, row.roc_auc, row.pr_auc]
        assert found == pytest.approx(scores[-1], abs=1e-6)
    means = np.mean(scores, axis=0)
    if classes == 2:
        means[3:] = scores[1][3:]
    found = [evaluation.precision, evaluation.recall, evaluation.f1]
    found += [evaluation.roc_auc, evaluation.pr_auc]
    assert found == pytest.approx(means.tolist(), abs=1e-6)
    most = max(sum(line) for line in matrix)
    assert evaluation.baseline_accuracy == pytest.approx(most / n)
    assert len(present) == sum(row.recall is not None for row in evaluation.per_class)


def test_the_interval_holds_every_accuracy_that_a_score_test_would_not_refuse(models, tmp_path):
    labels, pixels = sample(3, 40, 3)
    evaluation = run(models, tmp_path, labels, pixels)
    low, high = evaluation.accuracy_interval
    # Wilson's bounds are where the score test's statistic is exactly the 97.5% quantile.
    for bound in (low, high):
        z = abs(evaluation.accuracy - bound) / math.sqrt(bound * (1 - bound) / 40)
        assert z == pytest.approx(1.959964, abs=1e-5)


def test_no_mistake_gives_an_interval_that_still_admits_some(models, tmp_path):
    labels = np.array([0, 1, 0, 1])
    evaluation = run(models, tmp_path, labels, np.eye(2, dtype=np.uint8)[labels] * 255)
    assert evaluation.accuracy == 1
    assert evaluation.accuracy_interval == (pytest.approx(0.5101, abs=1e-4), 1)
    assert evaluation.mistakes == []


def test_the_roc_curve_of_two_classes_is_short_and_finite_and_keeps_its_area(models, tmp_path):
    random = np.random.default_rng(5)
    labels = random.integers(0, 2, 3000)
    pixels = random.integers(1, 200, (3000, 2)).astype(np.uint8)
    pixels[np.arange(3000), labels] += 50
    evaluation = run(models, tmp_path, labels, pixels)
    curve = evaluation.roc
    assert curve is not None
    assert 100 < len(curve.fpr) == len(curve.tpr) == len(curve.thresholds) <= 200
    assert all(map(math.isfinite, curve.thresholds))
    assert curve.thresholds == sorted(curve.thresholds, reverse=True)
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(evaluation.roc_auc, abs=2e-3)
    score = probabilities_of(pixels)[:, 1]
    for fpr, tpr, threshold in list(zip(*curve, strict=True))[1:-1:20]:
        taken = score >= threshold
        assert fpr == pytest.approx((taken & (labels == 0)).sum() / (labels == 0).sum())
        assert tpr == pytest.approx((taken & (labels == 1)).sum() / (labels == 1).sum())


def test_a_curve_is_kept_for_every_class_up_to_ten_and_then_for_the_mean_and_the_worst(
    models, tmp_path
):
    labels, pixels = sample(4, 300, 10)
    assert len(run(models, tmp_path / "ten", labels, pixels).roc_curves) == 10
    labels, pixels = sample(4, 300, 12)
    evaluation = run(models, tmp_path / "twelve", labels, pixels)
    by_area = sorted(evaluation.per_class, key=lambda row: row.roc_auc)
    assert [curve.name for curve in evaluation.roc_curves] == ["", *[r.name for r in by_area[:4]]]
    for curve in evaluation.pr_curves[1:]:
        # A precision holds from the recall before it: the steps add up to average precision.
        assert np.sum(np.diff(curve.x) * curve.y[1:]) == pytest.approx(curve.area)
    mean = evaluation.roc_curves[0]
    assert mean.area == pytest.approx(evaluation.roc_auc)
    assert np.trapezoid(mean.y, mean.x) == pytest.approx(mean.area, abs=5e-3)
    assert evaluation.roc is None


def test_a_split_with_one_class_alone_has_no_area_and_no_curve(models, tmp_path):
    labels = np.zeros(5, int)
    evaluation = run(models, tmp_path, labels, np.full((5, 2), 7, np.uint8))
    assert evaluation.accuracy == 1
    assert evaluation.roc_auc is None and evaluation.pr_auc is None
    assert evaluation.roc is None and evaluation.roc_curves == []
    assert "roc_auc" not in evaluation.scalars()


def test_a_class_without_examples_has_no_figures_and_no_nan(models, tmp_path):
    labels, pixels = sample(6, 50, 4, absent=(2,))
    evaluation = run(models, tmp_path, labels, pixels)
    assert evaluation.per_class[2].recall is None
    assert all(np.isfinite(value) for value in evaluation.scalars().values())
    json.dumps(classification_metrics(evaluation), allow_nan=False)
    assert evaluation.scalars()["top_3_accuracy"] == evaluation.top_k_accuracy


def test_mistakes_are_the_most_confident_ones_with_their_keys_and_pictures(models, tmp_path):
    labels, pixels = sample(7, 600, 4)
    evaluation = run(models, tmp_path, labels, pixels)
    given = probabilities_of(pixels)
    wrong = [i for i in range(600) if int(pixels[i].argmax()) != labels[i]]
    wrong.sort(key=lambda i: (-given[i].max(), i))
    assert len(wrong) > len(evaluation.mistakes) == 24
    for index, mistake in zip(wrong, evaluation.mistakes, strict=False):
        assert mistake.key == f"example-{index:04}"
        assert mistake.label == f"c{labels[index]}"
        assert mistake.predicted == f"c{pixels[index].argmax()}"
        assert mistake.confidence == given[index].max()
        assert mistake.picture.ravel().tolist() == pixels[index].tolist()


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_of_mistakes_are_decoded_from_jpeg(tmp_path, channels):
    picture = np.full((16, 24, channels), 200, np.uint8)
    picture[:, :12] = 30
    dark, light = (
        tf.io.encode_jpeg(image, quality=95).numpy() for image in (picture // 4, picture)
    )
    image = Feature(
        name="image", kind="image", dtype="uint8", shape=[16, 24, channels], encoding="jpeg"
    )
    dataset = write_records(
        tmp_path, names(2), [0, 0, 0], np.zeros((3, 2)), images=[dark, dark, light], shards=3
    )
    dataset = dataclasses.replace(dataset, features=[image, *dataset.features[1:]])
    answers = np.array([[1, 0], [1, 0], [0.1, 0.9]], np.float32)
    candidates = MostConfident(5)
    for records in stored_batches(dataset, "test", 2):
        candidates.add(records, np.zeros(len(records), int), answers[: len(records)])
        answers = answers[len(records) :]
    (mistake,) = candidates.mistakes(dataset)
    assert mistake.key == "example-0002"
    assert mistake.picture.shape == picture.shape
    assert np.abs(mistake.picture.astype(int) - picture).max() < 10


def test_progress_ends_with_the_number_of_examples(models, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prediction, "_PROGRESS_SECONDS", 0.0)
    labels, pixels = sample(8, 30, 3)
    write_records(tmp_path, names(3), labels, pixels)
    evaluate(models(3), str(tmp_path))
    *others, line = capsys.readouterr().out.splitlines()
    assert [one.partition(" examples, ")[0] for one in others] == ["evaluate_model: 30/30 test"]
    assert line.startswith("Evaluated 30 test examples in ")
