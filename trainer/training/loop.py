"""The training loop: phases of epochs of steps, on one device, several GPUs or several workers.

The steps are those of trainer/engine: all replicas compute them together, for their rows of a
global batch, and learn how many have received SIGTERM. After each epoch, the validation split is
scored and a checkpoint is saved.

With parameter servers, trainer/training/asynchronous.py computes the steps of an epoch.
"""

import contextlib
import functools
import math
import signal
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainer.data.read import reader
from trainer.data.schema import Dataset, limit_examples, load_to_train
from trainer.data.storage import join
from trainer.engine import rejoin
from trainer.engine.agreement import barrier, check_weights
from trainer.engine.checkpoints import Checkpoints, find_newest, read_state, repair_lists
from trainer.engine.cluster import Cluster
from trainer.engine.compile_checks import check_compiled
from trainer.engine.internals import list_layers
from trainer.engine.liveness import STEP_SECONDS, StepWatch
from trainer.engine.step import repeat
from trainer.engine.strategies import create_strategy, distribute, resolve
from trainer.models import prepare_model
from trainer.training import logs, ownership
from trainer.training.config import TrainingConfig, phases
from trainer.training.job import Job
from trainer.training.optimization import LearningRate, create_optimizer
from trainer.training.profiling import StepProfiler
from trainer.training.progress import Progress
from trainer.training.steps import make_step, make_validation
from trainer.training.task_model import build_task_model
from vertex import formats
from vertex.errors import InputError


class TerminatedError(Exception):
    """This replica has received SIGTERM and saved a checkpoint from which to resume."""


class PeerTerminatedError(Exception):
    """Another replica has received SIGTERM; all saved a checkpoint from which to resume."""


def train(job: Job, cluster: Cluster) -> "TrainingLoop":
    """Train `job`, from its newest checkpoint if there is one; return the run.

    Every replica that computes gradients calls this, and ends with the same weights. After a
    SIGTERM to any of them, all stop at the same step, with TerminatedError or PeerTerminatedError.
    """
    strategy = create_strategy(job.config.strategy, cluster)
    return TrainingLoop(job, cluster, strategy, load_to_train(job.dataset)).run()


class TrainingLoop:
    """One replica's part of a run; all compute each step together, for parts of a global batch."""

    replicas: int  # devices that compute gradients
    share: reader.InputShare  # part of the input that this process reads for its devices
    kept_epoch: int  # epoch, from 1, whose weights the model has at the end
    # Of the current phase, as `_enter_phase` creates them.
    phase: TrainingConfig
    schedule: LearningRate
    optimizer: keras.optimizers.Optimizer
    checkpoints: Checkpoints

    def __init__(
        self, job: Job, cluster: Cluster, strategy: tf.distribute.Strategy, dataset: Dataset
    ) -> None:
        config, base = job.config, job.base_output_directory
        dataset = limit_examples(dataset, "train", config.max_train_examples)
        self.config, self.base = config, base
        self.strategy, self.cluster, self.dataset = strategy, cluster, dataset
        self.pass_steps = reader.steps_per_epoch(dataset, "train", config.batch_size)
        self.steps = config.steps_per_epoch or self.pass_steps
        self.steps_at_once = min(config.steps_per_execution, self.steps)
        self.directory = join(base, "checkpoints")
        self.set_share(ownership.claim(self.directory, config, dataset, cluster))
        if cluster.is_chief:
            repair_lists(self.directory)
            # Copy the files that the model needs, so that all replicas can read them.
            prepare_model(config.model, dataset, config.model_options, base)
        barrier(strategy)
        self.progress = Progress()
        read_state(find_newest(self.directory), self.progress)
        self.prepared = prepare_model(config.model, dataset, config.model_options, base)
        self.task_model = build_task_model(config, dataset, self.prepared, strategy)
        self.model = self.task_model.recipe_model
        self.totals = self.task_model.states.make_totals()
        self._check_normalization()
        self.phases = phases(config)
        self._enter_phase()
        self.log = logs.Log(base, cluster, self.steps, config, self.task_model.measured)
        self.profiler = StepProfiler(config.profile_steps, base, is_chief=cluster.is_chief)
        self.watch = StepWatch(cluster.name, STEP_SECONDS * self.steps_at_once)
        # Created once for all phases, because tracing a large model takes seconds.
        self.score_validation = self.make_validation()
        self.stop_requested = False

    def run(self) -> "TrainingLoop":
        """Resume from the newest checkpoint, if any, and train to the end of the last phase."""
        self._announce(self.checkpoints.restore())
        self.schedule.factor.assign(self.progress.factor)
        previous = signal.signal(signal.SIGTERM, self._on_sigterm)
        try:
            with self.watch if self.cluster.trainers > 1 else contextlib.nullcontext():
                self._train_phase()
                while self.phase is not self.phases[-1]:
                    self._start_next_phase()
                    self._train_phase()
        finally:
            signal.signal(signal.SIGTERM, previous)
        self.optimizer.finalize_variable_values(self.model.trainable_variables)
        self.kept_epoch = len(self.progress.history)
        if self._ends_with_best and self.progress.best_epoch:
            self.kept_epoch = self.progress.best_epoch
            self._restore_best()
        return self

    def _train_phase(self) -> None:
        """Run the remaining epochs of the phase."""
        progress = self.progress
        last = progress.phase_start + self.phase.epochs
        while progress.epoch < last and not progress.stopped:
            self.train_epoch()
            check_weights(self.strategy, self.model.trainable_variables)
            is_best = progress.end_epoch(self._make_row(), self.phase)
            if is_best and self.keeps_best:
                self.best.save(progress.epoch)
            self.save()
            self.log.epoch(progress, self.optimizer_step)

    def train_epoch(self) -> None:
        """Run the remaining steps of the epoch, and count them in `progress`.

        If a replica has received SIGTERM, save a checkpoint and raise TerminatedError or
        PeerTerminatedError.

        The metrics of `steps_per_execution` steps are read while the next ones run, so that an
        accelerator does not wait for Python. A stop therefore takes effect that much later, on all
        replicas. Within a step, an accelerator still waits for the host's branch of loss scaling.
        """
        progress = self.progress
        self.totals = self.task_model.states.make_totals(progress.totals)
        if progress.step == self.steps:  # The run was stopped after the last step.
            return
        batches = iter(self.read_training_input())
        running = None
        while progress.step < self.steps:
            self.profiler.begin_step(self.optimizer_step + 1)
            started = time.monotonic()
            count = self._count_steps_at_once()
            stops = self.run_steps(batches, count)
            stop = running is not None and self._finish(running)
            running = stops
            progress.step += count
            every = self.config.checkpoint_steps
            ends = progress.step == self.steps
            save = every and self.optimizer_step % every == 0 and not ends
            if stop or save or ends or self.optimizer_step in self.profiler.edges:
                stop |= self._finish(running)
                running = None
            self.profiler.end_step(self.optimizer_step, ends_epoch=ends)
            progress.seconds += time.monotonic() - started
            if stop or save:
                self.save()
            if stop:
                error = TerminatedError if self.stop_requested else PeerTerminatedError
                raise error(f"at epoch {progress.epoch + 1}, step {progress.step}")
            self.log.step(progress, self.optimizer_step, self.measure)

    def save(self) -> None:
        """Save a checkpoint, from which a restarted job resumes."""
        progress = self.progress
        if progress.step:
            progress.totals = self.totals.numpy().tolist()
        self.schedule.factor.assign(progress.factor)
        # The number rises with each step, and with a phase that begins at the same step.
        self.checkpoints.save(progress.epoch * 10**9 + progress.phase * 10**8 + progress.step)
        rejoin.end_wait()

    def measure(self) -> dict[str, float]:
        """Return the loss and the metrics of the epoch's steps so far."""
        return self.task_model.read(self.totals)

    def count_steps_to_checkpoint(self) -> int:
        """Return the number of steps until a checkpoint is due or the epoch ends."""
        left, every = self.steps - self.progress.step, self.config.checkpoint_steps
        return min(left, every - self.optimizer_step % every) if every else left

    def _count_steps_at_once(self) -> int:
        """Return the number of steps until this process has something to do."""
        done = self.optimizer_step
        pauses = [edge - done for edge in self.profiler.edges if edge > done]
        return min(self.steps_at_once, self.count_steps_to_checkpoint(), *pauses)

    def run_steps(self, batches: Any, count: int) -> tf.Tensor:
        """Run the next steps; return the number of replicas that have received SIGTERM.

        It is that of the last step, float32 [].
        """
        progress, most = self.progress, self.steps_at_once
        stop = tf.constant(float(self.stop_requested))
        rows = [self._rows_at(number) for number in range(progress.step, progress.step + most)]
        progress.examples += sum(size for *_, size in rows[:count])
        if most > 1:
            self.totals, stops = self.train_steps(
                batches,
                tf.constant(count),
                (self.totals, tf.zeros([])),
                tf.constant(rows, tf.int64),
                stop,
            )
            return stops
        started = time.monotonic()
        batch = next(batches)
        progress.waited += time.monotonic() - started
        self.totals, stops = self.train_step(
            batch, tf.constant(rows[0], tf.int64), self.totals, stop
        )
        return stops

    def _finish(self, stops: tf.Tensor) -> bool:
        """Wait for a step; return True if a replica has received SIGTERM."""
        is_stopped = bool(stops.numpy() > 0)
        self.watch.beat()
        return is_stopped

    def _rows_at(self, step: int) -> tuple[int, int, int]:
        """Return this worker's rows in the epoch's global batch `step`; see InputShare."""
        position = (self.progress.epoch * self.steps + step) % self.pass_steps
        return self.share.rows_at(position, self.dataset.splits["train"].examples)

    def read_training_input(self) -> Any:
        """Return the input of the remaining steps of the epoch for this worker's replicas."""
        left = self.steps - self.progress.step
        number, position = divmod(self.optimizer_step, self.pass_steps)
        parts = []
        while left > 0:
            batches = reader.read_training_batches(
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
        whole = functools.reduce(lambda first, second: first.concatenate(second), parts)
        return distribute(self.strategy, whole)

    def validate(self) -> dict[str, float]:
        """Return the metrics of the validation split; empty if there are none."""
        return self.score_validation()

    def _make_row(self) -> dict[str, Any]:
        """Return the epoch's row of history.csv; raise InputError if training has diverged."""
        progress = self.progress
        seconds = max(1e-9, progress.seconds)
        row: dict[str, Any] = {
            "epoch": progress.epoch + 1,
            "phase": progress.phase + 1,
            **self.measure(),
            **{f"validation_{name}": value for name, value in self.validate().items()},
            "learning_rate": float(tf.convert_to_tensor(self.optimizer.learning_rate)),
            "examples_per_second": progress.examples / seconds,
            # Steps that TensorFlow runs at once wait without this process.
            "input_wait_fraction": progress.waited / seconds if self.steps_at_once == 1 else None,
            "seconds": progress.seconds,
        }
        if not math.isfinite(row["loss"]):
            raise InputError(
                f"the loss of epoch {row['epoch']} is not finite; lower "
                f"learning_rate={self.phase.learning_rate} or set gradient_clip_norm"
            )
        return row

    def _start_next_phase(self) -> None:
        """Start the next phase from the best weights, and save a checkpoint."""
        self._restore_best()
        self.progress.begin_phase()
        self._enter_phase()
        self.save()
        self.log.write_line(
            f"phase {self.progress.phase + 1} of {len(self.phases)}, from the weights of epoch "
            f"{self.progress.best_epoch}: {len(self.model.trainable_variables)} of "
            f"{len(self.model.variables)} variables are trained"
        )

    def _restore_best(self) -> None:
        barrier(self.strategy)  # The chief may still be writing the best weights.
        self.best.restore()

    def _enter_phase(self) -> None:
        """Create the optimizer, the steps and the checkpoints for the phase `progress.phase`."""
        phase = self.phases[self.progress.phase]
        self.phase = phase
        if self.progress.phase:
            self.prepared.unfreeze(self.model, phase.fine_tune_layers)
        with self.strategy.scope():
            self.schedule = LearningRate(phase, self.steps * phase.epochs)
            if self.model.compiled:
                check_compiled(self.model)
                self.optimizer = self.model.optimizer
            else:
                self.optimizer = create_optimizer(phase, self.schedule)
            self.optimizer.build(self.model.trainable_variables)
        self.task_model.optimizer = self.optimizer
        self.prepare_steps()
        variables = [*self.task_model.network.variables, *self.optimizer.variables]
        self.checkpoints = Checkpoints(self.directory, self.cluster, variables, self.progress)
        self.best = Checkpoints(
            join(self.directory, "best"), self.cluster, self.model.variables, keep=1
        )

    def _check_normalization(self) -> None:
        """Raise InputError if another number of workers would normalize by other rows."""
        now, layers = self.cluster.trainers, list_layers(self.task_model.network)
        depends = any(
            isinstance(layer, keras.layers.BatchNormalization)
            and layer.trainable
            and not layer.synchronized
            for layer in layers  # `layers` of a model has no layers of nested ones.
        )
        if depends and self.share.began not in (0, now):
            raise InputError(
                f"{self.directory} contains checkpoints of a run of {self.share.began} workers, "
                f"whose batch normalization would differ with {now}; resume it with as many, "
                "normalize with synchronized=True, or give another --base_output_directory"
            )

    def set_share(self, began: int) -> None:
        """Set `replicas` and `share` of a run that began with `began` workers."""
        cluster = self.cluster
        self.replicas = self.strategy.num_replicas_in_sync
        self.share = reader.InputShare(
            batch_size=self.config.batch_size,
            worker=cluster.trainer_index,
            workers=cluster.trainers,
            local_replicas=self.replicas // cluster.trainers,
            began=began,
        )

    def prepare_steps(self) -> None:
        """Create the functions that `train_epoch` uses, for the phase's optimizer."""
        model = self.task_model
        self.train_step = make_step(model, model.train_step, jit_compile=self.config.xla)
        self.train_steps = repeat(
            lambda batch, number, results, rows, stop: self.train_step(
                batch, rows[number], results[0], stop
            )
        )

    def make_validation(self) -> Callable[[], dict[str, float]]:
        """Return the function that scores the validation split."""
        return make_validation(self.task_model, self.share, self.watch.beat)

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
        replicas = formats.count(self.replicas, "replica")
        self.log.write_line(
            f"{self.config.model} with {self.model.count_params():,} parameters, "
            f"{resolve(self.config.strategy, self.cluster)} on {replicas}, "
            f"{counts['train']:,} training and {counts['validation']:,} validation examples"
        )
        if restored:
            self.log.write_line(
                f"resuming from the checkpoint at epoch {self.progress.epoch + 1}, "
                f"step {self.progress.step}"
            )
        self.log.write_line("compiling the first step")
