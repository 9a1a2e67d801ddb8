"""Trainings that `trainer.fit` refuses on several replicas: prints the messages, a line each."""

import concurrent.futures
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.engine import strategies
from trainer.fit import fit
from vertex.errors import InputError

X, Y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)


class Largest(keras.metrics.Metric):
    """The largest prediction, whose state over halves of a batch does not add up."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_weight(initializer="zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(tf.maximum(self.value, tf.reduce_max(tf.abs(y_pred))))

    def result(self) -> Any:
        return self.value


class Count(keras.metrics.Metric):
    """The number of rows, which adds up."""

    def __init__(self) -> None:
        super().__init__(name="count")
        self.value = self.add_weight(initializer="zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign_add(tf.cast(tf.shape(y_pred)[0], tf.float32))

    def result(self) -> Any:
        return self.value


def main() -> None:
    strategies.divide_cpu(os.environ)
    strategy = tf.distribute.MirroredStrategy(tf.config.list_logical_devices("CPU"))

    def train(data: Any = (X, Y), callbacks: Any = None, **compiled: Any) -> dict[str, Any]:
        with strategy.scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            options = {"loss": "mse", **{k: make() for k, make in compiled.items()}}
            model.compile(**options)
        data = data if isinstance(data, tf.data.Dataset) else {"x": data[0], "y": data[1]}
        arguments = data if isinstance(data, dict) else {"x": data}
        return fit(model, **arguments, callbacks=callbacks, verbose=0).history

    def train_beside(epoch: int, logs: Any) -> None:
        with concurrent.futures.ThreadPoolExecutor() as threads:
            threads.submit(train).result()

    ragged = tf.data.Dataset.from_tensors((tf.ragged.constant([[1.0], [1.0, 2.0]]), Y[:2]))
    refused: list[dict[str, Any]] = [
        {"run_eagerly": lambda: True},
        {"loss": lambda: keras.losses.MeanSquaredError(reduction="sum")},
        {"callbacks": [keras.callbacks.BackupAndRestore("nowhere")]},
        {"data": ragged},
        {"metrics": lambda: [Largest()]},
        {"callbacks": [keras.callbacks.LambdaCallback(on_epoch_end=train_beside)]},
    ]
    for options in refused:
        try:
            train(**options)
        except InputError as error:
            print(error)
    print(train(metrics=lambda: [Count()])["count"])
