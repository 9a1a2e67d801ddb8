"""Asynchronous training: workers take steps one by one, parameter servers hold the weights.

The chief schedules steps. A worker takes one, reads the weights from the parameter servers,
computes the gradient of a batch of its own (`batch_size` examples) and applies it there at once.

The number of steps is exact: the chief counts those that are reported done. When one dies:

* a worker: its step goes to another one; restarted, it joins again once all that are gone are
  there. A step that it had applied but not reported is done twice and counted once. One that is
  frozen is taken for gone (trainer/training/liveness.py).
* a parameter server: the chief restarts itself, waits for the server and resumes from the newest
  checkpoint. A frozen one ends the try.
* the chief: restarted, it resumes from the newest checkpoint.

Each example is not seen exactly once an epoch, and a seed does not fix the result. Variables must
exist before the first step; hash tables would live on the chief, out of a worker's reach (look
strings up while reading the records); a worker uses one accelerator.
"""

import collections
import logging
import math
import multiprocessing
import time
from typing import Any, NoReturn

import tensorflow as tf

from trainer.data.integrity import check_shards
from trainer.data.read import reader
from trainer.data.read.stream import endless_batches
from trainer.data.schema import Dataset, load_to_train
from trainer.training import evaluator, liveness, steps
from trainer.training.cluster import Cluster
from trainer.training.job import Job
from trainer.training.run import Run, TerminatedError
from trainer.training.strategies import create_strategy

STEPS_AHEAD = 2
"""Steps a worker that are handed out before the first is done: none waits for the chief."""

EVALUATOR_SECONDS = 30.0
"""How long the chief waits at the end for the evaluator, before it validates by itself."""


def train(job: Job, cluster: Cluster) -> Run:
    """Train as `job` says, as the chief, resuming from the newest checkpoint; return the run.

    Raises:
        InputError: the data set, the model or an option can't be used.
        TerminatedError: SIGTERM came.
    """
    tf.get_logger().setLevel(logging.INFO)
    tf.get_logger().addFilter(_tell_of_workers)
    dataset = load_to_train(job.dataset)
    liveness.watch("ps", cluster.addresses["ps"])
    strategy = create_strategy("parameter_server", cluster)
    liveness.watch("worker", cluster.addresses["worker"])
    return AsynchronousRun(job, cluster, strategy, dataset).run()


def serve(cluster: Cluster) -> NoReturn:
    """Serve the chief as a worker or a parameter server, until the process is ended."""
    # One accelerator is what a worker's step computes on.
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[:1] if cluster.role == "worker" else [], "GPU")
    options = tf.compat.v1.ConfigProto()
    # Each worker may hold a thread in a blocking call; fewer threads than that never end.
    threads = len(cluster.addresses["worker"]) + 1
    options.inter_op_parallelism_threads = max(threads, multiprocessing.cpu_count())
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.addresses),
        job_name=cluster.role,
        task_index=cluster.index,
        protocol="grpc",
        config=options,
    )
    print(f"{cluster.name} serves at {cluster.addresses[cluster.role][cluster.index]}", flush=True)
    server.join()
    raise AssertionError("a server never returns")


def _tell_of_workers(record: logging.LogRecord) -> bool:
    """Filter TensorFlow's log: print in a line who is gone and who is back; keep real errors.

    The rest warns that each checkpoint's function is retraced, and repeats the errors of steps,
    which come to the chief as its own where they matter.
    """
    text = record.msg if isinstance(record.msg, str) else ""
    if text.startswith("Worker %s failed") and isinstance(record.args, tuple):
        print(f"{record.args[0]} is gone; the others go on", flush=True)
        return False
    if text.startswith("Worker %s has been recovered"):
        print(f"{record.getMessage().split()[1]} is back", flush=True)
        return False
    repeated = ("Cluster update failed", "Remote function on worker", " /job:worker/task:%d enc")
    return record.levelno >= logging.ERROR and not text.startswith(repeated)


class AsynchronousRun(Run):
    """The chief's part of a run, whose workers take steps as they come.

    `model` and the optimizer live on the parameter servers. `twin`, the same model on the
    chief's own device, takes its weights over to be validated and exported.
    """

    def __init__(
        self, job: Job, cluster: Cluster, strategy: tf.distribute.Strategy, dataset: Dataset
    ) -> None:
        self.base = job.base_output_directory
        super().__init__(job, cluster, strategy, dataset)
        self.twin = self.prepared.build(self.dataset)
        own_device = create_strategy("one_device", Cluster())
        self.validation = steps.validation(own_device, self.twin, self.dataset, self.share)

    def set_share(self) -> None:
        self.replicas = len(self.cluster.addresses["worker"])
        self.share = reader.InputShare(batch_size=self.config.batch_size)

    def prepare_steps(self) -> None:
        # Before workers read: where their input is traced, an error becomes a stack trace.
        check_shards(self.dataset, self.dataset.splits["train"].shards)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self.worker_step = self._worker_step()
        self.batches: Any = None

    def run(self) -> Run:
        super().run()
        self._update_twin()
        self._complete_history()
        self.model = self.twin
        return self

    def _worker_step(self) -> Any:
        """Return a function of a worker's iterator to float32 [4]: its sums, seconds of waiting."""
        variables = self.network.trainable_variables
        compute = steps.gradients(self.network, self.optimizer, self.dataset, self.config)
        examples = float(self.config.batch_size)

        @tf.function
        def step(batches: Any) -> tf.Tensor:
            started = tf.timestamp()
            with tf.control_dependencies([started]):
                inputs, labels, weights = next(batches)
            with tf.control_dependencies([weights]):
                waited = tf.cast(tf.timestamp() - started, tf.float32)

            def replica_step(inputs: Any, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
                found, sums = compute(inputs, labels, weights, examples)
                self.optimizer.apply(found, variables)
                return sums

            sums = self.strategy.run(replica_step, args=(inputs, labels, weights))
            return tf.concat([sums, [waited]], axis=0)

        return step

    def _worker_batches(self) -> tf.data.Dataset:
        """Traced once, run on each worker, and again on one that was restarted."""
        # With a graph's seed of 0, tf.data takes no seed that is only known on the worker.
        tf.compat.v1.set_random_seed(1)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        # By the step too: who starts again does not begin with what was seen at first.
        step = tf.cast(self.optimizer.iterations.value, tf.int64)
        seed = (self.config.seed * 1_000_003 + worker) * 1_000_003 + step
        megabytes = self.config.shuffle_megabytes
        return endless_batches(self.dataset, self.share, seed=seed, shuffle_megabytes=megabytes)

    def train_epoch(self) -> None:
        """Hands out the steps that are left of the epoch, and takes their reports.

        Before a checkpoint all steps that were handed out are waited for: what it holds are
        the weights after exactly as many steps as it says.
        """
        if self.batches is None:
            self.batches = iter(self.coordinator.create_per_worker_dataset(self._worker_batches))
        progress = self.progress
        running: collections.deque[Any] = collections.deque()
        while progress.step < self.steps:
            started = time.monotonic()
            until = self._next_checkpoint()
            while (
                not self.told_to_stop
                and progress.step + len(running) < until
                and len(running) < STEPS_AHEAD * self.replicas
            ):
                running.append(self.coordinator.schedule(self.worker_step, args=(self.batches,)))
            if running:
                self._take(running.popleft())
            progress.seconds += time.monotonic() - started
            if not running and progress.step < self.steps:
                self._count_steps()
                self.checkpoints.save()
                if self.told_to_stop:
                    raise TerminatedError(f"at epoch {progress.epoch + 1}, step {progress.step}")
            self.log.step(progress, self.optimizer_step)
        self._count_steps()

    def _next_checkpoint(self) -> int:
        """Return the step of this epoch before which the next checkpoint is due."""
        every = self.config.checkpoint_steps
        if not every:
            return self.steps
        return min(self.steps, self.progress.step + every - self.optimizer_step % every)

    def _take(self, report: Any) -> None:
        """Waits for a step and adds what it reports."""
        try:
            loss, correct, examples, waited = report.fetch().tolist()
        except tf.errors.CancelledError:
            self.coordinator.join()  # Raises what all others were cancelled for.
            raise
        self.progress.sums.add(loss, correct, examples)
        self.progress.waited += waited / self.replicas
        self.progress.step += 1

    def _count_steps(self) -> None:
        """Gives the optimizer the number of steps that are done.

        Its own count comes from workers that read and write it without a lock.
        """
        phase_start = self.progress.phase_start * self.steps
        self.optimizer.iterations.assign(self.optimizer_step - phase_start)

    def _update_twin(self) -> None:
        for mine, theirs in zip(self.twin.variables, self.model.variables, strict=True):
            mine.assign(theirs.numpy())

    def validate(self) -> dict[str, float]:
        """Return the validation split's metrics; none where the evaluator's come in time."""
        if self.cluster.has_evaluator and not self._decides_by_validation:
            return {}
        self._update_twin()
        return self.validation()

    @property
    def _decides_by_validation(self) -> bool:
        """Return whether an epoch's metrics are waited for, since what follows depends on them."""
        return bool(self.keeps_best or self.phase.plateau_patience)

    def _complete_history(self) -> None:
        """Add the evaluator's metrics to the epochs that it has scored, and the last one's.

        The evaluator is shut down with the job: its last row is waited for.
        """
        progress, history = self.progress, self.progress.history
        awaited = self.cluster.has_evaluator and self.dataset.splits["validation"].examples
        awaited = awaited and not self._decides_by_validation
        seconds = EVALUATOR_SECONDS if awaited else 0.0
        scored = evaluator.scored(self.base, self.optimizer_step, seconds)
        for row in history:
            found = scored.get(row["epoch"] * self.steps)
            if found and "validation_loss" not in row:
                row.update({f"validation_{one}": float(found[one]) for one in ("loss", "accuracy")})
        if "validation_loss" not in history[-1]:
            history[-1].update({f"validation_{k}": v for k, v in self.validation().items()})
        monitored = f"validation_{self.config.monitor}"
        known = [row for row in history if math.isfinite(row.get(monitored, math.nan))]
        if known and not self._decides_by_validation:
            choose = min if self.config.monitor == "loss" else max
            best = choose(known, key=lambda row: row[monitored])
            progress.best_epoch, progress.best_value = best["epoch"], best[monitored]
        self.log.history(progress)
