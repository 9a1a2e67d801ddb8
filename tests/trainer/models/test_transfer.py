"""Transfer learning in two phases, and what changes in which."""

import json

import keras
import numpy as np
import pytest

from tests import replicas
from tests.trainer.models.conftest import MOBILENET
from trainer import fields
from trainer.config import TrainingConfig
from trainer.models import backbones
from trainer.models.transfer import Transfer
from trainer.training import checkpoint
from trainer.training.cluster import Cluster
from trainer.training.job import Job
from trainer.training.synchronous import train

LAYERS = 10


def settings(weights):
    return {
        "model": "transfer",
        "model_options": {**MOBILENET, "weights": weights, "dropout": 0},
        "batch_size": 16,
        "epochs": 1,
        "optimizer": "sgd",
        "learning_rate": 0.005,
        "fine_tune_layers": LAYERS,
        "fine_tune_learning_rate": 0.01,
    }


def trained(dataset, folder, weights, **options):
    config = fields.build(TrainingConfig, {**settings(weights), **options})
    job = Job(dataset=dataset.uri, base_output_directory=str(folder), config=config)
    return train(job, Cluster())


def values(model: keras.Model) -> dict[str, np.ndarray]:
    return {
        variable.path: variable.numpy()
        for variable in model.variables
        if "seed_generator" not in variable.path
    }


@pytest.fixture(scope="module")
def both(colors, weights, tmp_path_factory):
    """Train one replica in both phases."""
    return trained(colors, tmp_path_factory.mktemp("both"), weights, fine_tune_epochs=2)


def test_phase_two_changes_the_last_layers_of_the_backbone_and_nothing_else_of_it(
    colors, weights, both, tmp_path
):
    first = trained(colors, tmp_path, weights)

    given = backbones.create(Transfer(**MOBILENET, weights=weights), (32, 32, 3))
    after_first, after_both = values(first.model), values(both.model)
    for path, value in values(given).items():
        np.testing.assert_array_equal(after_first[path], value, err_msg=path)

    learn = {
        variable.path
        for layer in given.layers[-LAYERS:]
        if not isinstance(layer, keras.layers.BatchNormalization)
        for variable in layer.variables
    }
    head = {path for path in after_both if path.startswith("logits")}
    assert len(learn) >= 3
    assert len(head) == 2
    changed = {
        path for path in after_first if not np.array_equal(after_first[path], after_both[path])
    }
    assert changed == learn | head
    assert [row["phase"] for row in both.progress.history] == [1, 2, 2]
    assert [row["epoch"] for row in both.progress.history] == [1, 2, 3]
    assert both.progress.history[0]["loss"] == first.progress.history[0]["loss"]
    rates = [row["learning_rate"] for row in both.progress.history]
    assert rates == pytest.approx([0.005, 0.01, 0.01])


class Killed(BaseException):
    """Ends a run as kill -9 would."""


def test_a_run_killed_before_any_of_its_checkpoints_ends_as_one_never_killed(
    colors, weights, tmp_path, monkeypatch
):
    options = {
        "epochs": 2,
        "optimizer": "adam",
        "fine_tune_epochs": 2,
        "augmentation": "model",
        "schedule": "cosine",
        "monitor": "accuracy",
        "early_stopping_patience": 2,
        "fine_tune_plateau_patience": 1,
        "checkpoint_steps": 2,
    }
    whole = trained(colors, tmp_path / "whole", weights, **options)

    save = checkpoint.Checkpoints.save
    # By phase, epochs and steps done: at the change, and in phase 2 when its first epoch may
    # already have replaced what was best of phase 1.
    places = {(1, 2, 0), (1, 3, 0)}

    def save_or_die(self):
        progress = self._progress
        place = (progress.phase, progress.epoch, progress.step)
        if place in places:
            places.remove(place)
            raise Killed
        save(self)

    monkeypatch.setattr(checkpoint.Checkpoints, "save", save_or_die)
    for _ in range(len(places)):
        with pytest.raises(Killed):
            trained(colors, tmp_path / "killed", weights, **options)
    killed = trained(colors, tmp_path / "killed", weights, **options)

    assert not places
    ours, theirs = values(killed.model), values(whole.model)
    for path in ours:
        np.testing.assert_array_equal(ours[path], theirs[path], err_msg=path)
    timed = ("images_per_second", "input_wait_fraction", "seconds")
    histories = [
        [{k: v for k, v in row.items() if k not in timed} for row in run.progress.history]
        for run in (killed, whole)
    ]
    assert histories[0] == histories[1]
    assert [row["phase"] for row in histories[0]] == [1, 1, 2, 2]


def test_each_phase_has_patience_of_its_own_and_the_best_weights_of_both_remain(
    colors, weights, tmp_path
):
    run = trained(
        colors,
        tmp_path,
        weights,
        epochs=8,
        learning_rate=1e-30,
        early_stopping_patience=1,
        fine_tune_epochs=8,
        fine_tune_learning_rate=1e-30,
        fine_tune_early_stopping_patience=2,
    )
    # Nothing is learnt at such a rate: phase 1 ends one epoch after its first, 2 after two.
    assert [row["phase"] for row in run.progress.history] == [1, 1, 2, 2]
    assert run.progress.best_epoch == run.kept_epoch == 1
    assert run.progress.stopped == "no better loss in 2 epochs"


@pytest.mark.slow
def test_two_workers_read_one_copy_of_the_weights_and_fine_tune_alike(
    colors, weights, both, tmp_path
):
    given = {**settings(weights), "fine_tune_epochs": 2, "base_output_directory": tmp_path / "run"}
    given["model_options"] = json.dumps(given["model_options"])
    flags = [f"--dataset={colors.uri}", *(f"--{name}={value}" for name, value in given.items())]
    dump = ["1", str(tmp_path), *flags]
    replicas.run("tests.trainer.dump_weights", dump, replicas.CHIEF_AND_WORKER, tmp_path)
    header = (tmp_path / "run" / "history.csv").read_text().partition("\n")[0]
    assert header.startswith("epoch,phase,")
    assert (tmp_path / "run" / "weights" / "backbone.weights.h5").is_file()
    with np.load(tmp_path / "chief-0.npz") as chief, np.load(tmp_path / "worker-0.npz") as worker:
        for path, value in values(both.model).items():
            name = path.replace("/", "|")
            np.testing.assert_array_equal(worker[name], chief[name], err_msg=path)
            np.testing.assert_allclose(chief[name], value, atol=1e-5, err_msg=path)


@pytest.mark.slow
def test_densenet_trains_in_both_phases_on_two_devices_in_mixed_precision(
    colors, tmp_path, monkeypatch
):
    monkeypatch.setenv("LOGICAL_CPUS", "2")
    flags = [
        f"--dataset={colors.uri}",
        f"--base_output_directory={tmp_path}",
        "--model=transfer",
        '--model_options={"weights": "none"}',
        "--strategy=mirrored",
        "--precision=mixed_float16",
        "--epochs=1",
        "--batch_size=20",
        "--fine_tune_epochs=1",
    ]
    replicas.run("trainer.task", flags, replicas.ALONE, tmp_path / "logs", seconds=600)
    log = (tmp_path / "logs" / "chief-0.log").read_text()
    assert "mirrored over 2 replicas" in log
    rows = (tmp_path / "history.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [["1", "1"], ["2", "2"]]
    assert (tmp_path / "model" / "saved_model.pb").is_file()
