"""Augmentation as Keras layers: random on each call, active only in training."""

from typing import Any

import keras
import tensorflow as tf

from trainer.data.record_options import OPERATIONS

SHIFT = 0.04
"""Largest shift as a share of the image's size: one pixel of 28, nine of 224."""


class _Random(keras.layers.Layer):
    """A layer that changes images [n, height, width, channels] at random, and only in training."""

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.change(images) if training else images

    def change(self, images: tf.Tensor) -> tf.Tensor:
        """Return `images`, each with a random change."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "seed": self.seed}


@keras.saving.register_keras_serializable("trainer")
class RandomQuarterTurn(_Random):
    """Rotate each square image by 0, 90, 180 or 270 degrees, without interpolation."""

    def change(self, images: tf.Tensor) -> tf.Tensor:
        count = keras.ops.shape(images)[0]
        turns = keras.random.randint([count], 0, 4, seed=self.seed_generator)[:, None, None, None]
        transposed = keras.ops.transpose(images, [0, 2, 1, 3])
        once = keras.ops.flip(transposed, 1)
        twice = keras.ops.flip(keras.ops.flip(images, 1), 2)
        thrice = keras.ops.flip(transposed, 2)
        half = keras.ops.where(turns == 0, images, once)
        other = keras.ops.where(turns == 2, twice, thrice)
        return keras.ops.where(turns < 2, half, other)


@keras.saving.register_keras_serializable("trainer")
class RandomShift(_Random):
    """Shift each image by whole pixels, up to `SHIFT` each way, and fill with black."""

    def change(self, images: tf.Tensor) -> tf.Tensor:
        count = keras.ops.shape(images)[0]
        for axis in (1, 2):
            size = images.shape[axis]
            reach = max(1, round(size * SHIFT))
            padding = [[reach, reach] if index == axis else [0, 0] for index in range(4)]
            start = keras.random.randint([count, 1], 0, 2 * reach + 1, seed=self.seed_generator)
            positions = start + keras.ops.arange(size)[None]
            images = tf.gather(tf.pad(images, padding), positions, axis=axis, batch_dims=1)
        return images


def add_augmentation(model: keras.Model, operations: list[str], seed: int) -> keras.Model:
    """Return `model`, with its weights and input, preceded by the layers of `operations`."""
    layers = {
        "horizontal_flip": lambda s: keras.layers.RandomFlip("horizontal", seed=s),
        "vertical_flip": lambda s: keras.layers.RandomFlip("vertical", seed=s),
        "quarter_turn": lambda s: RandomQuarterTurn(seed=s),
        "shift": lambda s: RandomShift(seed=s),
    }
    inputs = features = keras.Input(model.input_shape[1:], dtype=model.inputs[0].dtype)
    for number, name in enumerate(OPERATIONS, 1):
        if name in operations:
            features = layers[name](seed + number)(features)
    # Flips may return floats: cast to the dtype that the model was built for.
    features = keras.ops.cast(features, model.inputs[0].dtype)
    return keras.Model(inputs, model(features), name=f"augmented_{model.name}")
