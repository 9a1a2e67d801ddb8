"""Weights of rows: in the loss of training, and in the loss and metrics of validation."""

import random

import numpy as np
import pytest
import tensorflow as tf

from tests import tables
from tests.refusals import refused
from tests.trainer.data.picture_folders import rejected
from tests.trainer.training_runs import train
from trainer.data.read.input_share import InputShare
from trainer.data.read.reader import read_evaluation_batches
from trainer.evaluation.scoring import evaluate
from trainer.training.export import export
from trainer.training.loop import make_validation

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


def test_rows_count_by_their_weight(dataset, tmp_path):
    trained = train(dataset, tmp_path, **OPTIONS)
    export(trained.model, dataset, str(tmp_path / "model"))
    # Two of three labels of the test are wrong; each row of it counts once.
    assert evaluate(str(tmp_path / "model"), dataset.uri).accuracy < 0.4
    share = InputShare(batch_size=50)
    found = make_validation(trained.strategy, trained.model, dataset, share)()
    assert found["accuracy"] > 0.95
    logits, labels, weights = [], [], []
    for inputs, of, weight in read_evaluation_batches(dataset, "validation", share):
        logits.append(trained.model(inputs))
        labels.append(of)
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
        ({"source": "digits", "columns": [], "label": {}}, "weight_column describe a table"),
    ],
)
def test_unusable_weights_are_refused(tmp_path, changes, message):
    table = tables.write_csv(
        tmp_path / "t.csv", [f"{row},0" for row in lines(99)], "size,kind,trust,none"
    )
    options = {"source": f"csv:{table}", **DESCRIBED, **changes}
    assert message in refused(tables.write, table, tmp_path / "records", **options)
