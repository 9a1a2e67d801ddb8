import itertools

import keras
import numpy as np
import pytest

from tests.small_records import write_records
from trainer.models import backbones
from trainer.models.backbone_table import BACKBONES, Backbone

MOBILENET = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.25}}


@pytest.fixture(scope="module")
def colors(tmp_path_factory):
    """40 training, 8 validation and 8 test pictures, 32x32x3, of three colors."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 56)
    images = generator.integers(0, 160, (56, 32, 32, 3))
    images[np.arange(56), :, :, labels] += 90
    images = images.astype(np.uint8)
    parts = [(images[a:b], labels[a:b]) for a, b in itertools.pairwise((0, 24, 40, 48, 56))]
    splits = {"train": parts[:2], "validation": parts[2:3], "test": parts[3:]}
    return write_records(tmp_path_factory.mktemp("colors"), splits, ["red", "green", "blue"])


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory) -> str:
    """A file of MobileNet's weights; its BatchNorm statistics are no constants."""
    keras.utils.set_random_seed(1)
    backbone = backbones.create(
        MOBILENET["backbone"], "none", MOBILENET["backbone_options"], (32, 32, 3)
    )
    generator = np.random.default_rng(1)
    for layer in backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_mean.assign(generator.normal(0, 0.1, layer.moving_mean.shape))
            layer.moving_variance.assign(generator.uniform(0.1, 0.3, layer.moving_mean.shape))
    path = tmp_path_factory.mktemp("weights") / "mobilenet.weights.h5"
    backbone.save_weights(path)
    return str(path)


def create_small(*, input_shape, **_):
    """Create a backbone of few layers, which is built and traced in a tenth of MobileNet's time."""
    parts = [keras.Input(input_shape)]
    for n in (1, 2):
        parts.append(keras.layers.Conv2D(8, 3, strides=2, name=f"convolution{n}"))
        parts.append(keras.layers.BatchNormalization(name=f"normalization{n}"))
        parts.append(keras.layers.ReLU())
    return keras.Sequential(parts, name="small")


@pytest.fixture
def small_backbone(tmp_path, monkeypatch) -> dict[str, str]:
    """Add a small backbone to Keras's; return the options of a model that has it."""
    create_small.__module__ = keras.applications.MobileNet.__module__
    monkeypatch.setattr(keras.applications, "Small", create_small, raising=False)
    monkeypatch.setitem(BACKBONES, "Small", Backbone(6))
    weights = str(tmp_path / "small.weights.h5")
    create_small(input_shape=(32, 32, 3)).save_weights(weights)
    return {"backbone": "Small", "weights": weights}
