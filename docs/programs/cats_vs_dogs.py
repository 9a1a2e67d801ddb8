"""TensorFlow's tutorial of transfer learning in two phases, as a training program.

https://www.tensorflow.org/tutorials/images/transfer_learning

Keras downloads the weights of ImageNet, so the replicas need the internet; `weights` may also be a
file in a mounted bucket.
"""

import keras

from trainer.data.read.reader import read_for_keras
from trainer.data.schema import Dataset
from trainer.fit import create_strategy, fit


def main(
    dataset: Dataset,
    directory: str,
    *,
    weights: str = "imagenet",
    epochs: int = 10,
    fine_tune_epochs: int = 10,
    fine_tune_at: int = 100,
) -> keras.Model:
    train = read_for_keras(dataset, "train", 32, seed=1)
    validation = read_for_keras(dataset, "validation", 32)
    image = dataset.feature("image")
    strategy = create_strategy()
    with strategy.scope():
        backbone = keras.applications.DenseNet121(
            input_shape=image.shape, include_top=False, weights=weights or None
        )
        backbone.trainable = False
        inputs = keras.Input(image.shape, dtype=image.dtype)
        scaled = keras.applications.densenet.preprocess_input(keras.ops.cast(inputs, "float32"))
        features = keras.layers.GlobalAveragePooling2D()(backbone(scaled, training=False))
        features = keras.layers.Dropout(0.2)(features)
        model = keras.Model(inputs, keras.layers.Dense(len(dataset.classes))(features))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-4), loss, metrics=["accuracy"])
    first, second = f"{directory}/checkpoints/head", f"{directory}/checkpoints/whole"
    fit(model, train, epochs=epochs, validation_data=validation, directory=first)
    with strategy.scope():
        backbone.trainable = True
        for layer in backbone.layers[:fine_tune_at]:
            layer.trainable = False
        model.compile(keras.optimizers.RMSprop(1e-5), loss, metrics=["accuracy"])
    fit(model, train, epochs=fine_tune_epochs, validation_data=validation, directory=second)
    return model
