"""A model that its function returns compiled is trained as Keras' `fit` would."""

import csv

import keras
import numpy as np
import pytest

from tests import replicas
from tests.refusals import refused
from tests.small_records import digits
from tests.trainer import dump_weights
from tests.trainer.models import compiled_models
from tests.trainer.training_runs import train
from trainer.data.read.reader import read_for_keras

BATCH = 258
"""All rows at once; two devices get 129 and 128."""
EPOCHS = 4


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return digits(tmp_path_factory.mktemp("records"))


def fit_by_keras(records, name):
    """Train with Keras on all rows at once; return the history and the weights."""
    assert records.splits["train"].examples == BATCH - 1
    keras.utils.set_random_seed(0)
    model = getattr(compiled_models, name)(records)
    split = {name: read_for_keras(records, name, BATCH) for name in ("train", "validation")}
    history = model.fit(
        split["train"], validation_data=split["validation"], epochs=EPOCHS, verbose=0
    )
    return history.history, model.get_weights()


def run(folder, records, name, options, roles, devices=0):
    """Train on the replicas; return the rows of history.csv.

    With a number of `devices`, the final weights are in `folder`, too.
    """
    model = f"{compiled_models.__name__}:{name}"
    arguments = replicas.flags(records, folder / "run", f"--model={model} {options}")
    module = "trainer.task"
    if devices:
        module, arguments = dump_weights.__name__, [str(devices), str(folder), *arguments]
    with replicas.Cluster(module, arguments, roles, folder / "logs") as cluster:
        cluster.start_all()
        assert cluster.processes["chief", 0].wait(120) == 0, cluster.tails()
    with (folder / "run" / "history.csv").open() as file:
        return [*csv.DictReader(file)]


@pytest.mark.parametrize(
    ("name", "roles", "devices"),
    [
        ("normalized", replicas.ALONE, 1),
        pytest.param("accumulating", replicas.ALONE, 2, marks=pytest.mark.slow),
        pytest.param("normalized", replicas.CHIEF_AND_WORKER, 1, marks=pytest.mark.slow),
    ],
)
def test_learns_and_measures_as_keras(name, roles, devices, records, tmp_path):
    options = f"--epochs={EPOCHS} --batch_size={BATCH} --keep_epoch=last"
    rows = run(tmp_path, records, name, options, roles, devices)
    history, weights = fit_by_keras(records, name)
    assert len(rows) == EPOCHS
    for number, row in enumerate(rows):
        for split, prefix in (("", ""), ("validation_", "val_")):
            known = {
                name: history[f"{prefix}{name}"][number] for name in ("loss", "accuracy", "top")
            }
            known |= {f"right_{k}": of for k, of in enumerate(history[f"{prefix}right"][number])}
            found = {name: float(row[f"{split}{name}"]) for name in known}
            assert found == pytest.approx(known, abs=2e-5)
    with np.load(tmp_path / "chief-0.npz") as learned:
        assert len(learned) == len(weights)
        for one, expected in zip(learned.values(), weights, strict=True):
            np.testing.assert_allclose(one, expected, atol=1e-5)


@pytest.mark.slow
def test_learns_with_parameter_servers(records, tmp_path):
    roles = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
    *_, row = run(tmp_path, records, "compiled", "--epochs=15 --batch_size=32", roles)
    assert float(row["validation_top"]) >= float(row["validation_accuracy"]) > 0.6
    classes = [float(row[f"right_{number}"]) for number in range(10)]
    assert sum(classes) == pytest.approx(float(row["accuracy"]), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("compiled", {"learning_rate": 0.1, "loss": "huber"}, "replaces learning_rate=0.1, loss=h"),
        ("with_sums", {}, "has reduction='sum', which is not a mean over the rows"),
        ("without_loss", {}, "compiled without a loss; give compile one, or return the model"),
        ("with_own_step", {}, "with a train_step of its own, which only fit calls; train it by a"),
        ("with_largest", {}, "the metric 'largest' can't be computed by several"),
    ],
)
def test_what_is_not_trained_as_compiled_is_refused(name, options, message, records, tmp_path):
    model = f"{compiled_models.__name__}:{name}"
    assert message in refused(train, records, tmp_path, model=model, **options)
