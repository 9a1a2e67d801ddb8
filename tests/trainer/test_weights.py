"""model.keras holds the exported model, warm_start its weights; damaged checkpoints are skipped."""

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from components.planning import warm_start
from tests.refusals import refused
from tests.trainer.training_runs import train
from trainer.engine import checkpoints
from trainer.exported import keras_file
from trainer.models import open_model_for
from trainer.training.progress import Progress
from vertex.errors import InputError

# Isolated: neither this project nor the working folder can be imported.
ALONE = [sys.executable, "-I", "-c"]
LOADS = """
import sys, keras, numpy
model = keras.saving.load_model(sys.argv[1])
numpy.save("logits.npy", model(numpy.load("images.npy")).numpy())
print(keras.saving.load_model(sys.argv[2]).count_params())
"""


@pytest.mark.slow
def test_models_are_loaded_without_this_project(trained, row_records, tmp_path):
    images = np.random.default_rng(0).integers(0, 17, (12, 8, 8, 1), np.uint8)
    np.save(tmp_path / "images.npy", images)
    model = open_model_for("wide_and_deep", row_records, {"hidden_units": [8]}).build(row_records)
    keras_file.save(model, str(tmp_path / "rows.keras"))
    command = [*ALONE, LOADS, str(trained / keras_file.FILE_NAME), "rows.keras"]
    result = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert int(result.stdout.split()[-1]) == model.count_params()
    logits = np.load(tmp_path / "logits.npy")
    served = tf.saved_model.load(str(trained / "model")).signatures["serving_default"]
    probabilities = served(image=tf.constant(images))["probabilities"].numpy()
    np.testing.assert_allclose(tf.nn.softmax(logits).numpy(), probabilities, atol=1e-6)


def test_training_starts_from_warm_start(trained, digit_records, tmp_path):
    start = warm_start.copy(str(trained / "model"), str(tmp_path))
    assert start == str(tmp_path / "warm_start.keras")
    options = {"epochs": 1, "learning_rate": 1e-9, "model_options": {"dropout": 0.0}}
    run = train(digit_records, tmp_path / "run", warm_start=start, **options)
    final = keras.saving.load_model(trained / keras_file.FILE_NAME)
    before = [variable for variable in final.variables if "seed" not in variable.path]
    for variable, value in zip(run.model.variables, before, strict=True):
        np.testing.assert_allclose(variable.numpy(), value.numpy(), atol=1e-5)


@pytest.mark.parametrize("start", ["", "model", "model.keras"])
def test_job_model_and_file_have_the_same_weights(trained, tmp_path, start):
    copy = warm_start.copy(f"{trained}/{start}", str(tmp_path))
    assert Path(copy).read_bytes() == (trained / keras_file.FILE_NAME).read_bytes()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "small_cnn",
            {"units": 64},
            r"^the weights to start from do not fit the model: 'dense(?=.*\D64\D)(?=.*\D128\D)",
        ),
        ("mnist_cnn", {}, "do not fit the model"),
    ],
)
def test_weights_of_another_shape_are_refused(trained, digit_records, model, options, message):
    wider = open_model_for(model, digit_records, options).build(digit_records)
    assert re.search(message, refused(keras_file.load, wider, str(trained / keras_file.FILE_NAME)))


def test_weights_of_other_classes_are_refused(digit_records, trained, row_records, row_model):
    warm_start.check_meaning(str(trained / "model.keras"), digit_records)
    turned = dataclasses.replace(digit_records, classes=digit_records.classes[::-1])
    with pytest.raises(InputError, match=r"their classes are 0, 1, 2, 3, 4, \.\.\., not 9, 8, 7"):
        warm_start.check_meaning(str(trained), turned)
    warm_start.check_meaning(row_model, row_records)
    features = [
        dataclasses.replace(
            feature, settings={**feature.settings, "values": feature.settings["values"][::-1]}
        )
        if feature.name == "company"
        else feature
        for feature in row_records.features
    ]
    with pytest.raises(InputError, match="column 'company' has other values, or in another order"):
        warm_start.check_meaning(row_model, dataclasses.replace(row_records, features=features))


def test_missing_weights_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"warm_start: there is no .*/job/model.keras and no"):
        warm_start.copy(str(tmp_path / "job"), str(tmp_path))


def save_two(folder: Path) -> list[str]:
    content = tf.train.Checkpoint(value=tf.Variable(tf.range(99.0)))
    manager = tf.train.CheckpointManager(content, str(folder), max_to_keep=2)
    return [manager.save(), manager.save()]


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_checkpoint_with_a_damaged_index_is_skipped(tmp_path, kept):
    first, second = save_two(tmp_path)
    index = Path(f"{second}.index")
    data = index.read_bytes()
    index.write_bytes(data[: int(kept * len(data))] + b"damage")
    checkpoints.repair_lists(str(tmp_path))
    assert checkpoints.list_checkpoints(str(tmp_path)) == [first]
    (tmp_path / "checkpoint").write_bytes(b"\xff")
    assert checkpoints.list_checkpoints(str(tmp_path)) == []
    with pytest.raises(RuntimeError, match="can't be read; start the job again"):
        checkpoints.find_newest(str(tmp_path))


@pytest.mark.parametrize("folder", ["", "best"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: b"\xff" + text,
        lambda text: text[:30],
        lambda text: text.replace(b"ckpt-2", b"ckpt-7", 1),
        lambda text: text.replace(b"ckpt", b"\\xff", 1),
    ],
)
def test_damaged_list_is_rebuilt_from_the_files(tmp_path, capfd, folder, damage):
    saved = save_two(tmp_path / folder)
    names = tmp_path / folder / "checkpoint"
    names.write_bytes(damage(names.read_bytes()))
    checkpoints.repair_lists(str(tmp_path))
    assert checkpoints.list_checkpoints(str(tmp_path / folder)) == saved
    assert tf.train.latest_checkpoint(tmp_path / folder) == saved[-1]
    expected = f"{names} does not name the newest checkpoint; resuming from {saved[-1]}\n"
    assert capfd.readouterr().out == expected


def test_checkpoint_is_listed_once_complete_and_may_vanish(tmp_path):
    variable = tf.keras.Variable([1.0, 2.0])
    directory = str(tmp_path)
    assert checkpoints.list_checkpoints(directory) == []
    content = tf.train.Checkpoint(variables=[variable.value])
    # The chief writes the data first and then the index, and the list of checkpoints last.
    content.write(f"{directory}/ckpt-1")
    assert checkpoints.list_checkpoints(directory) == []
    text = 'model_checkpoint_path: "ckpt-1"\nall_model_checkpoint_paths: "ckpt-1"\n'
    (tmp_path / "checkpoint").write_text(text[:40])
    assert checkpoints.list_checkpoints(directory) == []
    (tmp_path / "checkpoint").write_text(text)
    (path,) = checkpoints.list_checkpoints(directory)
    data = next(tmp_path.glob("ckpt-1.data-*"))
    for damage in (data.unlink, lambda: data.write_bytes(b"")):
        damage()
        assert not checkpoints.load(path, [variable], Progress())


def test_flipped_bit_of_a_keras_file_is_named(trained, digit_records, tmp_path):
    file = tmp_path / "job" / keras_file.FILE_NAME
    shutil.copytree(trained, file.parent)
    whole = file.read_bytes()
    model = open_model_for("small_cnn", digit_records, {}).build(digit_records)
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
    assert "damaged" in refused(keras_file.load_model, str(file.parent), "small_cnn")

    def start():
        keras_file.load(model, warm_start.copy(str(file), str(tmp_path)))

    assert "damaged" in refused(start)
