"""Trains as trainer.task does, and keeps every replica's final weights.

    python -m tests.trainer.dump_weights FOLDER LOGICAL_CPUS FLAGS...

writes `FOLDER/<role>-<index>.npz`, the model's weights by path.
"""

import os
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from trainer.training import synchronous
from trainer.training.cluster import from_environment
from trainer.training.job import parse


def main() -> None:
    folder, cpus, *flags = sys.argv[1:]
    tf.config.experimental.enable_op_determinism()
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * int(cpus),
    )
    cluster = from_environment(os.environ)
    trained = synchronous.train(parse(flags, {}), cluster)
    weights = {variable.path: variable.numpy() for variable in trained.model.variables}
    path = Path(folder) / f"{cluster.role}-{cluster.index}.npz"
    np.savez(path, **{name.replace("/", "|"): value for name, value in weights.items()})
    tf.experimental.async_clear_error()
    sys.stdout.flush()


if __name__ == "__main__":
    main()
    os._exit(0)
