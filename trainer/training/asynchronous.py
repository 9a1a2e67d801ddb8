"""Asynchronous training: workers compute steps independently, parameter servers hold the weights.

The chief schedules steps. For each step, a worker reads the weights from the parameter servers,
computes the gradient of its own batch (`batch_size` examples), and applies it to the weights
immediately.

The number of steps is exact: the chief counts steps when they are reported done. If a replica dies:

* A worker: its step is rescheduled on another worker. A restarted worker rejoins when all lost
  workers are back. A step that was applied but not reported is done twice and counted once. A
  frozen worker is treated as lost (trainer/engine/liveness.py).
* A parameter server: the chief restarts itself, waits for the server and resumes from the newest
  checkpoint. A frozen parameter server ends this attempt of the job.
* The chief: after a restart, it resumes from the newest checkpoint.

An example may be seen more or less than once per epoch, and a seed does not make the result
reproducible. Variables must exist before the first step. Hash tables would be placed on the chief,
where workers can't read them, so strings are looked up while records are read. A worker uses one
accelerator.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trainer.data.integrity import check_shards
from trainer.data.read import reader
from trainer.data.schema import load_to_train
from trainer.engine import liveness, parameter_servers
from trainer.engine.cluster import Cluster
from trainer.engine.metric_states import add_changes
from trainer.engine.parameter_servers import Steps
from trainer.engine.strategies import create_strategy
from trainer.engine.worker_step import make_worker_step
from trainer.tasks.label_kinds import is_rising
from trainer.training import evaluator, trial
from trainer.training.config import seed_of
from trainer.training.job import Job
from trainer.training.loop import TerminatedError, TrainingLoop
from trainer.training.steps import make_validation
from trainer.training.task_model import TaskModel

EVALUATOR_SECONDS = 30.0
"""Time that the chief waits for the evaluator at the end before it validates the model itself."""


def train(job: Job, cluster: Cluster) -> TrainingLoop:
    """Train `job` as the chief, from its newest checkpoint if there is one; return the run."""
    dataset = load_to_train(job.dataset)
    return AsynchronousLoop(job, cluster, parameter_servers.connect(cluster), dataset).run()


class AsynchronousLoop(TrainingLoop):
    """The chief's part of an asynchronous run.

    The variables of `model` and of the optimizer are on the parameter servers. `local_model` is
    the same model on the chief's device; it receives the weights for validation and export.
    """

    def make_validation(self) -> Callable[[], dict[str, float]]:
        with create_strategy("one_device", Cluster()).scope():
            self.local_model = self.prepared.build(self.dataset)
            model = TaskModel(self.local_model, self.local_model, self.task_model.task, self.config)
        return make_validation(model, self.share, self.watch.beat)

    def _on_sigterm(self, *_: Any) -> None:
        super()._on_sigterm()
        liveness.exit_without(self.cluster.addresses["ps"], self.cluster.name)

    def set_share(self, began: int) -> None:
        self.replicas = len(self.cluster.addresses["worker"])
        self.share = reader.InputShare(batch_size=self.config.batch_size)

    def prepare_steps(self) -> None:
        # Check now, because an error while the workers' input is traced prints a stack trace.
        check_shards(self.dataset, self.dataset.splits["train"].shards)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self.worker_step = self._make_worker_step()
        self.batches: Any = None

    def run(self) -> TrainingLoop:
        super().run()
        self._update_local_model()
        self._complete_history()
        self.model = self.local_model
        return self

    def _make_worker_step(self) -> Any:
        """Return a worker's step, which returns the changes of metrics' states, joined.

        Last comes the time in seconds that the worker has waited for input.
        """
        model = self.task_model
        train_step = make_worker_step(model, model.train_step, model.states, merge_rows=True)

        @tf.function(autograph=False)
        def step(batches: Any) -> Any:
            started = tf.timestamp()
            with tf.control_dependencies([started]):
                batch = next(batches)
            with tf.control_dependencies([batch[-1]]):
                waited = tf.timestamp() - started
            _, changes = self.strategy.run(train_step, args=(batch,))
            return tf.concat([changes, [tf.cast(waited, tf.float32)]], 0)

        return step

    def _read_worker_batches(self) -> tf.data.Dataset:
        """Return a worker's input; traced once, then run on each worker and after each restart."""
        # With a graph seed of 0, tf.data would not accept a seed that is known only on the worker.
        tf.compat.v1.set_random_seed(1)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        # The seed also depends on the step, so that a restarted worker reads in another order.
        step = tf.cast(self.optimizer.iterations.value, tf.int64)
        seed = (seed_of(self.config) * 1_000_003 + worker) * 1_000_003 + step
        megabytes = self.config.shuffle_megabytes
        return reader.read_endless_batches(
            self.dataset, self.share, seed=seed, shuffle_megabytes=megabytes
        )

    def train_epoch(self) -> None:
        """Schedule the remaining steps of the epoch, and collect their reports.

        A checkpoint is saved only when no step is running, so that it contains the weights after
        exactly the number of steps that it records.
        """
        if self.batches is None:
            self.batches = iter(
                self.coordinator.create_per_worker_dataset(reader.plain(self._read_worker_batches))
            )
        progress = self.progress
        self.totals = self.task_model.states.make_totals(progress.totals)
        steps = Steps(self.coordinator, self.replicas, self.worker_step, self.batches)
        while progress.step < self.steps:
            until = progress.step + self.count_steps_to_checkpoint()
            started = time.monotonic()
            for report in steps.run(range(progress.step, until), lambda: self.stop_requested):
                self._add_report(report)
                progress.seconds += time.monotonic() - started
                self.log.step(progress, self.optimizer_step, self.measure)
                started = time.monotonic()
            if progress.step < self.steps:
                self._count_steps()
                self.save()
                if self.stop_requested:
                    raise TerminatedError(f"at epoch {progress.epoch + 1}, step {progress.step}")
        self._count_steps()

    def _add_report(self, report: Any) -> None:
        self.watch.beat()
        self.totals = add_changes(self.totals, report[:-1])
        self.progress.examples += self.config.batch_size
        self.progress.waited += float(report[-1]) / self.replicas
        self.progress.step += 1

    def _count_steps(self) -> None:
        """Set the optimizer's count of steps, which workers update without a lock."""
        phase_start = self.progress.phase_start * self.steps
        self.optimizer.iterations.assign(self.optimizer_step - phase_start)

    def _update_local_model(self) -> None:
        for local, remote in zip(self.local_model.variables, self.model.variables, strict=True):
            local.assign(remote.numpy())

    def validate(self) -> dict[str, float]:
        """Return the metrics of the validation split; empty if the evaluator computes them."""
        if self._leaves_validation:
            return {}
        self._update_local_model()
        return self.score_validation()

    @property
    def _leaves_validation(self) -> bool:
        """Return whether the evaluator validates: no epoch needs the metrics of the one before."""
        needed = self.keeps_best or self.phase.plateau_patience or trial.is_trial()
        return self.cluster.has_evaluator and not needed

    def _complete_history(self) -> None:
        """Add validation metrics to the last epoch and all epochs that the evaluator has scored.

        Waits for the evaluator's last row, because the evaluator is shut down with the job.
        """
        progress, history = self.progress, self.progress.history
        is_awaited = self._leaves_validation and self.dataset.splits["validation"].examples
        seconds = EVALUATOR_SECONDS if is_awaited else 0.0
        scored = evaluator.read_scores(self.base, self.optimizer_step, seconds)
        for row in history:
            scores = scored.get(row["epoch"] * self.steps)
            if scores and "validation_loss" not in row:
                for name in self.task_model.measured:
                    row[f"validation_{name}"] = float(scores[name])
        if "validation_loss" not in history[-1]:
            history[-1].update({f"validation_{k}": v for k, v in self.score_validation().items()})
        monitored = f"validation_{self.config.monitor}"
        finite = [row for row in history if math.isfinite(row.get(monitored, math.nan))]
        if finite and self._leaves_validation:
            choose = max if is_rising(self.config.monitor) else min
            best = choose(finite, key=lambda row: row[monitored])
            progress.best_epoch, progress.best_value = best["epoch"], best[monitored]
        self.log.write_history(progress)
