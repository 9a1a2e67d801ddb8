"""Checkpoints: written by the chief, read by all replicas, and valid only for the run they are of.

Keras's BackupAndRestore restarts an interrupted epoch, so a resumed run would end with other
weights.
"""

import dataclasses
import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer import checked_json
from trainer.data import storage
from trainer.data.schema import Dataset
from trainer.data.storage import join
from trainer.engine.cluster import Cluster
from trainer.errors import InputError
from trainer.training import rejoin
from trainer.training.config import TrainingConfig, read_saved
from trainer.training.progress import Progress

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
    """The checkpoints of a run, in `<base_output_directory>/checkpoints`.

    Every replica calls `save`, as tf.distribute requires; replicas other than the chief write to
    a temporary folder.
    """

    def __init__(
        self,
        directory: str,
        cluster: Cluster,
        progress: Progress,
        model: keras.Model,
        variables: Sequence[keras.Variable],
        factor: tf.Variable,
    ) -> None:
        self._directory = directory
        self._progress = progress
        self._factor = factor
        self._temporary = None
        self._target = directory
        if not cluster.is_chief:
            self._temporary = tempfile.TemporaryDirectory(prefix="checkpoints-")
            self._target = join(self._temporary.name, "copy")
        values = [variable.value for variable in variables]
        self._latest = tf.train.CheckpointManager(
            tf.train.Checkpoint(variables=values, factor=factor, progress=progress),
            self._target,
            max_to_keep=KEPT,
        )
        self._best = tf.train.CheckpointManager(
            tf.train.Checkpoint(variables=[variable.value for variable in model.variables]),
            join(self._target, "best"),
            max_to_keep=1,
        )

    def restore(self) -> bool:
        """Restore variables and progress from the newest checkpoint; return False without one."""
        newest = _find_newest(self._directory)
        if newest is None:
            return False
        self._latest.checkpoint.restore(newest).assert_consumed()
        return True

    def save(self) -> None:
        """Save variables and progress, from which a restarted job resumes."""
        progress = self._progress
        self._factor.assign(progress.factor)
        # The number rises with each step, and with a phase that begins at the same step.
        self._save(self._latest, progress.epoch * 10**9 + progress.phase * 10**8 + progress.step)
        rejoin.end_wait()

    def save_best(self) -> None:
        """Save the model's variables as the best of the run."""
        self._save(self._best, self._progress.epoch)

    def _save(self, manager: tf.train.CheckpointManager, number: int) -> None:
        manager.save(checkpoint_number=number)
        # Replicas other than the chief delete their copy now, since they may be killed at any time.
        if self._temporary:
            shutil.rmtree(self._target)

    def restore_best(self) -> None:
        """Restore the model's variables from the last `save_best`."""
        best = _find_newest(join(self._directory, "best"))
        self._best.checkpoint.restore(best).assert_consumed()


def repair_lists(directory: str) -> None:
    """Repair the lists of the run's and its best checkpoints, so that they end in a readable one.

    The chief calls this before any replica reads a list, because all must resume from the same
    checkpoint. This function reads the folder, since a list may be damaged, too.
    """
    for folder in (directory, join(directory, "best")):
        if not tf.io.gfile.exists(join(folder, _LIST)):
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
            problem = f"{join(folder, _LIST)} does not name the newest checkpoint"
        print(f"{problem}; resuming from {readable[-1]}", flush=True)


def _list_existing(directory: str) -> list[str]:
    """Return the checkpoints whose index is in a folder, oldest first."""
    names = tf.io.gfile.listdir(directory)
    matches = [re.fullmatch(r"ckpt-(\d+)\.index", name) for name in names]
    numbers = sorted(int(match[1]) for match in matches if match)
    return [join(directory, f"ckpt-{number}") for number in numbers]


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


def read_progress(directory: str) -> Progress:
    """Return the progress in the newest checkpoint of `directory`, or a new run's progress."""
    progress = Progress()
    newest = _find_newest(directory)
    if newest is not None:
        # The progress determines which variables the checkpoint contains.
        tf.train.Checkpoint(progress=progress).restore(newest).expect_partial()
    return progress


def _find_newest(directory: str) -> str | None:
    """Return the newest checkpoint of `directory`, or None if none was ever saved."""
    newest = _find_newest_listed(directory)
    # If a list can't be read, TensorFlow only logs that and continues as if there were no
    # checkpoint, so one replica might start from scratch while the others resume.
    if newest is None and tf.io.gfile.exists(join(directory, _LIST)):
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


def load(path: str, variables: Sequence[keras.Variable]) -> Progress | None:
    """Load a checkpoint into variables; return its progress, or None if it can't be read."""
    progress = Progress()
    values = [variable.value for variable in variables]
    content = tf.train.Checkpoint(variables=values, progress=progress)
    try:
        status = content.restore(path)
    except (tf.errors.OpError, IndexError):  # IndexError: a truncated file.
        return None
    status.assert_existing_objects_matched().expect_partial()
    return progress


def claim(directory: str, config: TrainingConfig, dataset: Dataset, cluster: Cluster) -> int:
    """Check that the checkpoints in `directory` are this run's; the chief writes its signature.

    Return the number of workers with which the run began.
    """
    signature = {
        **dataclasses.asdict(config),
        "dataset": hashlib.sha256(dataset.to_json().encode()).hexdigest(),
    }
    path = join(directory, "run.json")
    try:
        text = storage.read_text(path)
        if text is None:
            if cluster.is_chief:
                began = {"replicas": cluster.trainers}
                storage.write_json(path, checked_json.with_checksum({**signature, **began}))
            return cluster.trainers
        saved = checked_json.parse(text)
        saved |= dataclasses.asdict(read_saved(saved))
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); remove it and run again") from None
    for name, value in signature.items():
        if saved.get(name) != value:
            raise InputError(
                f"{directory} contains checkpoints of a run with {name}={saved.get(name)!r}, not "
                f"{value!r}; to resume that run, give it the same; else give another "
                "--base_output_directory, or remove that folder"
            )
    return int(saved["replicas"])
