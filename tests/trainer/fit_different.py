"""Workers whose batches differ."""

import json
import os

import keras
import numpy as np
import tensorflow as tf

from trainer.fit import fit

if __name__ == "__main__":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
    is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    x = np.full((8, 2), float(is_chief), np.float32)
    fit(model, x, x.sum(axis=1), verbose=0)
