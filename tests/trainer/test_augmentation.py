"""Augmentation moves pixels, draws anew for each image, and does so in training alone."""

import keras
import numpy as np
import pytest

from trainer.data.record_options import OPERATIONS
from trainer.training.augmentation import RandomQuarterTurn, RandomShift, augmented


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """64 images, uint8 [10, 10, 3], without a black pixel."""
    return np.random.default_rng(0).integers(1, 256, (64, 10, 10, 3)).astype(np.uint8)


def places(image: np.ndarray, candidates: list[np.ndarray]) -> list[int]:
    return [n for n, one in enumerate(candidates) if np.array_equal(one, image)]


def test_each_image_is_turned_by_quarters(images):
    turned = RandomQuarterTurn(seed=1)(images, training=True).numpy()
    found = [
        places(one, [np.rot90(image, quarters) for quarters in range(4)])
        for one, image in zip(turned, images, strict=True)
    ]
    assert {tuple(place) for place in found} == {(0,), (1,), (2,), (3,)}


def test_each_image_is_shifted_by_whole_pixels_and_black_comes_in(images):
    shifted = RandomShift(seed=1)(images, training=True).numpy()
    found = set()
    for one, image in zip(shifted, images, strict=True):
        padded = np.pad(image, [(1, 1), (1, 1), (0, 0)])
        shifts = [padded[y : y + 10, x : x + 10] for y in range(3) for x in range(3)]
        found |= set(places(one, shifts))
    assert found == set(range(9))


@pytest.mark.parametrize("layer", [RandomQuarterTurn, RandomShift])
def test_a_layer_draws_anew_by_its_seed_and_leaves_alone_what_is_not_trained_on(layer, images):
    one = layer(seed=3)
    same = keras.layers.deserialize(keras.layers.serialize(one))
    np.testing.assert_array_equal(one(images), images)
    first, second = (one(images, training=True).numpy() for _ in range(2))
    assert (first != second).any()
    for expected in (first, second):
        np.testing.assert_array_equal(same(images, training=True), expected)


def test_an_augmented_model_shares_weights_and_input_with_the_model(images):
    model = keras.Sequential(
        [
            keras.Input([10, 10, 3], dtype="uint8"),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    network = augmented(model, list(OPERATIONS), seed=0)
    assert network.input_shape == model.input_shape
    assert network.inputs[0].dtype == "uint8"
    ours = [variable for variable in network.variables if "seed_generator" not in variable.path]
    assert all(one is other for one, other in zip(ours, model.variables, strict=True))
    np.testing.assert_array_equal(network(images, training=False), model(images))
    assert (network(images, training=True).numpy() != model(images).numpy()).any()
