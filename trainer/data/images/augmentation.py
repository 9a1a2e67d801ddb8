"""Augment images with Keras layers that are random on each call and active only in training."""

from typing import Any

import keras
import tensorflow as tf

from trainer.data.source_options import OPERATIONS

SHIFT = 0.04
"""Largest shift as a fraction of the image's size: 1 pixel of 28, 9 pixels of 224."""


class _Random(keras.layers.Layer):
    """A layer that changes images [n, height, width, channels] randomly, only in training."""

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
        turned_90 = keras.ops.flip(transposed, 1)
        turned_180 = keras.ops.flip(keras.ops.flip(images, 1), 2)
        turned_270 = keras.ops.flip(transposed, 2)
        zero_or_one = keras.ops.where(turns == 0, images, turned_90)
        two_or_three = keras.ops.where(turns == 2, turned_180, turned_270)
        return keras.ops.where(turns < 2, zero_or_one, two_or_three)


@keras.saving.register_keras_serializable("trainer")
class RandomShift(_Random):
    """Shift each image by whole pixels, up to `SHIFT` in each direction, and fill with black."""

    def change(self, images: tf.Tensor) -> tf.Tensor:
        count = keras.ops.shape(images)[0]
        for axis in (1, 2):
            size = images.shape[axis]
            limit = max(1, round(size * SHIFT))
            padding = [[limit, limit] if index == axis else [0, 0] for index in range(4)]
            start = keras.random.randint([count, 1], 0, 2 * limit + 1, seed=self.seed_generator)
            positions = start + keras.ops.arange(size)[None]
            images = tf.gather(tf.pad(images, padding), positions, axis=axis, batch_dims=1)
        return images


def add_augmentation(model: keras.Model, operations: list[str], seed: int) -> keras.Model:
    """Return a model with the weights and input of `model`, preceded by layers for `operations`."""
    layers = {
        "horizontal_flip": lambda s: keras.layers.RandomFlip("horizontal", seed=s),
        "vertical_flip": lambda s: keras.layers.RandomFlip("vertical", seed=s),
        "quarter_turn": lambda s: RandomQuarterTurn(seed=s),
        "shift": lambda s: RandomShift(seed=s),
    }
    inputs = features = keras.Input(model.input_shape[1:], dtype=model.inputs[0].dtype)
    for number, name in enumerate(OPERATIONS, 1):
        if name in operations:
            features = layers[name]((seed + number) % 2**32)(features)
    # Flips may return floats, so cast to the dtype for which the model was built.
    features = keras.ops.cast(features, model.inputs[0].dtype)
    return keras.Model(inputs, model(features), name=f"augmented_{model.name}")
