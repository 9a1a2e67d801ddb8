"""Checkpoints: written by the chief, and read by all replicas.

Keras's BackupAndRestore restarts an interrupted epoch, so a resumed run would end with other
weights.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer.engine.cluster import Cluster
from vertex.errors import InputError

_LIST = "checkpoint"
"""File with TensorFlow's list of complete checkpoints."""

KEPT = 2
"""Number of checkpoints to keep: if the newest is damaged, a run resumes from the previous one."""

_DAMAGED = (
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    IndexError,  # TensorFlow's reader raises it for a truncated file.
)


class Checkpoints:
    """The checkpoints of a training in a folder: variables, and a state in Python.

    Every replica calls `save`, as tf.distribute requires; replicas other than the chief write to
    a temporary folder.
    """

    def __init__(
        self,
        directory: str,
        cluster: Cluster,
        variables: Sequence[keras.Variable | tf.Variable],
        state: tf.train.experimental.PythonState | None = None,
        *,
        keep: int | None = None,
    ) -> None:
        self._directory, self._target = directory, directory
        self._variables = variables
        self._temporary = None
        if not cluster.is_chief:
            self._temporary = tempfile.TemporaryDirectory(prefix="checkpoints-")
            self._target = f"{self._temporary.name}/copy"
        content = _make_content(variables, state)
        self._manager = tf.train.CheckpointManager(content, self._target, max_to_keep=keep or KEPT)

    def restore(self, path: str = "") -> bool:
        """Restore a checkpoint, by default the newest one; return False if there is none.

        Raise InputError if it has variables of other shapes.
        """
        path = path or find_newest(self._directory) or ""
        if not path:
            return False
        shapes = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        for number, variable in enumerate(self._variables):
            saved = shapes.get(f"variables/{number}/.ATTRIBUTES/VARIABLE_VALUE")
            if saved != [*variable.shape]:
                raise InputError(
                    f"{path} is of another model or optimizer: {variable.name} has the "
                    f"shape {[*variable.shape]}, there {saved}; give another directory"
                )
        self._manager.checkpoint.restore(path).assert_consumed()
        return True

    def save(self, number: int) -> None:
        """Save a checkpoint; its number is higher than that of those before."""
        self._manager.save(checkpoint_number=number)
        # Replicas other than the chief delete their copy now, since they may be killed at any time.
        if self._temporary:
            shutil.rmtree(self._target)


def _make_content(
    variables: Sequence[keras.Variable | tf.Variable],
    state: tf.train.experimental.PythonState | None,
) -> tf.train.Checkpoint:
    values = [one.value if isinstance(one, keras.Variable) else one for one in variables]
    return tf.train.Checkpoint(variables=values, **({"state": state} if state else {}))


def repair_lists(directory: str) -> None:
    """Repair the lists of the run's and its best checkpoints, so that they end in a readable one.

    The chief calls this before any replica reads a list, because all must resume from the same
    checkpoint. This function reads the folder, since a list may be damaged, too.
    """
    for folder in (directory, f"{directory}/best"):
        if not tf.io.gfile.exists(f"{folder}/{_LIST}"):
            continue
        paths = _list_existing(folder)
        readable = [*paths]
        while readable and not _is_readable(readable[-1]):
            readable.pop()
        if not readable:
            raise InputError(
                f"no checkpoint in {folder} can be read ({', '.join(paths) or 'there is none'}); "
                f"remove {directory} to train from the start"
            )
        if _find_newest_listed(folder) == readable[-1]:
            continue
        tf.compat.v1.train.update_checkpoint_state(folder, readable[-1], readable)
        problem = f"{paths[-1]} is damaged"
        if readable == paths:
            problem = f"{folder}/{_LIST} does not name the newest checkpoint"
        print(f"{problem}; resuming from {readable[-1]}", flush=True)


def _list_existing(directory: str) -> list[str]:
    """Return the checkpoints whose index is in a folder, oldest first."""
    names = tf.io.gfile.listdir(directory)
    matches = [re.fullmatch(r"ckpt-(\d+)\.index", name) for name in names]
    numbers = sorted(int(match[1]) for match in matches if match)
    return [f"{directory}/ckpt-{number}" for number in numbers]


def _is_readable(path: str) -> bool:
    """Return whether all values of a checkpoint can be read; reading verifies the checksums."""

    def restore(name: str, dtype: tf.DType) -> None:
        # The reader's get_tensor does not distinguish a bad checksum from other errors.
        tf.raw_ops.RestoreV2(
            prefix=path, tensor_names=[name], shape_and_slices=[""], dtypes=[dtype]
        )

    try:
        # Do this before using the reader, whose error for a damaged index has no specific type.
        restore("_CHECKPOINTABLE_OBJECT_GRAPH", tf.string)
        for name, dtype in tf.train.load_checkpoint(path).get_variable_to_dtype_map().items():
            restore(name, dtype)
    except _DAMAGED:
        return False
    return True


def read_state(path: str | None, state: tf.train.experimental.PythonState) -> None:
    """Read a state from a checkpoint, if there is one."""
    if path:
        _make_content((), state).restore(path).expect_partial()


def find_newest(directory: str) -> str | None:
    """Return the newest checkpoint of `directory`, or None if none was ever saved."""
    newest = _find_newest_listed(directory)
    # If a list can't be read, TensorFlow only logs that and continues as if there were no
    # checkpoint, so one replica might start from scratch while the others resume.
    if newest is None and tf.io.gfile.exists(f"{directory}/{_LIST}"):
        raise RuntimeError(f"the checkpoints in {directory} can't be read; start the job again")
    return newest


def _find_newest_listed(directory: str) -> str | None:
    """Return the newest checkpoint that a list names, if it exists; otherwise None."""
    try:
        return tf.train.latest_checkpoint(directory)
    except ValueError:  # The list is damaged.
        return None


def list_checkpoints(directory: str) -> list[str]:
    """Return the complete checkpoints that `directory` lists, oldest first."""
    try:
        state = tf.train.get_checkpoint_state(directory)
    except (tf.errors.OpError, ValueError):  # Replaced while it was read, or damaged.
        return []
    return list(state.all_model_checkpoint_paths) if state else []


def load(
    path: str, variables: Sequence[keras.Variable], state: tf.train.experimental.PythonState
) -> bool:
    """Load a checkpoint into its first variables and a state; return False if it can't be read."""
    try:
        status = _make_content(variables, state).restore(path)
    except (tf.errors.OpError, IndexError):  # IndexError: a truncated file.
        return False
    status.assert_existing_objects_matched().expect_partial()
    return True
