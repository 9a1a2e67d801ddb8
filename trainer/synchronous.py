"""Synchronous training: one loop for one device, several GPUs and several workers.

Keras 3's own `fit` fails under MultiWorkerMirroredStrategy (keras#20585), so the step is
written out: each replica computes the gradient of its part of the global batch, divided by
the size of the whole; one all-reduce sums the gradients and, in the same message, the
metrics and a flag that says whether any replica has been told to stop.
"""

import dataclasses
import functools
import math
import signal
import time
from typing import Any

import keras
import tensorflow as tf

from trainer import checkpoint, logs, steps
from trainer.augmentation import augmented
from trainer.cluster import Cluster, create_strategy, meet, name_of
from trainer.config import Job
from trainer.dataset import reader
from trainer.dataset.schema import Dataset, join, limited, load_to_train
from trainer.errors import InputError
from trainer.models import FINE_TUNED, build_model, prepare_model, unfreeze
from trainer.optimization import Schedule, create_optimizer
from trainer.phases import phases
from trainer.progress import Progress


class TerminatedError(Exception):
    """The run was told to stop (SIGTERM) and has saved a checkpoint to go on from."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """What is left of a run: the model with its final weights, and how it went.

    Attributes:
        replicas: devices that computed gradients.
        kept_epoch: from 1, whose weights the model has.
    """

    model: keras.Model
    dataset: Dataset
    progress: Progress
    strategy: tf.distribute.Strategy
    replicas: int
    kept_epoch: int


def train(job: Job, cluster: Cluster) -> Trained:
    """Trains as `job` says, going on from its newest checkpoint where there is one.

    Every replica that computes gradients calls this, and gets the same weights.

    Raises:
        InputError: the data set, the model or the batch size can't be used.
        TerminatedError: SIGTERM came to any replica; all have stopped at the same step.
    """
    config = job.config
    strategy = create_strategy(config.strategy, cluster)
    return Run(job, cluster, strategy, load_to_train(job.dataset)).run()


class Run:
    """One replica's part of a run."""

    def __init__(
        self, job: Job, cluster: Cluster, strategy: tf.distribute.Strategy, dataset: Dataset
    ) -> None:
        config = self.config = job.config
        self.strategy = strategy
        self.dataset = dataset = limited(dataset, "train", config.max_train_examples)
        self.replicas, self.share = self._replicas_and_share(cluster)
        self.pass_steps = reader.steps_per_epoch(dataset, "train", config.batch_size)
        self.steps = config.steps_per_epoch or self.pass_steps
        self.cluster = cluster
        self.directory = join(job.base_output_directory, "checkpoints")
        checkpoint.claim(self.directory, config, dataset, cluster)
        self.progress = checkpoint.progress_in(self.directory)
        self.model_options = self._prepared_options(job.base_output_directory)
        keras.utils.set_random_seed(config.seed)
        keras.config.set_dtype_policy(config.precision)
        with strategy.scope():
            self.model = self.network = build_model(config.model, dataset, self.model_options)
            if config.augmentation == "model":
                self.network = augmented(self.model, config.augmentation_operations, config.seed)
        self.phases = phases(config)
        self._enter_phase()
        self.log = logs.for_replica(job.base_output_directory, cluster, self.steps, config)
        self.told_to_stop = False

    def _replicas_and_share(self, cluster: Cluster) -> tuple[int, reader.InputShare]:
        """Devices that compute gradients, and what this process reads for those of its own."""
        replicas = self.strategy.num_replicas_in_sync
        return replicas, reader.InputShare(
            batch_size=self.config.batch_size,
            worker=cluster.trainer_index if cluster.trainers > 1 else 0,
            workers=cluster.trainers,
            local_replicas=replicas // cluster.trainers,
        )

    def _prepared_options(self, base: str) -> dict[str, Any]:
        """Options of the model, once the chief has fetched what it needs, for all to read."""
        config = self.config
        if config.model in FINE_TUNED:
            if self.cluster.is_chief:
                prepare_model(config.model, self.dataset, config.model_options, base)
            meet(self.strategy)
        return prepare_model(config.model, self.dataset, config.model_options, base)

    def _enter_phase(self) -> None:
        """Makes all that progress.phase needs: an optimizer of what learns in it, and steps."""
        phase = self.phase = self.phases[self.progress.phase]
        if self.progress.phase:
            unfreeze(phase.model, self.model, phase.fine_tune_layers)
        with self.strategy.scope():
            self.schedule = Schedule(phase, self.steps * phase.epochs)
            self.optimizer = create_optimizer(phase, self.schedule)
            self.optimizer.build(self.model.trainable_variables)
        self._prepare(self.network)
        self.checkpoints = checkpoint.Checkpoints(
            directory=self.directory,
            cluster=self.cluster,
            progress=self.progress,
            model=self.model.variables,
            variables=[*self.network.variables, *self.optimizer.variables],
            factor=self.schedule.factor,
        )

    def _next_phase(self) -> None:
        """Goes on with the best weights so far; killed from here on, a run restarts here."""
        meet(self.strategy)  # The chief may still be writing them.
        self.checkpoints.restore_best()
        self.progress.begin_phase()
        self._enter_phase()
        self.checkpoints.save()
        self.log.line(
            f"phase {self.progress.phase + 1} of {len(self.phases)}, from the weights of epoch "
            f"{self.progress.best_epoch}: {len(self.model.trainable_variables)} of "
            f"{len(self.model.variables)} variables learn"
        )

    def _prepare(self, network: keras.Model) -> None:
        """Makes what trains `network` and what validates the model in it."""
        self.train_step = steps.training_step(
            self.strategy, network, self.optimizer, self.dataset, self.config
        )
        self.take_step = steps.fed(self.strategy, self.train_step)
        self.validation = steps.Validation(self.strategy, self.model, self.dataset, self.share)

    def run(self) -> Trained:
        self._announce(self.checkpoints.restore())
        previous = signal.signal(signal.SIGTERM, self._on_sigterm)
        try:
            self._epochs()
            while self.phase is not self.phases[-1]:
                self._next_phase()
                self._epochs()
        finally:
            signal.signal(signal.SIGTERM, previous)
        kept = len(self.progress.history)
        if self.phase.early_stopping_patience and self.progress.best_epoch:
            kept = self.progress.best_epoch
            self.checkpoints.restore_best()
        return Trained(
            model=self.model,
            dataset=self.dataset,
            progress=self.progress,
            strategy=self.strategy,
            replicas=self.replicas,
            kept_epoch=kept,
        )

    def _on_sigterm(self, *_: Any) -> None:
        self.told_to_stop = True

    def _announce(self, restored: bool) -> None:
        counts = {name: split.examples for name, split in self.dataset.splits.items()}
        self.log.line(
            f"{self.config.model} with {self.model.count_params():,} weights, "
            f"{name_of(self.strategy)} over {self.replicas} replicas, "
            f"{counts['train']:,} training and {counts['validation']:,} validation examples"
        )
        if restored:
            self.log.line(
                f"going on from the checkpoint at epoch {self.progress.epoch + 1}, "
                f"step {self.progress.step}"
            )

    def _epochs(self) -> None:
        progress = self.progress
        last = progress.phase_start + self.phase.epochs
        while progress.epoch < last and not progress.stopped:
            self._train_epoch()
            row = {
                "epoch": progress.epoch + 1,
                "phase": progress.phase + 1,
                **progress.sums.means(),
                **{f"validation_{k}": v for k, v in self._validate().items()},
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
            if progress.end_epoch(row, self.phase) and self._keeps_best:
                self.checkpoints.save_best()
            self.checkpoints.save()
            self.log.epoch(progress, self.optimizer_step)

    @property
    def _keeps_best(self) -> bool:
        """Whether the best weights are wanted: at the end, or by the phase that follows."""
        return bool(self.phase.early_stopping_patience) or self.phase is not self.phases[-1]

    @property
    def optimizer_step(self) -> int:
        return self.progress.epoch * self.steps + self.progress.step

    def _train_epoch(self) -> None:
        """Takes the steps that are left of the epoch.

        A step's metrics are read while the next one runs, so that an accelerator never
        waits for the host; a stop therefore takes effect one step later, everywhere alike.
        """
        progress = self.progress
        batches = iter(self.training_input())
        running = None
        while progress.step < self.steps:
            started = time.monotonic()
            step, waited = self.take_step(
                batches, self._examples_at(progress.step), float(self.told_to_stop)
            )
            progress.waited += waited
            stop = running is not None and self._finish(running)
            running = step
            progress.step += 1
            every = self.config.checkpoint_steps
            save = every and self.optimizer_step % every == 0 and progress.step < self.steps
            if stop or save:
                stop |= self._finish(running)
                running = None
            progress.seconds += time.monotonic() - started
            if stop or save:
                self.checkpoints.save()
            if stop:
                raise TerminatedError(f"at epoch {progress.epoch + 1}, step {progress.step}")
            self.log.step(progress, self.optimizer_step)
        if running is not None:
            started = time.monotonic()
            self._finish(running)
            progress.seconds += time.monotonic() - started

    def _finish(self, step: tf.Tensor) -> bool:
        """Adds a step's metrics; True where a replica has been told to stop."""
        loss, correct, examples, stop = step.numpy().tolist()
        self.progress.sums.add(loss, correct, examples)
        return stop > 0

    def _examples_at(self, step: int) -> float:
        """Real examples of the global batch: all but in the last one of a pass."""
        total = self.dataset.splits["train"].examples
        position = (self.progress.epoch * self.steps + step) % self.pass_steps
        return float(min(self.config.batch_size, total - position * self.config.batch_size))

    def training_input(self) -> Any:
        """What is left of the epoch, for this worker's replicas: parts of one or more passes."""
        left = self.steps - self.progress.step
        number, position = divmod(self.optimizer_step, self.pass_steps)
        parts = []
        while left > 0:
            batches = reader.training_batches(
                self.dataset,
                self.share,
                seed=self.config.seed,
                epoch=number,
                first_step=position,
                shuffle_megabytes=self.config.shuffle_megabytes,
            )
            parts.append(batches)
            left -= self.pass_steps - position
            number, position = number + 1, 0
        whole = functools.reduce(lambda one, other: one.concatenate(other), parts)
        return steps.distributed(self.strategy, whole)

    def _validate(self) -> dict[str, float]:
        """Metrics of the validation split; empty where it has no example."""
        return self.validation()
