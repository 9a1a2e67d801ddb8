"""Backbones: their preprocessing, options, weights and refusals; their table agrees with Keras."""

import dataclasses
import inspect
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import replicas
from tests.trainer.models.conftest import MOBILENET
from trainer.exported import keras_file
from trainer.fields import default_of
from trainer.models import backbones, open_model, open_model_for, prepare_model
from trainer.models.backbone_table import BACKBONES
from trainer.models.transfer import Transfer
from vertex.errors import InputError


@pytest.mark.parametrize("backbone", ["VGG16", "DenseNet121", "MobileNet"])
def test_backbones_own_preprocessing_is_a_layer(backbone):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype(np.uint8)
    module = getattr(keras.applications, backbone.lower().removesuffix("121"))
    expected = module.preprocess_input(pixels.astype("float32"))
    layer = backbones.create_preprocessing(backbone)
    copy = keras.layers.deserialize(keras.layers.serialize(layer))
    for preprocessing in (layer, copy):
        np.testing.assert_allclose(preprocessing(pixels), expected, atol=1e-6)


@pytest.mark.slow
def test_misfits_of_weights_layers_and_images_are_refused(colors, mobilenet, digit_records):
    wider = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.5}, "weights": mobilenet}
    with pytest.raises(InputError, match=r"does not fit MobileNet \(.*\); give the weights of"):
        open_model_for("transfer", colors, wider).build(colors)
    model = open_model_for("transfer", colors, {**MOBILENET, "weights": "none"}).build(colors)
    with pytest.raises(InputError, match=r"fine_tune_layers=999: .*has only 86 layers"):
        open_model("transfer", {}).unfreeze(model, 999)
    with pytest.raises(InputError, match="needs channels=3, but channels=1"):
        open_model_for("transfer", digit_records, {"weights": "none"}).build(digit_records)
    with pytest.raises(InputError, match=r"weights='nowhere\.weights\.h5' is not a file; give"):
        open_model_for("transfer", colors, {"weights": "nowhere.weights.h5"}).build(colors)


def assert_equal_weights(model, expected):
    for variable, value in zip(model.variables, expected.variables, strict=True):
        if "seed" not in variable.path:  # Of dropout.
            np.testing.assert_array_equal(variable.numpy(), value.numpy(), variable.path)


def test_replicas_read_the_chiefs_copy_of_the_weights(colors, small_backbone, tmp_path):
    chief = prepare_model("transfer", colors, small_backbone, str(tmp_path))
    assert chief.weights == str(tmp_path / "weights" / "backbone.weights.h5")
    Path(small_backbone["weights"]).unlink()
    worker = prepare_model("transfer", colors, small_backbone, str(tmp_path))
    assert_equal_weights(worker.build(colors), chief.build(colors))


def test_saved_model_keeps_the_weights_of_its_backbone(colors, small_backbone, tmp_path):
    model, loaded = (
        open_model_for("transfer", colors, small_backbone).build(colors) for _ in range(2)
    )
    keras_file.save(model, str(tmp_path / "model.keras"))
    keras_file.load(loaded, str(tmp_path / "model.keras"))
    assert_equal_weights(loaded, model)
    whole = keras.saving.load_model(tmp_path / "model.keras")
    assert_equal_weights(whole, model)
    images = np.full((1, 32, 32, 3), 7, np.uint8)
    np.testing.assert_array_equal(whole(images), model(images))


def test_unreachable_hub_is_refused_with_the_remedy(colors, tmp_path, monkeypatch):
    (address,) = replicas.free_addresses(1)
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://{address}")
    monkeypatch.setattr("urllib.request._opener", None)
    options = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.75}}
    with pytest.raises(
        InputError, match=r"can't be downloaded .* set weights to its URI"
    ) as raised:
        prepare_model("transfer", colors, options, str(tmp_path))
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


# Arguments that are not for the user to set: those that all have, and one of some.
COMMON = {*inspect.signature(keras.applications.Xception).parameters, "include_preprocessing"}
QUICK = ("MobileNet", "MobileNetV3Small", "VGG16", "Xception")


def test_table_lists_every_backbone_and_its_own_arguments():
    known = {name for name in dir(keras.applications) if name[0].isupper()}
    assert set(BACKBONES) == known
    for name, backbone in BACKBONES.items():
        parameters = inspect.signature(getattr(keras.applications, name)).parameters
        defaults = {
            key: parameter.default for key, parameter in parameters.items() if key not in COMMON
        }
        listed = {field.name: default_of(field) for field in dataclasses.fields(backbone.options)}
        assert listed == defaults, name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name)
        for name in BACKBONES
    ],
)
def test_layers_and_smallest_image_are_those_of_keras(name):
    keras.backend.clear_session()
    row = BACKBONES[name]
    with pytest.raises(InputError, match=f"{name} can't be built"):
        backbones.create(name, "none", {}, (row.min_size - 1, row.min_size - 1, 3))
    backbone = backbones.create(name, "none", {}, (row.min_size, row.min_size, 3))
    assert len(backbone.layers) == row.layers
    model = keras.Sequential([backbone])
    if row.tail:
        Transfer().unfreeze(model, row.tail)
        assert not backbone.trainable_variables
    Transfer().unfreeze(model, row.tail + 1)
    assert backbone.trainable_variables
