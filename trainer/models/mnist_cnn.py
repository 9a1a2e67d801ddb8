"""The MNIST network of the tutorials on training with several workers.

One convolution and one dense layer, as in
https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras, with the pooling that
most of its copies add. Test accuracy 0.99; see pipelines/recipes/mnist.toml.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainer.data.schema import Dataset
from trainer.fields import option
from trainer.models.model import Model, build_image_classifier
from vertex.errors import InputError

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True, kw_only=True)
class MnistCnn(Model):
    """One convolution and one dense layer."""

    filters: int = option(32, help="Number of filters of the convolution.", minimum=1)
    units: int = option(128, help="Number of units of the dense layer.", minimum=1)

    def check_images(self, size: int, channels: int) -> None:
        # The convolution removes a pixel on each side, and pooling halves the result.
        if size < 4:
            raise InputError(f"image_size={size} is too small for mnist_cnn; set 4 or more")

    def build(self, dataset: Dataset) -> keras.Model:
        import keras

        layers = [
            keras.layers.Conv2D(self.filters, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(self.units, activation="relu"),
        ]
        return build_image_classifier("mnist_cnn", dataset, layers)
