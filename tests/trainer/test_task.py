"""`python -m trainer.task`: its output, its console and its refusals."""

import csv
import json
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.child_processes import ROOT
from tests.conftest import TRAINED
from tests.learned_weights import assert_equal_arrays, exported, newest_checkpoint
from tests.trainer.data.picture_folders import flip
from trainer.data.images.preprocessing import decode_and_resize
from trainer.data.read.model_inputs import open_inputs
from trainer.data.schema import load_dataset
from trainer.engine.cluster import Cluster
from trainer.training import logs
from trainer.training.config import TrainingConfig
from trainer.training.progress import Progress
from vertex import checked_json


def error_line(shown: str) -> str:
    (error,) = [line for line in shown.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in shown
    return error


@pytest.fixture
def refused(run_here, capfd):
    """Return a function that runs a task in this process, which refuses; return its error."""

    def run(flags: list[str]) -> str:
        capfd.readouterr()
        assert run_here(flags) == 2
        return error_line(capfd.readouterr().err)

    return run


def scalars(folder) -> set[str]:
    """Return the names of the scalars that TensorBoard shows of a folder."""
    names = set()
    for path in folder.glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            names |= {value.tag for value in event.summary.value}
    return names


def test_run_leaves_metrics_history_and_logs(trained):
    metrics = json.loads((trained / "metrics.json").read_text())
    history = list(csv.DictReader((trained / "history.csv").open()))
    assert metrics["epochs"] == len(history) == 6
    assert metrics["steps"] == 6 * 16
    assert metrics["validation"]["accuracy"] > 0.7
    losses = [float(row["validation_loss"]) for row in history]
    assert metrics["validation"]["loss"] == losses[metrics["best_epoch"] - 1] == min(losses)
    assert float(history[0]["learning_rate"]) > float(history[-1]["learning_rate"])
    speed = {"examples_per_second", "input_wait_fraction"}
    # A slow machine shows the loss within an epoch, too.
    learned = scalars(trained / "logs/train") - {"loss_within_epoch"}
    assert learned == {"loss", "accuracy", "learning_rate", *speed}
    assert scalars(trained / "logs/validation") == {"loss", "accuracy"}

    lines = (trained / "replicas/chief-0.log").read_text().splitlines()
    epochs = [line for line in lines if re.match(r"epoch \d/6: ", line)]
    assert len(epochs) == 6
    assert all("examples/s" in line and "validation accuracy" in line for line in epochs)
    assert "left" in epochs[0]


def test_signatures_agree(trained, digit_records):
    signatures = tf.saved_model.load(str(trained / "model")).signatures
    shard = digit_records.splits["test"].shards[0]
    examples = tf.stack(list(tf.data.TFRecordDataset(digit_records.shard_uri(shard)).take(20)))
    images, labels = open_inputs(load_dataset(digit_records.uri)).parse(examples)

    by_image = signatures["serving_default"](image=images)
    by_example = signatures["serving_examples"](examples=examples)
    encoded = tf.stack([tf.io.encode_png(image) for image in images])
    by_bytes = signatures["serving_bytes"](image_bytes=encoded)

    probabilities = by_image["probabilities"].numpy()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    for answers in (by_example, by_bytes):
        np.testing.assert_allclose(answers["probabilities"].numpy(), probabilities, atol=1e-5)
        np.testing.assert_array_equal(answers["label"].numpy(), by_image["label"].numpy())
    predicted = by_image["label"].numpy().astype(str)
    assert (predicted == labels.numpy().astype(str)).mean() > 0.7

    # Pictures of any size and kind.
    picture = tf.cast(tf.random.stateless_uniform([40, 30, 3], [1, 2]) * 255, tf.uint8)
    encoded = tf.stack([tf.io.encode_jpeg(picture), tf.io.encode_png(picture)])
    images = tf.stack([decode_and_resize(file, [8, 8, 1], "bilinear") for file in encoded])
    expected = signatures["serving_default"](image=images)["probabilities"]
    answers = signatures["serving_bytes"](image_bytes=encoded)["probabilities"]
    np.testing.assert_allclose(answers, expected, atol=1e-5)


def test_trial_of_a_search_learns_as_any_run_and_reports(
    trained, digit_records, tmp_path, monkeypatch
):
    file = tmp_path / "hypertune" / "output.metrics"
    for name, value in {
        "AIP_MODEL_DIR": str(tmp_path / "3" / "model"),
        "CLOUD_ML_TRIAL_ID": "3",
        "CLOUD_ML_HP_METRIC_FILE": str(file),
    }.items():
        monkeypatch.setenv(name, value)
    values = dict(re.findall(r"--(\w+)=(\S+)", TRAINED))
    values["model_options.filters"] = "[32, 64]"
    words = [word for name, value in values.items() for word in (f"--{name}", value)]
    flags = [f"--dataset={digit_records.uri}", *words]
    replicas.run("trainer.task", flags, replicas.ALONE, tmp_path / "logs")
    assert exported(tmp_path / "3") == exported(trained)
    begun = checked_json.parse((tmp_path / "3" / "trial.json").read_text())
    assert begun == {"trial": 3, "values": values}
    reported = [json.loads(line) for line in file.read_text().splitlines()]
    with (tmp_path / "3" / "history.csv").open() as history:
        rows = [*csv.DictReader(history)]
    for name in ("validation_loss", "validation_accuracy"):
        found = [float(entry[name]) for entry in reported if name in entry]
        assert found == [float(row[name]) for row in rows]
    assert {entry["trial"] for entry in reported} == {"3"}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--epochs=0", "epochs=0 is out of range: it must be at least 1"),
        ("--epochs", "'--epochs' has no value; write options of the config as --"),
        ("--seed --epochs=1", "'--seed' has no value"),
        ("--model_options.filter=[8]", "small_cnn takes no 'filter'; did you mean 'filters'?"),
        ("--config=/no/config.json", "--config=/no/config.json can't be read: "),
        ("--accelerator_count=2", "but TensorFlow sees 0 GPUs; set gpu_image_uri to the image f"),
        ('--model_options={"filters":[8,8,8,8]}', "image_size=8 is too small for 4 poolings"),
        pytest.param(
            '--model_options={"units":1000000000000}',
            "do not fit into the memory of chief 0 (OOM",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_wrong_option_is_refused(tmp_path, digit_records, refused, option, message):
    assert message in refused(replicas.flags(digit_records, tmp_path, option))


def test_output_folder_defaults_to_that_of_vertex_ai(tmp_path, refused, monkeypatch):
    assert "--dataset" in refused([])
    assert "set --base_output_directory" in refused([f"--dataset={tmp_path}"])
    monkeypatch.setenv("AIP_MODEL_DIR", f"{tmp_path}/base/model/")
    assert f"no dataset at {tmp_path}/none" in refused([f"--dataset={tmp_path}/none"])


def test_checkpoints_of_another_configuration_are_refused(trained, digit_records, refused):
    error = refused(replicas.flags(digit_records, trained, "--epochs=7"))
    assert "checkpoints of a run with epochs=6, not 7" in error


@pytest.mark.slow
def test_run_resumes_from_the_last_undamaged_checkpoint(trained, digit_records, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    flags = replicas.flags(digit_records, run, TRAINED)
    learned = newest_checkpoint(run)
    _, newest = sorted((run / "checkpoints").glob("ckpt-*.data-*"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    replicas.run("trainer.task", flags, replicas.ALONE, tmp_path)
    log = (tmp_path / "chief-0.log").read_text()
    assert "ckpt-6000000000 is damaged; resuming from" in log
    assert "resuming from the checkpoint at epoch 6, step 0" in log
    assert_equal_arrays(newest_checkpoint(run), learned)


def test_run_without_an_undamaged_checkpoint_is_refused(trained, digit_records, tmp_path, refused):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    older, newest = sorted((run / "checkpoints").glob("ckpt-*.data-*"))
    newest.unlink()
    older.write_bytes(b"")
    assert "no checkpoint in" in refused(replicas.flags(digit_records, run, TRAINED))
    signature = run / "checkpoints" / "run.json"
    flip(signature)
    error = refused(replicas.flags(digit_records, run, TRAINED))
    assert f"{signature} is damaged (" in error


def test_xla_and_normalization_over_devices_are_refused(row_records, tmp_path, refused):
    flags = (
        "--model=wide_and_deep --strategy=mirrored --xla=true "
        '--model_options={"batch_normalization":true}'
    )
    error = refused(replicas.flags(row_records, tmp_path, flags))
    assert "xla=true: in model='wide_and_deep', a layer such as batch normalization waits" in error


@pytest.mark.slow
def test_model_that_xla_can_not_compile_is_refused(tmp_path, digit_records):
    flags = replicas.flags(digit_records, tmp_path, "--xla=true")
    command = [sys.executable, "-X", "importtime", "-m", "trainer.task", *flags]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    error = error_line(done.stderr)
    assert "xla=true: XLA has no deterministic form of an operation of model='small_cnn' (" in error
    assert error.endswith("); set xla=false")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "keras" in imported
    # Keras imports each of them for something that training does not use.
    assert imported.isdisjoint(("matplotlib.figure", "cv2.gapi", "sklearn.utils", "scipy.stats"))


MEASURED = ("loss", "accuracy")
RATES = {"learning_rate": 0.1, "examples_per_second": 5.0, "input_wait_fraction": 0.0}
ROW = {"epoch": 1, "phase": 1, "loss": 1.0, "accuracy": 0.5, "seconds": 2.0, **RATES}


@pytest.fixture
def chief(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_LINES", 0.0)
    return logs.Log(str(tmp_path), Cluster(), 10, TrainingConfig(epochs=3), MEASURED)


def test_first_line_of_a_run_estimates_no_time_left(chief, capsys):
    progress = Progress(examples=10, seconds=40.0)
    chief.step(progress, 0, lambda: ROW)
    progress.step = 1
    chief.step(progress, 1, lambda: ROW)
    first, second = capsys.readouterr().out.splitlines()
    assert "left" not in first
    # The 40 seconds of the first step, which includes the tracing, do not count.
    assert re.search(r", \d+\.\d s left$", second)


@pytest.mark.parametrize(
    ("stopped", "line"),
    [("", r"epoch 1/7: .*, 1:00 left$"), ("enough", r"epoch 1/5: .*, 40\.0 s left$")],
)
def test_time_left_is_that_since_the_first_step(tmp_path, monkeypatch, capsys, stopped, line):
    now = 0.0
    monkeypatch.setattr(logs, "time", types.SimpleNamespace(monotonic=lambda: now))
    config = TrainingConfig(model="transfer", epochs=3, fine_tune_epochs=4)
    log = logs.Log(str(tmp_path), Cluster(), 10, config, MEASURED)
    now = 100.0  # The first step includes the tracing.
    log.step(Progress(step=1), 1, lambda: ROW)
    now = 109.0
    log.epoch(Progress(epoch=1, history=[ROW], stopped=stopped), 10)
    assert re.search(line, capsys.readouterr().out.splitlines()[0])


@pytest.mark.parametrize(
    ("validated", "line"),
    [
        (
            {"validation_loss": 0.9, "validation_accuracy": 0.6},
            "accuracy 0.5000, validation loss 0.9000 (best), validation accuracy 0.6000, 5 examp",
        ),
        ({}, "accuracy 0.5000, 5 examples/s"),
    ],
    ids=["validated", "not validated"],
)
def test_best_marks_the_monitored_metric(chief, capsys, validated, line):
    chief.epoch(Progress(epoch=1, history=[ROW | validated], best_epoch=1), 10)
    assert line in capsys.readouterr().out
