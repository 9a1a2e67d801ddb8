"""A wide and deep network as the tutorials of taxi trips have it, as a training program.

Train it with parameter servers, or on workers that compute each step together.
"""

import keras
from keras import layers

from trainer.data.read.reader import read_for_keras
from trainer.data.schema import Dataset
from trainer.data.tables import inputs
from trainer.fit import create_strategy, fit


def main(dataset: Dataset, directory: str, *, epochs: int = 5) -> keras.Model:
    categories = inputs.list_categories(dataset)
    with create_strategy().scope():
        numbers = keras.Input([inputs.number_count(dataset)], name="numbers")
        ids = keras.Input([len(categories)], dtype="int32", name="ids")
        one_hot = [
            layers.CategoryEncoding(one.size, output_mode="one_hot")(ids[:, place : place + 1])
            for place, one in enumerate(categories)
        ]
        wide = layers.Concatenate()(one_hot)
        deep = layers.Concatenate()([numbers, *one_hot])
        for units in (100, 70, 48, 34):
            deep = layers.Dense(units, activation="relu")(deep)
        logits = layers.Dense(len(dataset.classes))(layers.Concatenate()([wide, deep]))
        model = keras.Model({"numbers": numbers, "ids": ids}, logits)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"])
    fit(
        model,
        read_for_keras(dataset, "train", 64, seed=1),
        validation_data=read_for_keras(dataset, "validation", 64),
        epochs=epochs,
        directory=f"{directory}/checkpoints",
    )
    return model
