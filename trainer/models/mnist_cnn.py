"""The network of the tutorials on training with several workers, for MNIST.

One convolution with pooling and one dense layer, as in
https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras, with the pooling that
most of its copies have. Test accuracy 0.99; see pipelines/recipes/mnist.toml.
"""

import keras

from trainer.data.schema import Dataset
from trainer.models.model_options import MnistCnn


def build(dataset: Dataset, options: MnistCnn) -> keras.Model:
    """Builds a convolution, pooling, a dense layer, logits."""
    image = dataset.feature("image")
    return keras.Sequential(
        [
            keras.Input(image.shape, dtype=image.dtype, name=image.name),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(options.filters, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(options.units, activation="relu"),
            keras.layers.Dense(len(dataset.classes), dtype="float32", name="logits"),
        ],
        name="mnist_cnn",
    )
