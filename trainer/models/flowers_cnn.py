"""The network of the flowers tutorial: three convolutions, each with pooling, and a dense layer.

https://www.tensorflow.org/tutorials/images/classification
"""

import keras

from trainer.dataset.schema import Dataset


def build(
    dataset: Dataset, *, filters: tuple[int, ...] = (16, 32, 64), units: int = 128
) -> keras.Model:
    """Builds convolution and pooling for each size of `filters`, a dense layer, logits.

    Args:
        dataset: its images, [height, width, channels], must survive len(filters) halvings.
        filters: of the convolutions, one before each pooling.
        units: of the dense layer.
    """
    image = dataset.feature("image")
    layers: list[keras.Layer] = [
        keras.Input(image.shape, dtype=image.dtype, name=image.name),
        keras.layers.Rescaling(1 / 255),
    ]
    for size in filters:
        layers += [
            keras.layers.Conv2D(size, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
        ]
    layers += [
        keras.layers.Flatten(),
        keras.layers.Dense(units, activation="relu"),
        keras.layers.Dense(len(dataset.classes), dtype="float32", name="logits"),
    ]
    return keras.Sequential(layers, name="flowers_cnn")
