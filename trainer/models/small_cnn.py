"""A small convolutional network for small images, such as digits.

8x8 scans of digits: test accuracy 0.974 after 12 epochs; see pipelines/recipes/digits.toml.
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
class SmallCnn(Model):
    """Pairs of convolutions, each followed by pooling, and a dense layer."""

    filters: list[int] = option(
        [32, 64],
        help="Number of filters of each pair of convolutions, as a list; each pair is followed by "
        "pooling.",
        minimum=1,
    )
    units: int = option(128, help="Number of units of the dense layer.", minimum=1)
    dropout: float = option(
        0.3,
        help="Fraction of features dropped before each of the last two layers.",
        minimum=0,
        below=1,
    )

    def check_images(self, size: int, channels: int) -> None:
        check_halvings(self.filters, size)

    def build(self, dataset: Dataset) -> keras.Model:
        import keras

        layers: list[keras.Layer] = []
        for size in self.filters:
            layers += [
                keras.layers.Conv2D(size, 3, padding="same", activation="relu"),
                keras.layers.Conv2D(size, 3, padding="same", activation="relu"),
                keras.layers.MaxPooling2D(),
            ]
        layers += [
            keras.layers.Flatten(),
            keras.layers.Dropout(self.dropout),
            keras.layers.Dense(self.units, activation="relu"),
            keras.layers.Dropout(self.dropout),
        ]
        return build_image_classifier("small_cnn", dataset, layers)
