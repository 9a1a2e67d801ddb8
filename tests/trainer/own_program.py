"""A user's own training program, which the tests name as a model."""

import keras

from trainer.data.read.reader import read_for_keras
from trainer.data.schema import Dataset
from trainer.fit import create_strategy, fit


def main(
    dataset: Dataset, directory: str, *, epochs: int = 3, units: int, metric: str = "accuracy"
) -> keras.Model:
    strategy = create_strategy()
    keras.utils.set_random_seed(1)
    image = dataset.feature("image")
    with strategy.scope():
        layers = [
            keras.layers.Rescaling(1 / 16),
            keras.layers.Flatten(),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(len(dataset.classes)),
        ]
        model = keras.Sequential([keras.Input(image.shape, dtype=image.dtype), *layers])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=[metric])
    fit(
        model,
        read_for_keras(dataset, "train", 32, seed=1),
        validation_data=read_for_keras(dataset, "validation", 32),
        epochs=epochs,
        directory=f"{directory}/checkpoints",
    )
    return model


def forgets(dataset: Dataset, directory: str) -> None:
    """Return no model."""
