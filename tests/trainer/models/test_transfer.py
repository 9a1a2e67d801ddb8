"""Transfer learning in two phases: what each changes, and resumption in both."""

import functools
import json
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.trainer.models.conftest import MOBILENET
from tests.trainer.training_runs import train
from trainer.data.read import reader
from trainer.engine import checkpoints
from trainer.models import backbones
from trainer.training import evaluator, logs
from trainer.training.job import Job
from trainer.training.loop import TerminatedError, TrainingLoop


def settings(weights, backbone=MOBILENET, layers=10, **changes):
    return {
        "model": "transfer",
        "model_options": {**backbone, "weights": weights, "dropout": 0},
        "batch_size": 16,
        "epochs": 1,
        "optimizer": "sgd",
        "learning_rate": 0.005,
        "fine_tune_layers": layers,
        "fine_tune_learning_rate": 0.01,
        **changes,
    }


def values(model: keras.Model) -> dict[str, np.ndarray]:
    return {
        variable.path: variable.numpy()
        for variable in model.variables
        if "seed_generator" not in variable.path
    }


@pytest.fixture
def small(small_backbone):
    """Return the settings of a run that fine-tunes a small backbone."""
    return functools.partial(settings, small_backbone["weights"], {"backbone": "Small"}, 3)


def test_phase_two_changes_only_the_last_layers(colors, small, tmp_path):
    first = train(colors, tmp_path / "first", **small())
    both = train(colors, tmp_path / "both", **small(fine_tune_epochs=2))

    options = small()["model_options"]
    backbone = backbones.create("Small", options["weights"], {}, (32, 32, 3))
    after_first, after_both = values(first.model), values(both.model)
    for path, value in values(backbone).items():
        np.testing.assert_array_equal(after_first[path], value, err_msg=path)

    learned = {variable.path for variable in backbone.get_layer("convolution2").variables}
    head = {path for path in after_both if path.startswith("logits")}
    assert (len(learned), len(head)) == (2, 2)
    changed = {path for path, value in after_first.items() if (value != after_both[path]).any()}
    assert changed == learned | head
    history = both.progress.history
    assert [(row["phase"], row["epoch"]) for row in history] == [(1, 1), (2, 2), (2, 3)]
    assert history[0]["loss"] == first.progress.history[0]["loss"]
    assert [row["learning_rate"] for row in history] == pytest.approx([0.005, 0.01, 0.01])


class Killed(BaseException):
    """Ends a run as kill -9 would."""


@pytest.mark.slow
def test_run_killed_at_a_phase_change_learns_the_same(colors, small, tmp_path, monkeypatch):
    options = small(
        epochs=2,
        optimizer="adam",
        fine_tune_epochs=2,
        augmentation="model",
        schedule="cosine",
        monitor="accuracy",
        early_stopping_patience=2,
        fine_tune_plateau_patience=1,
        checkpoint_steps=2,
    )
    whole = train(colors, tmp_path / "whole", **options)

    save = TrainingLoop.save
    # Phase, epochs and steps: at the change, and in phase 2 when its first epoch may already
    # have replaced the best of phase 1.
    places = {(1, 2, 0), (1, 3, 0)}

    def save_or_die(self):
        progress = self.progress
        place = (progress.phase, progress.epoch, progress.step)
        if place in places:
            places.remove(place)
            raise Killed
        save(self)

    monkeypatch.setattr(TrainingLoop, "save", save_or_die)
    for _ in range(len(places)):
        with pytest.raises(Killed):
            train(colors, tmp_path / "killed", **options)
    write = logs.Log.step

    def write_and_stop(self, progress, *arguments):
        write(self, progress, *arguments)
        if progress.step == steps - 2:
            signal.raise_signal(signal.SIGTERM)  # It takes effect after the epoch's last step.

    steps = reader.steps_per_epoch(colors, "train", options["batch_size"])
    with monkeypatch.context() as patch:
        patch.setattr(logs.Log, "step", write_and_stop)
        with pytest.raises(TerminatedError, match=f"at epoch 4, step {steps}"):
            train(colors, tmp_path / "killed", **options)
    killed = train(colors, tmp_path / "killed", **options)

    assert not places
    theirs = values(whole.model)
    for path, value in values(killed.model).items():
        np.testing.assert_array_equal(value, theirs[path], err_msg=path)
    timed = ("examples_per_second", "input_wait_fraction", "seconds")
    ours, theirs = (
        [{k: v for k, v in row.items() if k not in timed} for row in run.progress.history]
        for run in (killed, whole)
    )
    assert ours == theirs
    assert [row["phase"] for row in ours] == [1, 1, 2, 2]


@pytest.mark.slow
def test_each_phase_has_its_own_patience(colors, small, tmp_path):
    # At such a rate nothing is learned: the first epoch of all stays the best.
    rates = dict.fromkeys(("learning_rate", "fine_tune_learning_rate"), 1e-30)
    epochs = dict.fromkeys(("epochs", "fine_tune_epochs"), 8)
    patience = {"early_stopping_patience": 1, "fine_tune_early_stopping_patience": 2}
    run = train(colors, tmp_path, **small(**rates, **epochs, **patience))
    assert [row["phase"] for row in run.progress.history] == [1, 1, 2, 2]
    assert run.progress.best_epoch == run.kept_epoch == 1
    assert run.progress.stopped == "no better loss in 2 epochs"


@pytest.mark.slow
def test_two_workers_share_weights_and_learn_alike(colors, mobilenet, tmp_path):
    values_of_options = settings(mobilenet, fine_tune_epochs=2)
    alone = train(colors, tmp_path / "alone", **values_of_options)
    model_options = json.dumps(values_of_options["model_options"], separators=(",", ":"))
    values_of_options["model_options"] = model_options
    options = " ".join(f"--{name}={value}" for name, value in values_of_options.items())
    dump = ["1", str(tmp_path), *replicas.flags(colors, tmp_path / "run", options)]
    replicas.run("tests.trainer.dump_weights", dump, replicas.CHIEF_AND_WORKER, tmp_path)
    assert (tmp_path / "run" / "history.csv").read_text().startswith("epoch,phase,")
    assert (tmp_path / "run" / "weights" / "backbone.weights.h5").is_file()
    with np.load(tmp_path / "chief-0.npz") as chief, np.load(tmp_path / "worker-0.npz") as worker:
        for path, value in values(alone.model).items():
            name = path.replace("/", "|")
            np.testing.assert_array_equal(worker[name], chief[name], err_msg=path)
            np.testing.assert_allclose(chief[name], value, atol=1e-5, err_msg=path)


@pytest.mark.slow
def test_densenet_trains_on_two_devices_in_mixed_precision(colors, tmp_path, monkeypatch):
    monkeypatch.setenv("LOGICAL_CPUS", "2")
    options = (
        '--model=transfer --model_options={"weights":"none"} --strategy=mirrored '
        "--precision=mixed_float16 --epochs=1 --batch_size=20 --fine_tune_epochs=1"
    )
    flags = replicas.flags(colors, tmp_path, options)
    replicas.run("trainer.task", flags, replicas.ALONE, tmp_path / "logs", seconds=600)
    log = (tmp_path / "logs" / "chief-0.log").read_text()
    assert "mirrored on 2 replicas" in log
    rows = (tmp_path / "history.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [["1", "1"], ["2", "2"]]
    assert (tmp_path / "model" / "saved_model.pb").is_file()


@pytest.mark.slow
def test_evaluator_scores_no_checkpoint_as_another_epoch(colors, small, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "KEPT", 9)
    options = small(epochs=2, learning_rate=10.0, monitor="accuracy", fine_tune_epochs=1)
    run = train(colors, tmp_path, **options)
    assert run.progress.best_epoch == 1
    # The last checkpoint of phase 1 was replaced before the evaluator could read it.
    folder = str(tmp_path / "checkpoints")
    first, second, *others = checkpoints.list_checkpoints(folder)
    assert (second.rpartition("-")[2], len(others)) == (str(2 * 10**9), 2)
    tf.compat.v1.train.update_checkpoint_state(folder, others[-1], [first, *others])

    job = Job(dataset=colors.uri, base_output_directory=str(tmp_path), config=run.config)
    (tmp_path / "metrics.json").touch()  # As after the run.
    evaluator.evaluate(job)
    scores = evaluator.read_scores(str(tmp_path)).values()
    scored = {int(row["epoch"]): float(row["loss"]) for row in scores}
    expected = {row["epoch"]: row["validation_loss"] for row in run.progress.history}
    del expected[2]
    assert scored == pytest.approx(expected)
