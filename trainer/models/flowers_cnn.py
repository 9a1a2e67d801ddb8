"""The network of the flowers tutorial: three convolutions, each with pooling, and a dense layer.

https://www.tensorflow.org/tutorials/images/classification
"""

import keras

from trainer.data.schema import Dataset
from trainer.models.model_options import FlowersCnn


def build(dataset: Dataset, options: FlowersCnn) -> keras.Model:
    """Builds convolution and pooling for each size of `filters`, a dense layer, logits."""
    image = dataset.feature("image")
    layers: list[keras.Layer] = [
        keras.Input(image.shape, dtype=image.dtype, name=image.name),
        keras.layers.Rescaling(1 / 255),
    ]
    for size in options.filters:
        layers += [
            keras.layers.Conv2D(size, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
        ]
    layers += [
        keras.layers.Flatten(),
        keras.layers.Dense(options.units, activation="relu"),
        keras.layers.Dense(len(dataset.classes), dtype="float32", name="logits"),
    ]
    return keras.Sequential(layers, name="flowers_cnn")
