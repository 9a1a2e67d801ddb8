"""Backbones: their preprocessing, their options and weights, and which are refused."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import replicas
from tests.trainer.models.conftest import MOBILENET
from trainer.errors import InputError
from trainer.models import backbones, check_model, open_model, prepare_model


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
        ({"backbone_options": {"alhpa": 0.5}}, "MobileNet takes no 'alhpa'; did you mean 'alpha'"),
        ({"backbone_options": {"alpha": "wide"}}, "alpha='wide' is not a finite number"),
        ({"backbone_options": {"depth_multiplier": 1.5}}, "=1.5 is not a whole number"),
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


def test_more_layers_than_the_backbone_has_are_refused(colors):
    model = check_model("transfer", colors, {**MOBILENET, "weights": "none"}).build(colors)
    with pytest.raises(InputError, match=r"fine_tune_layers=999: .*has 86 layers; use at most 86"):
        open_model("transfer", {}).unfreeze(model, 999)


def test_grey_pictures_are_refused(digit_records):
    with pytest.raises(InputError, match="takes images of 3 channels, but channels=1"):
        check_model("transfer", digit_records, {"weights": "none"}).build(digit_records)
