"""Weights of rows: in the loss of training, and in the metrics of every split."""

import dataclasses
import random

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests import tables
from tests.refusals import refused
from tests.trainer.data.picture_folders import rejected
from tests.trainer.training_runs import export_and_evaluate, train
from trainer.data.read.input_share import InputShare
from trainer.data.read.reader import read_evaluation_batches
from trainer.evaluation import prediction_file
from trainer.metrics.comparison import Pairs, compare
from trainer.metrics.disk_columns import ColumnValues
from trainer.metrics.intervals import Share
from trainer.tasks import task_of
from trainer.training.steps import make_validation

DESCRIBED = {
    "columns": [{"name": "size", "type": "numeric"}],
    "crosses": [],
    "label": {"column": "kind"},
    "weight_column": "trust",
}
OPTIONS = {"model": "wide_and_deep", "batch_size": 32, "learning_rate": 0.01, "epochs": 4}


def lines(count: int) -> list[str]:
    """Rows whose kind is the sign of the size; two thirds of the labels are wrong, and marked."""
    generator = random.Random(0)
    made = []
    for _ in range(count):
        size, wrong = generator.gauss(0, 1), generator.random() < 2 / 3
        trust = 0 if wrong else generator.choice([1, 2.5])
        made.append(f"{size:.4f},{'ab'[(size > 0) != wrong]},{trust}")
    return made


def write(folder, rows, **changes):
    table = tables.write_csv(folder / "t.csv", rows, "size,kind,trust")
    return tables.write(table, folder / "records", **{**DESCRIBED, **changes})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write(tmp_path_factory.mktemp("weighted"), lines(3000))


@pytest.mark.slow
def test_rows_count_by_their_weight(dataset, tmp_path):
    trained = train(dataset, tmp_path, **OPTIONS)
    evaluation = export_and_evaluate(dataset, tmp_path, trained.model)
    assert evaluation.headline[1] > 0.95
    # Two of three labels are wrong.
    assert sum(row.right for row in evaluation.per_class) < 0.4 * evaluation.examples
    prediction_file.write(str(tmp_path / "predictions.csv"), evaluation.answers)
    stored = prediction_file.parse((tmp_path / "predictions.csv").read_bytes()).scores
    assert np.average(stored.correct, weights=stored.weights) == pytest.approx(
        evaluation.headline[1]
    )
    share = InputShare(batch_size=50)
    found = make_validation(trained.task_model, share)()
    assert found["accuracy"] > 0.95
    logits, labels, weights = [], [], []
    for inputs, label, weight in read_evaluation_batches(dataset, "validation", share):
        logits.append(trained.model(inputs))
        labels.append(label)
        weights.append(weight)
        if sum(map(len, labels)) >= dataset.splits["validation"].examples:
            break
    labels, weights = np.concatenate(labels), np.concatenate(weights)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, np.concatenate(logits))
    assert found["loss"] == pytest.approx(np.average(losses, weights=weights), rel=1e-4)


def test_weights_are_one_on_average(dataset):
    stored = {
        round(weight, 4): weight
        for _, _, batch in read_evaluation_batches(dataset, "train", InputShare(batch_size=64))
        for weight in batch.numpy().tolist()
    }
    mean = dataset.feature("weight").statistics["mean"]
    assert sorted(stored) == pytest.approx([0, 1 / mean, 2.5 / mean], abs=1e-4)
    assert [one.name for one in dataset.features] == ["size", "sample_weight", "label", "key"]


def test_rows_with_unusable_weights_are_rejected(tmp_path):
    rows = [*lines(200), "1,a,-2", "1,a,", "1,a,much"]
    write(tmp_path, rows, max_rejected_fraction=0.1)
    assert rejected(tmp_path / "records") == {
        "t.csv:202": "weight trust is below 0: -2",
        "t.csv:203": "no weight, trust is missing",
        "t.csv:204": "trust is not a number: 'much'",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_column": "size"}, "weight_column='size' is also a column of the label, of split"),
        ({"weight_column": "gone"}, "has no column 'gone'"),
        ({"weight_column": "none"}, "weight column 'none' is 0 in all training rows"),
        (
            {"source": "digits", "columns": [], "label": {}},
            "has an effect only with a source of rows",
        ),
    ],
)
def test_unusable_weights_are_refused(tmp_path, changes, message):
    table = tables.write_csv(
        tmp_path / "t.csv", [f"{row},0" for row in lines(99)], "size,kind,trust,none"
    )
    options = {"source": f"csv:{table}", **DESCRIBED, **changes}
    assert message in refused(tables.write, table, tmp_path / "records", **options)


def answer_classes(generator, n):
    labels = generator.integers(0, 3, n)
    logits = generator.normal(size=(n, 3)) + np.eye(3)[labels]
    probabilities = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    names = np.array([b"a", b"b", b"c"])[probabilities.argmax(axis=1)]
    return labels, {"probabilities": probabilities, "label": names}


def answer_labels(generator, n):
    labels = (generator.random((n, 3)) < 0.3).astype(np.int64)
    probabilities = np.clip(0.3 + 0.4 * labels + generator.normal(0, 0.2, (n, 3)), 0, 1)
    given = np.where(probabilities > 0.5, [b"a", b"b", b"c"], b"")
    return labels, {"probabilities": probabilities.astype(np.float32), "labels": given}


def answer_numbers(generator, n):
    labels = generator.normal(10, 2, n).astype(np.float32)
    values = labels + generator.normal(0, 1, n).astype(np.float32)
    return labels, {"value": values, "low": values - 1, "high": values + 1}


TASKS = {
    "classification": (answer_classes, {"column": "kind"}),
    "multilabel": (answer_labels, {"column": "kind", "type": "multilabel"}),
    "regression": (answer_numbers, {"column": "size", "type": "numeric"}),
}


@pytest.fixture(scope="module", params=TASKS)
def task(request, tmp_path_factory):
    answer, label = TASKS[request.param]
    rows = [f"{number % 7},{'abc'[number % 3]},1" for number in range(100)]
    columns = [{"name": "trust", "type": "numeric"}]
    options = {"label": label, "columns": columns, "weight_column": ""}
    dataset = write(tmp_path_factory.mktemp(request.param), rows, **options)
    return task_of(dataset), answer


def collect(task, labels, outputs, weights=None):
    answers = task.open_answers(len(labels))
    for start in range(0, len(labels), 300):
        part = slice(start, start + 300)
        batch = {name: values[part] for name, values in outputs.items()}
        answers.add_batch(labels[part], batch, [b"key"] * len(labels[part]))
        if weights is not None:
            answers.add_weights(weights[part].astype(np.float32))
    return answers


def measure(task, answers):
    values = ColumnValues(dataclasses.replace(task.dataset, features=[]), "test")
    fields = {"model": "", "dataset": "", "seconds": 1.0, "worst": []}
    return task.evaluate(answers, values, examples=answers.rows, **fields)


def test_a_weight_counts_as_repetitions_of_fewer_examples(task):
    task, answer = task
    generator = np.random.default_rng(0)
    labels, outputs = answer(generator, 1000)
    weights = generator.choice([0, 1, 2, 5], 1000)
    repeated = np.repeat(np.arange(1000), weights)
    of_repeated = {name: values[repeated] for name, values in outputs.items()}
    weighted = collect(task, labels, outputs, weights)
    repetitions = collect(task, labels[repeated], of_repeated)
    found, expected = measure(task, weighted), measure(task, repetitions)

    scalars, bounds = found.scalars(), ("_low", "_high")
    same = {name: value for name, value in expected.scalars().items() if name != "examples"}
    for name, value in same.items():
        if not name.endswith(bounds):
            assert scalars[name] == pytest.approx(value, rel=1e-6), name
    for name in {name.rpartition("_")[0] for name in same if name.endswith(bounds)}:
        low, high = (scalars[name + end] for end in bounds)
        assert low < same[f"{name}_low"] < same[f"{name}_high"] < high
    assert found.baseline.p_value >= expected.baseline.p_value
    points, others = (
        one.registry_metrics().get("confidenceMetrics", []) for one in (found, expected)
    )
    assert points == [pytest.approx(point) for point in others]

    _, others = answer(np.random.default_rng(1), 1000)
    pairs, pairs_of_repeated = (
        Pairs.from_scores(answers.scores(0, len(known)), task.score_champion(known, champion)[0])
        for answers, known, champion in (
            (weighted, labels, others),
            (
                repetitions,
                labels[repeated],
                {name: values[repeated] for name, values in others.items()},
            ),
        )
    )
    for metric in found.comparisons:
        one, other = (
            compare(one, metric=metric, confidence=0.95) for one in (pairs, pairs_of_repeated)
        )
        assert one.difference == pytest.approx(other.difference) and one.difference > 0
        assert (one.candidate, one.champion) == pytest.approx((other.candidate, other.champion))
        assert one.low < other.low and one.high > other.high
        assert one.p_value >= other.p_value


def test_intervals_of_weighted_shares_contain_the_truth():
    generator, hits = np.random.default_rng(0), 0
    for _ in range(2000):
        weights = generator.exponential(1, 300)
        # Heavier examples are right more often: 0.9 of the weight, at most.
        chances = 1 - np.exp(-2 * weights)
        share = Share()
        share.add(generator.random(300) < chances, weights)
        hits += share.estimate.low <= 1 - 1 / 9 <= share.estimate.high
    assert hits >= stats.binom.ppf(0.01, 2000, 0.95)
