"""Synchronous training: one loop for one device, several GPUs and several workers.

Keras 3's `fit` fails under MultiWorkerMirroredStrategy (keras#20585), so this module has its own
training step: each replica computes the gradient of its part of the global batch, divided by the
size of the global batch. One all-reduce sums the gradients and, in the same message, the metrics
and the number of replicas that have received SIGTERM.
"""

import functools
import time
from typing import Any

import tensorflow as tf

from trainer.data.read import reader
from trainer.data.schema import Dataset, load_to_train
from trainer.training import steps
from trainer.training.cluster import Cluster
from trainer.training.job import Job
from trainer.training.run import PeerTerminatedError, Run, TerminatedError
from trainer.training.strategies import create_strategy


def train(job: Job, cluster: Cluster) -> Run:
    """Train `job`, from its newest checkpoint if there is one; return the run.

    Every replica that computes gradients calls this, and ends with the same weights. After a
    SIGTERM to any of them, all stop at the same step, with TerminatedError or PeerTerminatedError.
    """
    strategy = create_strategy(job.config.strategy, cluster)
    return SynchronousRun(job, cluster, strategy, load_to_train(job.dataset)).run()


class SynchronousRun(Run):
    """A run whose replicas compute each step together, each for its part of the global batch."""

    def __init__(
        self, job: Job, cluster: Cluster, strategy: tf.distribute.Strategy, dataset: Dataset
    ) -> None:
        super().__init__(job, cluster, strategy, dataset)
        # Created once for all phases, because tracing a large model takes seconds.
        self.validation = steps.make_validation(strategy, self.model, self.dataset, self.share)

    def set_share(self) -> None:
        cluster, replicas = self.cluster, self.strategy.num_replicas_in_sync
        self.replicas = replicas
        self.share = reader.InputShare(
            batch_size=self.config.batch_size,
            worker=cluster.trainer_index if cluster.trainers > 1 else 0,
            workers=cluster.trainers,
            local_replicas=replicas // cluster.trainers,
        )

    def prepare_steps(self) -> None:
        self.train_step = steps.make_training_step(
            self.strategy, self.network, self.optimizer, self.dataset, self.config
        )

    def train_epoch(self) -> None:
        """Run the remaining steps of the epoch.

        A step's metrics are read while the next step runs, so that an accelerator never waits for
        the host. A stop therefore takes effect one step later, on all replicas.
        """
        progress = self.progress
        if progress.step == self.steps:  # The run was stopped after the last step.
            return
        batches = iter(self.read_training_input())
        running = None
        while progress.step < self.steps:
            started = time.monotonic()
            batch = next(batches)
            progress.waited += time.monotonic() - started
            examples = tf.constant(self.examples_at(progress.step))
            step = self.train_step(*batch, examples, tf.constant(float(self.stop_requested)))
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
                error = TerminatedError if self.stop_requested else PeerTerminatedError
                raise error(f"at epoch {progress.epoch + 1}, step {progress.step}")
            self.log.step(progress, self.optimizer_step)
        if running is not None:
            started = time.monotonic()
            self._finish(running)
            progress.seconds += time.monotonic() - started

    def _finish(self, step: tf.Tensor) -> bool:
        """Add a step's metrics to the sums; return True if a replica has received SIGTERM."""
        loss, correct, examples, stop = step.numpy().tolist()
        self.progress.sums.add(loss, correct, examples)
        return stop > 0

    def examples_at(self, step: int) -> float:
        """Return the number of examples, without padding, in the epoch's global batch `step`."""
        total = self.dataset.splits["train"].examples
        position = (self.progress.epoch * self.steps + step) % self.pass_steps
        return float(min(self.config.batch_size, total - position * self.config.batch_size))

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
        return steps.distribute(self.strategy, whole)
