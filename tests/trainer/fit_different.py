"""Workers whose batches, weights or readers differ."""

import json
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.fit import fit, is_chief
from vertex.errors import InputError


class Apart(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.1 if is_chief() else 0.2


def main() -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", loss="mse")
    chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    x = np.full((8, 2), float(chief), np.float32)
    fit(model, x, x.sum(axis=1), verbose=0)
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(4)
    unordered = data.map(lambda *row: row, num_parallel_calls=2, deterministic=False)
    for given, callbacks in ((data, [Apart()]), (unordered, [])):
        try:
            fit(model, given, verbose=0, epochs=2, callbacks=callbacks)
        except InputError as error:
            print(error)


if __name__ == "__main__":
    main()
