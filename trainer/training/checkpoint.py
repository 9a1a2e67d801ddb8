"""Checkpoints: written whole by the chief, read by all, trusted only by the run that made them.

Keras' BackupAndRestore begins an interrupted epoch anew: a resumed run would end in other weights.
"""

import dataclasses
import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer import files
from trainer.config import TrainingConfig
from trainer.data.schema import Dataset, join
from trainer.errors import InputError
from trainer.training import rejoin
from trainer.training.cluster import Cluster
from trainer.training.progress import Progress

_LIST = "checkpoint"
"""TensorFlow's list of those that are whole."""

KEPT = 2
"""Checkpoints kept: should the newest be damaged, a run goes on from the one before."""

_DAMAGED = (
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    IndexError,  # A short file, to TensorFlow's reader.
)


class Checkpoints:
    """The checkpoints of a run, under `<base_output_directory>/checkpoints`.

    Every replica calls `save`, as tf.distribute asks; what the others write goes to a
    temporary folder of theirs.
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
        """Restore variables and progress from the newest checkpoint; False without one."""
        newest = _newest(self._directory)
        if newest is None:
            return False
        self._latest.checkpoint.restore(newest).assert_consumed()
        return True

    def save(self) -> None:
        """Keep variables and progress, from which a restarted job resumes."""
        self._factor.assign(self._progress.factor)
        done = self._progress
        self._save(self._latest, done.epoch * 10**9 + done.phase * 10**8 + done.step)
        rejoin.end_wait()

    def save_best(self) -> None:
        """Keep the model's variables as the best of the run."""
        self._save(self._best, self._progress.epoch)

    def _save(self, manager: tf.train.CheckpointManager, number: int) -> None:
        manager.save(checkpoint_number=number)
        # A copy of a replica that is not the chief goes at once: it may be killed any time.
        if self._temporary:
            shutil.rmtree(self._target)

    def restore_best(self) -> None:
        """Give the model's variables the values that `save_best` kept last."""
        best = _newest(join(self._directory, "best"))
        self._best.checkpoint.restore(best).assert_consumed()


def mend_lists(directory: str) -> None:
    """Make the lists of checkpoints, of the run and of its best, end in one that can be read.

    The chief calls this before any replica reads a list: all must go on from the same one. The
    files decide, since a list may be damaged, too.

    Raises:
        InputError: there is a list, and no checkpoint beside it can be read.
    """
    for folder in (directory, join(directory, "best")):
        if not tf.io.gfile.exists(join(folder, _LIST)):
            continue
        paths = _present(folder)
        whole = [*paths]
        while whole and not _is_whole(whole[-1]):
            whole.pop()
        if not whole:
            raise InputError(
                f"no checkpoint in {folder} can be read ({', '.join(paths) or 'none is there'}); "
                f"remove {directory} to train from the start"
            )
        if _newest_listed(folder) == whole[-1]:
            continue
        tf.compat.v1.train.update_checkpoint_state(folder, whole[-1], whole)
        found = f"{paths[-1]} is damaged"
        if whole == paths:
            found = f"{join(folder, _LIST)} does not name the newest checkpoint"
        print(f"{found}; going on from {whole[-1]}", flush=True)


def _present(directory: str) -> list[str]:
    """Return the checkpoints whose index is in a folder, the oldest first."""
    found = [re.fullmatch(r"ckpt-(\d+)\.index", name) for name in tf.io.gfile.listdir(directory)]
    numbers = sorted(int(match[1]) for match in found if match)
    return [join(directory, f"ckpt-{number}") for number in numbers]


def _is_whole(path: str) -> bool:
    """Return whether each value of a checkpoint can be read, which checks its checksum."""

    def restore(name: str, dtype: tf.DType) -> None:
        # The reader's own get_tensor tells a checksum from no other error.
        tf.raw_ops.RestoreV2(
            prefix=path, tensor_names=[name], shape_and_slices=[""], dtypes=[dtype]
        )

    try:
        # Before the reader, whose error of a damaged index is of no kind.
        restore("_CHECKPOINTABLE_OBJECT_GRAPH", tf.string)
        for name, dtype in tf.train.load_checkpoint(path).get_variable_to_dtype_map().items():
            restore(name, dtype)
    except _DAMAGED:
        return False
    return True


def progress_in(directory: str) -> Progress:
    """Return the progress in the newest checkpoint of `directory`, or that of a new run."""
    progress = Progress()
    newest = _newest(directory)
    if newest is not None:
        # By it the run knows of which variables the rest of the checkpoint is.
        tf.train.Checkpoint(progress=progress).restore(newest).expect_partial()
    return progress


def _newest(directory: str) -> str | None:
    """Return the newest checkpoint of `directory`; None where none was ever saved.

    Raises:
        RuntimeError: what is there can't be read. TensorFlow logs that and goes on as if there
            were none, so that one replica might begin anew while the others go on.
    """
    newest = _newest_listed(directory)
    if newest is None and tf.io.gfile.exists(join(directory, _LIST)):
        raise RuntimeError(f"the checkpoints in {directory} can't be read; start the job again")
    return newest


def _newest_listed(directory: str) -> str | None:
    """Return the newest checkpoint that a list names and that is there."""
    try:
        return tf.train.latest_checkpoint(directory)
    except ValueError:  # The list is damaged.
        return None


def listed(directory: str) -> list[str]:
    """Return the checkpoints that `directory` lists, which are whole, the oldest first."""
    try:
        state = tf.train.get_checkpoint_state(directory)
    except (tf.errors.OpError, ValueError):  # Replaced while it was read, or damaged.
        return []
    return list(state.all_model_checkpoint_paths) if state else []


def read(path: str, variables: Sequence[keras.Variable]) -> Progress | None:
    """Give the network's variables the values of a checkpoint, outside of the run.

    Returns:
        The progress at the checkpoint; None where it was removed, before or meanwhile.
    """
    progress = Progress()
    values = [variable.value for variable in variables]
    content = tf.train.Checkpoint(variables=values, progress=progress)
    try:
        status = content.restore(path)
    except (tf.errors.OpError, IndexError):  # A short file is an IndexError to its reader.
        return None
    status.assert_existing_objects_matched().expect_partial()
    return progress


def claim(directory: str, config: TrainingConfig, dataset: Dataset, cluster: Cluster) -> None:
    """Check that checkpoints in `directory` are this run's; the chief signs a new one.

    Raises:
        InputError: they come from another configuration, data set or topology, from which
            this run could not go on to the result that it would have had from the start.
    """
    signature = {
        **dataclasses.asdict(config),
        "dataset": hashlib.sha256(dataset.to_json().encode()).hexdigest(),
        "replicas": cluster.trainers,
    }
    path = join(directory, "run.json")
    found = files.read_json(path)
    if found is None:
        if cluster.is_chief:
            files.write_json(path, signature)
        return
    for name, value in signature.items():
        if found.get(name) != value:
            raise InputError(
                f"{directory} holds checkpoints of a run with {name}={found.get(name)!r}, not "
                f"{value!r}; give another --base_output_directory, or remove that folder"
            )
