"""Augmentation moves pixels, differently for each image, and only in training."""

import keras
import numpy as np
import pytest

from trainer.data.record_options import OPERATIONS
from trainer.training.augmentation import RandomQuarterTurn, RandomShift, add_augmentation


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """64 images, uint8 [10, 10, 3], without a black pixel."""
    return np.random.default_rng(0).integers(1, 256, (64, 10, 10, 3)).astype(np.uint8)


def turn(image):
    return [np.rot90(image, quarters) for quarters in range(4)]


def shift(image):
    padded = np.pad(image, [(1, 1), (1, 1), (0, 0)])  # Black comes in.
    return [padded[y : y + 10, x : x + 10] for y in range(3) for x in range(3)]


@pytest.mark.parametrize(("layer", "variants"), [(RandomQuarterTurn, turn), (RandomShift, shift)])
def test_layer_draws_every_variant_of_an_image(images, layer, variants):
    seen = set()
    for augmented, image in zip(layer(seed=1)(images, training=True).numpy(), images, strict=True):
        (place,) = [
            n for n, variant in enumerate(variants(image)) if np.array_equal(augmented, variant)
        ]
        seen.add(place)
    assert seen == set(range(len(variants(images[0]))))


@pytest.mark.parametrize("layer", [RandomQuarterTurn, RandomShift])
def test_layer_draws_anew_by_its_seed_and_only_in_training(layer, images):
    augmentation = layer(seed=3)
    same = keras.layers.deserialize(keras.layers.serialize(augmentation))
    np.testing.assert_array_equal(augmentation(images), images)
    first, second = (augmentation(images, training=True).numpy() for _ in range(2))
    assert (first != second).any()
    for expected in (first, second):
        np.testing.assert_array_equal(same(images, training=True), expected)


def test_augmented_model_shares_weights_and_input(images):
    layers = [keras.layers.Flatten(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input([10, 10, 3], dtype="uint8"), *layers])
    network = add_augmentation(model, list(OPERATIONS), seed=0)
    assert network.input_shape == model.input_shape
    assert network.inputs[0].dtype == "uint8"
    ours = [variable for variable in network.variables if "seed_generator" not in variable.path]
    assert all(variable is same for variable, same in zip(ours, model.variables, strict=True))
    np.testing.assert_array_equal(network(images, training=False), model(images))
    assert (network(images, training=True).numpy() != model(images).numpy()).any()
