"""Trains as trainer.task does, and keeps every replica's final weights.

    python -m tests.trainer.dump_weights LOGICAL_CPUS FOLDER FLAGS... [+ FOLDER FLAGS...]

writes `FOLDER/<role>-<index>.npz`, the model's weights by path, of one training after another.
"""

import itertools
import os
import sys
from pathlib import Path

import numpy as np

from trainer import quiet
from trainer.engine.cluster import from_environment
from trainer.training.job import parse


def main() -> None:
    quiet.import_keras()
    import tensorflow as tf

    cpus, *words = sys.argv[1:]
    tf.config.experimental.enable_op_determinism()
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * int(cpus),
    )
    for is_training, training in itertools.groupby(words, lambda word: word != "+"):
        if is_training:
            train(*training)
    tf.experimental.async_clear_error()
    sys.stdout.flush()


def train(folder: str, *flags: str) -> None:
    import keras

    from trainer.training import loop

    keras.backend.clear_session()  # Layers are named as in the first training of a process.
    cluster = from_environment(os.environ)
    trained = loop.train(parse(list(flags), {}), cluster)
    weights = {variable.path: variable.numpy() for variable in trained.model.variables}
    path = Path(folder) / f"{cluster.role}-{cluster.index}.npz"
    np.savez(path, **{name.replace("/", "|"): value for name, value in weights.items()})


if __name__ == "__main__":
    main()
    os._exit(0)
