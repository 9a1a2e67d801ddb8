"""Read the weights that a training job has learned from downloaded files."""

from pathlib import Path

import numpy as np
import tensorflow as tf


def newest_checkpoint(base: Path) -> dict[str, np.ndarray]:
    """Weights and optimizer by name, in the last checkpoint of a base_output_directory.

    The list of checkpoints names them where they were saved, in the bucket.
    """
    state = tf.train.get_checkpoint_state(str(base / "checkpoints"))
    return variables(base / "checkpoints" / Path(state.model_checkpoint_path).name)


def variables(prefix: Path) -> dict[str, np.ndarray]:
    """Variables by name, in the checkpoint or SavedModel with this prefix."""
    reader = tf.train.load_checkpoint(str(prefix))
    names = [name for name in reader.get_variable_to_shape_map() if "VARIABLE_VALUE" in name]
    return {name: reader.get_tensor(name) for name in names}


def assert_equal_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Fail unless both have the same names, and each name the same bits."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name, strict=True)


def as_bytes(value: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    return value.shape, value.tobytes()
