import itertools

import keras
import numpy as np
import pytest

from tests.records import write_records
from trainer.models import backbones
from trainer.models.transfer import Transfer

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
def weights(tmp_path_factory) -> str:
    """A file of MobileNet's weights; its BatchNorm statistics are no constants."""
    keras.utils.set_random_seed(1)
    backbone = backbones.create(Transfer(**MOBILENET, weights="none"), (32, 32, 3))
    generator = np.random.default_rng(1)
    for layer in backbone.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_mean.assign(generator.normal(0, 0.1, layer.moving_mean.shape))
            layer.moving_variance.assign(generator.uniform(0.1, 0.3, layer.moving_mean.shape))
    path = tmp_path_factory.mktemp("weights") / "mobilenet.weights.h5"
    backbone.save_weights(path)
    return str(path)
