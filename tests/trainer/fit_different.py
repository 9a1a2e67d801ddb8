"""Workers whose batches differ; each ends with exit code 2."""

import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf

from trainer.errors import InputError
from trainer.fit import fit

if __name__ == "__main__":
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(loss="mse")
    is_chief = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief"
    x = np.full((8, 2), float(is_chief), np.float32)
    try:
        fit(model, x, x.sum(axis=1), verbose=0)
    except InputError as error:
        print(error)
        sys.exit(2)
