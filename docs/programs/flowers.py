"""TensorFlow's tutorial of image classification, as a training program on several CPU workers.

https://www.tensorflow.org/tutorials/images/classification
"""

import keras
from keras import layers

from trainer.data.read.reader import read_for_keras
from trainer.data.schema import Dataset
from trainer.fit import create_strategy, fit


def main(dataset: Dataset, directory: str, *, epochs: int = 15) -> keras.Model:
    keras.utils.set_random_seed(1)
    image = dataset.feature("image")
    with create_strategy().scope():
        model = keras.Sequential([
            keras.Input(image.shape, dtype=image.dtype),
            layers.Rescaling(1 / 255),
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(0.1),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(len(dataset.classes)),
        ])  # fmt: skip
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    fit(
        model,
        read_for_keras(dataset, "train", 32, seed=1),
        validation_data=read_for_keras(dataset, "validation", 32),
        epochs=epochs,
        directory=f"{directory}/checkpoints",
    )
    return model
