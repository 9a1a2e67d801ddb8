"""`python -m trainer.task`: what it leaves, what it says, and how it refuses."""

import csv
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.replicas import REPOSITORY
from trainer import task
from trainer.data.read.decoding import parse
from trainer.data.schema import load


def line_of(shown: str) -> str:
    errors = [line for line in shown.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, shown
    assert "Traceback" not in shown
    return errors[0]


@pytest.fixture
def refused(monkeypatch, capfd):
    """The same of a task that runs in this process."""
    # It would hold for all tests that follow.
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: None)

    def run(*flags: str) -> str:
        capfd.readouterr()
        assert task.main(list(flags)) == 2
        return line_of(capfd.readouterr().err)

    return run


def test_a_run_leaves_model_metrics_history_and_tensorboard_logs(trained, digit_records):
    metrics = json.loads((trained / "metrics.json").read_text())
    history = list(csv.DictReader((trained / "history.csv").open()))
    assert metrics["epochs"] == len(history) == 6
    assert metrics["steps"] == 6 * 16
    assert metrics["validation"]["accuracy"] > 0.7
    best = history[metrics["best_epoch"] - 1]
    assert float(best["validation_loss"]) == min(float(row["validation_loss"]) for row in history)
    assert metrics["validation"]["loss"] == float(best["validation_loss"])
    assert float(history[0]["learning_rate"]) > float(history[-1]["learning_rate"])
    speed = {"images_per_second", "input_wait_fraction"}
    # A slow machine shows the loss within an epoch, too.
    learned = _scalars(trained / "logs/train") - {"loss_within_epoch"}
    assert learned == {"loss", "accuracy", "learning_rate", *speed}
    assert _scalars(trained / "logs/validation") == {"loss", "accuracy"}


def test_the_console_has_one_line_an_epoch(trained):
    lines = (trained / "replicas/chief-0.log").read_text().splitlines()
    epochs = [line for line in lines if re.match(r"epoch \d/6: ", line)]
    assert len(epochs) == 6
    assert all("examples/s" in line and "validation accuracy" in line for line in epochs)
    assert "left" in epochs[0]


def test_the_three_signatures_agree(trained, digit_records):
    model = tf.saved_model.load(str(trained / "model"))
    shard = digit_records.splits["test"].shards[0]
    examples = list(tf.data.TFRecordDataset(digit_records.shard_uri(shard)).take(20))
    images, labels = parse(tf.stack(examples), load(digit_records.uri))

    by_image = model.signatures["serving_default"](image=images)
    by_example = model.signatures["serving_examples"](examples=tf.stack(examples))
    encoded = tf.stack([tf.io.encode_png(image) for image in images])
    by_bytes = model.signatures["serving_bytes"](image_bytes=encoded)

    probabilities = by_image["probabilities"].numpy()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    for other in (by_example, by_bytes):
        np.testing.assert_allclose(other["probabilities"].numpy(), probabilities, atol=1e-5)
        np.testing.assert_array_equal(other["label"].numpy(), by_image["label"].numpy())
    predicted = by_image["label"].numpy().astype(str)
    assert (predicted == labels.numpy().astype(str)).mean() > 0.7


def test_serving_bytes_takes_pictures_of_any_size_and_kind(trained):
    model = tf.saved_model.load(str(trained / "model"))
    picture = tf.cast(tf.random.stateless_uniform([40, 30, 3], [1, 2]) * 255, tf.uint8)
    encoded = tf.stack([tf.io.encode_jpeg(picture), tf.io.encode_png(picture)])
    assert model.signatures["serving_bytes"](image_bytes=encoded)["probabilities"].shape == (2, 10)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--epochs=0", "epochs=0 is out of range: it must be at least 1"),
        ("--epochs", "'--epochs' has no value; give options of the config as --N"),
        ("--epoch=3", "unknown parameter 'epoch'; did you mean 'epochs'?"),
        ("--model=smal_cnn", "did you mean 'small_cnn'?"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(flag, words, refused):
    assert words in refused("--dataset=nowhere", "--base_output_directory=nowhere", flag)


def test_a_gpu_that_tensorflow_does_not_see_is_one_line(tmp_path, refused):
    flags = (f"--dataset={tmp_path}", f"--base_output_directory={tmp_path}/run")
    error = refused(*flags, "--accelerator_count=2")
    assert "2, but TensorFlow sees 0 GPUs; set gpu_image_uri to the image f" in error


def test_vertex_says_where_to_write(tmp_path, refused, monkeypatch):
    assert "give --base_output_directory" in refused(f"--dataset={tmp_path}")
    monkeypatch.setenv("AIP_MODEL_DIR", f"{tmp_path}/base/model/")
    assert f"no data set at {tmp_path}/none" in refused(f"--dataset={tmp_path}/none")


def test_checkpoints_of_another_configuration_are_refused(trained, digit_records, refused):
    flags = (f"--dataset={digit_records.uri}", f"--base_output_directory={trained}")
    assert "checkpoints of a run with epochs=6, not 7" in refused(*flags, "--epochs=7")


def test_a_damaged_checkpoint_is_replaced_by_the_one_before(trained, tmp_path, refused):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    flags = [*json.loads((trained / "flags.json").read_text()), f"--base_output_directory={run}"]
    learned = replicas.newest_checkpoint(run)
    older, newest = sorted((run / "checkpoints").glob("ckpt-*.data-*"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    replicas.run("trainer.task", flags, replicas.ALONE, tmp_path)
    said = (tmp_path / "chief-0.log").read_text()
    assert "ckpt-6000000000 is damaged; resuming from" in said
    assert "resuming from the checkpoint at epoch 6, step 0" in said
    for name, value in replicas.newest_checkpoint(run).items():
        np.testing.assert_array_equal(value, learned[name], err_msg=name)
    older, newest = sorted((run / "checkpoints").glob("ckpt-*.data-*"))
    newest.unlink()
    older.write_bytes(b"")
    assert "no checkpoint in" in refused(*flags)


def test_options_that_do_not_fit_the_records_are_refused(tmp_path, digit_records, refused):
    flags = (f"--dataset={digit_records.uri}", f"--base_output_directory={tmp_path}")
    message = "image_size=8 is too small for 4 poolings, each of which halves it"
    assert message in refused(*flags, '--model_options={"filters": [8, 8, 8, 8]}')


def test_a_model_beyond_the_memory_is_one_line(tmp_path, digit_records, refused):
    flags = (f"--dataset={digit_records.uri}", f"--base_output_directory={tmp_path}")
    error = refused(*flags, f'--model_options={{"units": {10**12}}}')
    assert "batch_size=64 and model='small_cnn' do not fit into the memory of chief 0" in error
    assert "OOM when allocating tensor with shape" in error


def test_a_model_that_xla_can_not_compile_is_one_line(tmp_path, digit_records):
    flags = (f"--dataset={digit_records.uri}", f"--base_output_directory={tmp_path}")
    command = [sys.executable, "-X", "importtime", "-m", "trainer.task", *flags, "--xla=true"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env={"PATH": ""}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 2, done.stderr
    error = line_of(done.stderr)
    assert "xla=true: XLA has no deterministic form of an operation of model='small_cnn' (" in error
    assert error.endswith("); set xla=false")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "keras" in imported
    # Keras imports each of them for something that training does not use.
    assert imported.isdisjoint(("matplotlib.figure", "cv2.gapi", "sklearn.utils", "scipy.stats"))


def _scalars(folder) -> set[str]:
    names = set()
    for path in folder.glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            names |= {value.tag for value in event.summary.value}
    return names
