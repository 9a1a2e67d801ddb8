"""A run on one replica: phases of epochs, with validation and a checkpoint after each epoch.

Subclasses implement the steps of an epoch: trainer/training/synchronous.py and
trainer/training/asynchronous.py.
"""

import abc
import math
import signal
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.data.read import reader
from trainer.data.schema import Dataset, join, limit_examples
from trainer.errors import InputError
from trainer.models import prepare_model
from trainer.models.model import Model
from trainer.training import checkpoint, logs, weights
from trainer.training.augmentation import add_augmentation
from trainer.training.cluster import Cluster
from trainer.training.config import TrainingConfig, phases, seed_of
from trainer.training.job import Job
from trainer.training.optimization import Schedule, create_optimizer
from trainer.training.strategies import barrier, resolve


class TerminatedError(Exception):
    """This replica has received SIGTERM and saved a checkpoint from which to resume."""


class PeerTerminatedError(Exception):
    """Another replica has received SIGTERM; all saved a checkpoint from which to resume."""


def build_network(
    config: TrainingConfig, dataset: Dataset, prepared: Model, strategy: tf.distribute.Strategy
) -> tuple[keras.Model, keras.Model]:
    """Return the model of `config`, and the network to train: the model, perhaps with augmentation.

    This function sets the process's random seed and dtype policy, so that each process with these
    arguments gets the same weights (from config.warm_start, if it is set).
    """
    keras.utils.set_random_seed(seed_of(config))
    keras.config.set_dtype_policy(config.precision)
    with strategy.scope():
        model = prepared.build(dataset)
        if config.warm_start:
            weights.load(model, config.warm_start)
        if config.augmentation != "model":
            return model, model
        return model, add_augmentation(model, config.augmentation_operations, seed_of(config))


class Run(abc.ABC):
    """One replica's part of a run; subclasses implement how steps are computed."""

    replicas: int  # devices that compute gradients
    share: reader.InputShare  # part of the input that this process reads for its devices
    validation: Callable[[], dict[str, float]]  # scores the validation split
    kept_epoch: int  # epoch, from 1, whose weights the model has at the end

    def __init__(
        self, job: Job, cluster: Cluster, strategy: tf.distribute.Strategy, dataset: Dataset
    ) -> None:
        config, base = job.config, job.base_output_directory
        dataset = limit_examples(dataset, "train", config.max_train_examples)
        self.config, self.base = config, base
        self.strategy, self.cluster, self.dataset = strategy, cluster, dataset
        self.pass_steps = reader.steps_per_epoch(dataset, "train", config.batch_size)
        self.steps = config.steps_per_epoch or self.pass_steps
        self.set_share()
        self.directory = join(base, "checkpoints")
        checkpoint.claim(self.directory, config, dataset, cluster)
        if cluster.is_chief:
            checkpoint.repair_lists(self.directory)
            # Copy the files that the model needs, so that all replicas can read them.
            prepare_model(config.model, dataset, config.model_options, base)
        barrier(strategy)
        self.progress = checkpoint.read_progress(self.directory)
        self.prepared = prepare_model(config.model, dataset, config.model_options, base)
        self.model, self.network = build_network(config, dataset, self.prepared, strategy)
        self.phases = phases(config)
        self._enter_phase()
        self.log = logs.Log(base, cluster, self.steps, config)
        self.stop_requested = False

    @abc.abstractmethod
    def set_share(self) -> None:
        """Set `replicas` and `share`."""

    @abc.abstractmethod
    def prepare_steps(self) -> None:
        """Create the functions that `train_epoch` uses, for the phase's optimizer."""

    @abc.abstractmethod
    def train_epoch(self) -> None:
        """Run the remaining steps of the epoch, and count them in `progress`.

        If `stop_requested` is set, save a checkpoint and raise TerminatedError.
        """

    def validate(self) -> dict[str, float]:
        """Return the metrics of the validation split; empty if there are none."""
        return self.validation()

    def run(self) -> "Run":
        """Resume from the newest checkpoint, if any, and train to the end of the last phase."""
        self._announce(self.checkpoints.restore())
        previous = signal.signal(signal.SIGTERM, self._on_sigterm)
        try:
            self._train_phase()
            while self.phase is not self.phases[-1]:
                self._start_next_phase()
                self._train_phase()
        finally:
            signal.signal(signal.SIGTERM, previous)
        self.kept_epoch = len(self.progress.history)
        if self._ends_with_best and self.progress.best_epoch:
            self.kept_epoch = self.progress.best_epoch
            self._restore_best()
        return self

    @property
    def optimizer_step(self) -> int:
        """Return the number of steps of the whole run so far."""
        return self.progress.epoch * self.steps + self.progress.step

    @property
    def keeps_best(self) -> bool:
        """Return whether the best weights are needed at the end or for the next phase."""
        return self._ends_with_best or self.phase is not self.phases[-1]

    @property
    def _ends_with_best(self) -> bool:
        is_validated = bool(self.dataset.splits["validation"].examples)
        return is_validated and self.config.keep_epoch == "best"

    def _on_sigterm(self, *_: Any) -> None:
        self.stop_requested = True

    def _announce(self, restored: bool) -> None:
        counts = {name: split.examples for name, split in self.dataset.splits.items()}
        self.log.write_line(
            f"{self.config.model} with {self.model.count_params():,} weights, "
            f"{resolve(self.config.strategy, self.cluster)} over {self.replicas} replicas, "
            f"{counts['train']:,} training and {counts['validation']:,} validation examples"
        )
        if restored:
            self.log.write_line(
                f"resuming from the checkpoint at epoch {self.progress.epoch + 1}, "
                f"step {self.progress.step}"
            )
        self.log.write_line("compiling the first step")

    def _train_phase(self) -> None:
        """Run the remaining epochs of the phase."""
        progress = self.progress
        last = progress.phase_start + self.phase.epochs
        while progress.epoch < last and not progress.stopped:
            self.train_epoch()
            if progress.end_epoch(self._make_row(), self.phase) and self.keeps_best:
                self.checkpoints.save_best()
            self.checkpoints.save()
            self.log.epoch(progress, self.optimizer_step)

    def _make_row(self) -> dict[str, Any]:
        """Return the epoch's row of history.csv; raise InputError if training has diverged."""
        progress = self.progress
        row = {
            "epoch": progress.epoch + 1,
            "phase": progress.phase + 1,
            **progress.sums.means(),
            **{f"validation_{name}": value for name, value in self.validate().items()},
            "learning_rate": float(self.schedule(self.optimizer.iterations)),
            "images_per_second": progress.sums.examples / max(1e-9, progress.seconds),
            "input_wait_fraction": progress.waited / max(1e-9, progress.seconds),
            "seconds": progress.seconds,
        }
        if not math.isfinite(row["loss"]):
            raise InputError(
                f"the loss of epoch {row['epoch']} is not finite; lower "
                f"learning_rate={self.phase.learning_rate} or set gradient_clip_norm"
            )
        return row

    def _enter_phase(self) -> None:
        """Create the optimizer, the steps and the checkpoints for the phase `progress.phase`."""
        phase = self.phases[self.progress.phase]
        self.phase = phase
        if self.progress.phase:
            self.prepared.unfreeze(self.model, phase.fine_tune_layers)
        with self.strategy.scope():
            self.schedule = Schedule(phase, self.steps * phase.epochs)
            self.optimizer = create_optimizer(phase, self.schedule)
            self.optimizer.build(self.model.trainable_variables)
        self.prepare_steps()
        self.checkpoints = checkpoint.Checkpoints(
            self.directory,
            self.cluster,
            self.progress,
            self.model,
            [*self.network.variables, *self.optimizer.variables],
            self.schedule.factor,
        )

    def _restore_best(self) -> None:
        barrier(self.strategy)  # The chief may still be writing the best weights.
        self.checkpoints.restore_best()

    def _start_next_phase(self) -> None:
        """Start the next phase from the best weights, and save a checkpoint."""
        self._restore_best()
        self.progress.begin_phase()
        self._enter_phase()
        self.checkpoints.save()
        self.log.write_line(
            f"phase {self.progress.phase + 1} of {len(self.phases)}, from the weights of epoch "
            f"{self.progress.best_epoch}: {len(self.model.trainable_variables)} of "
            f"{len(self.model.variables)} variables are trained"
        )
