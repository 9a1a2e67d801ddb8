"""TensorFlow's tutorial of MultiWorkerMirroredStrategy, as a training program.

https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
"""

import keras

from trainer.data.read.reader import read_for_keras
from trainer.data.schema import Dataset
from trainer.fit import create_strategy, fit


def main(dataset: Dataset, directory: str, *, epochs: int = 3) -> keras.Model:
    strategy = create_strategy()
    batch_size = 64 * strategy.num_replicas_in_sync
    image = dataset.feature("image")
    with strategy.scope():
        model = keras.Sequential([
            keras.Input(image.shape, dtype=image.dtype),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ])  # fmt: skip
        model.compile(
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=keras.optimizers.SGD(learning_rate=0.001),
            metrics=["accuracy"],
        )
    fit(
        model,
        read_for_keras(dataset, "train", batch_size, seed=1),
        epochs=epochs,
        validation_data=read_for_keras(dataset, "validation", batch_size),
        directory=f"{directory}/checkpoints",
    )
    return model
