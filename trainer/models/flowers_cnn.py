"""The network of the flowers tutorial: three convolutions, each with pooling, and a dense layer.

https://www.tensorflow.org/tutorials/images/classification
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from trainer.data.schema import Dataset
from trainer.fields import option
from trainer.models.model import Model, build_image_classifier, check_halvings

if TYPE_CHECKING:
    import keras


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlowersCnn(Model):
    """Convolutions, each followed by pooling, and a dense layer."""

    filters: list[int] = option(
        [16, 32, 64],
        help="Number of filters of each convolution, as a list; each is followed by pooling.",
        minimum=1,
    )
    units: int = option(128, help="Number of units of the dense layer.", minimum=1)

    def check_images(self, size: int, channels: int) -> None:
        check_halvings(self.filters, size)

    def build(self, dataset: Dataset) -> keras.Model:
        import keras

        layers: list[keras.Layer] = []
        for size in self.filters:
            layers += [
                keras.layers.Conv2D(size, 3, padding="same", activation="relu"),
                keras.layers.MaxPooling2D(),
            ]
        layers += [keras.layers.Flatten(), keras.layers.Dense(self.units, activation="relu")]
        return build_image_classifier("flowers_cnn", dataset, layers)
