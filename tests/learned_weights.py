"""The weights that a training job has learned, read from its files."""

from pathlib import Path

import numpy as np
import tensorflow as tf


def newest_checkpoint(base: Path) -> dict[str, np.ndarray]:
    """Read weights and optimizer by name from the last checkpoint of a base_output_directory.

    It may be a copy: the list of checkpoints holds the paths that they were saved to.
    """
    state = tf.train.get_checkpoint_state(str(base / "checkpoints"))
    return _variables(base / "checkpoints" / Path(state.model_checkpoint_path).name)


def exported(base: Path) -> list[tuple[tuple[int, ...], bytes]]:
    """Read the SavedModel's variables, sorted by shape and bytes."""
    values = _variables(base / "model" / "variables" / "variables").values()
    return sorted((value.shape, value.tobytes()) for value in values)


def _variables(prefix: Path) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if "VARIABLE_VALUE" in name and "save_counter" not in name
    }


def assert_equal_arrays(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Fail unless both have the same names, and each name the same bits."""
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name, strict=True)
