"""Backbones: their preprocessing, their options and weights, and which are refused."""

import contextlib
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import replicas
from tests.trainer.models.conftest import MOBILENET
from trainer.config import TrainingConfig
from trainer.errors import InputError
from trainer.machines.worker_pools import MachineOptions
from trainer.models import backbones, check_model, prepare_model
from trainer.models.transfer import BACKBONES
from trainer.training import preparation


@pytest.mark.parametrize("backbone", ["VGG16", "DenseNet121", "MobileNet"])
def test_a_backbones_own_preprocessing_is_part_of_the_model(backbone):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype(np.uint8)
    modules = {"VGG16": "vgg16", "DenseNet121": "densenet", "MobileNet": "mobilenet"}
    module = getattr(keras.applications, modules[backbone])
    expected = module.preprocess_input(pixels.astype("float32"))
    layer = backbones.preprocessing(backbone)
    np.testing.assert_allclose(layer(pixels), expected, atol=1e-6)
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    np.testing.assert_allclose(again(pixels), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "DenseNet112"}, "backbone='DenseNet112' is not .* did you mean 'DenseNet1"),
        ({"backbone_options": {"alhpa": 0.5}}, "MobileNet takes no 'alhpa' .* mean 'alpha'"),
        ({"backbone_options": {"alpha": "wide"}}, "alpha='wide' is not a finite number"),
        ({"backbone_options": {"depth_multiplier": 1.5}}, "=1.5 is not a whole number"),
        ({"backbone_options": {"classes": 3}}, "MobileNet takes no 'classes' in backbone_options"),
        ({"input_size": 31}, "MobileNet can't be built: .* at least 32x32.*; change input_size"),
        ({"weight": "none"}, "transfer takes no 'weight'; did you mean 'weights'"),
        ({"weights": "imagenett"}, "weights='imagenett' is neither imagenet, none nor the URI of"),
        ({"weights": "nowhere.weights.h5"}, "weights='nowhere.weights.h5' is not a file; give"),
    ],
)
def test_options_that_can_not_be_used_are_named(colors, options, message):
    options = {"backbone": "MobileNet", "weights": "none", **options}
    with pytest.raises(InputError, match=message) as raised:
        check_model("transfer", colors, options).build(colors)
    assert "\n" not in str(raised.value)


def test_weights_of_another_backbone_are_refused(colors, weights):
    options = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.5}, "weights": weights}
    with pytest.raises(InputError, match=r"does not fit MobileNet \(.*\); give the weights of"):
        check_model("transfer", colors, options).build(colors)


def test_replicas_read_the_weights_that_the_chief_has_written(colors, weights, tmp_path):
    source = Path(shutil.copy(weights, tmp_path))
    options = {**MOBILENET, "weights": str(source)}
    chief = prepare_model("transfer", colors, options, str(tmp_path))
    assert chief.weights == str(tmp_path / "weights" / "backbone.weights.h5")
    source.unlink()
    worker = prepare_model("transfer", colors, options, str(tmp_path))
    for ours, theirs in zip(
        chief.build(colors).variables, worker.build(colors).variables, strict=True
    ):
        if "seed" not in ours.path:  # Of dropout.
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), err_msg=ours.path)


def test_a_hub_that_can_not_be_reached_is_one_line_with_the_remedy(colors, tmp_path, monkeypatch):
    (address,) = replicas.free_addresses(1)
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://{address}")
    monkeypatch.setattr("urllib.request._opener", None)
    options = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.75}}
    with pytest.raises(InputError, match=r"can't be downloaded .* give its URI") as raised:
        prepare_model("transfer", colors, options, str(tmp_path))
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("layers", "fits"), [(87, False), (86, True), (3, True), (2, False)])
def test_fine_tuning_needs_layers_with_weights(colors, tmp_path, layers, fits):
    config = TrainingConfig(
        model="transfer",
        model_options={**MOBILENET, "weights": "none"},
        fine_tune_epochs=1,
        fine_tune_layers=layers,
        batch_size=8,
    )
    refused = pytest.raises(InputError, match=f"fine_tune_layers={layers}: MobileNet has 86 layer")
    with contextlib.nullcontext() if fits else refused:
        preparation.prepare(config, MachineOptions(), colors.uri, str(tmp_path), [])


def test_every_backbone_of_keras_is_listed():
    assert set(BACKBONES) == {name for name in dir(keras.applications) if name[0].isupper()}


def test_grey_pictures_are_refused(digit_records):
    with pytest.raises(InputError, match="takes images of 3 channels, but channels=1"):
        check_model("transfer", digit_records, {"weights": "none"}).build(digit_records)
