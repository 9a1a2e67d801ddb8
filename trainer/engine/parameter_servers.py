"""Connect the chief of a job to its workers and parameter servers; schedule steps; run servers."""

import collections
import functools
import logging
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import tensorflow as tf

from trainer.engine import liveness
from trainer.engine.cluster import Cluster
from trainer.engine.strategies import create_strategy

STEPS_AHEAD = 2
"""Number of steps per worker that are scheduled ahead, so that no worker waits for the chief."""


def start(cluster: Cluster) -> tf.distribute.Strategy:
    """Return the strategy on the chief; on other replicas, serve the chief."""
    if not cluster.is_chief:
        serve(cluster)
    return connect(cluster)


def connect(cluster: Cluster) -> tf.distribute.Strategy:
    """Return the strategy of the chief; it waits until all servers answer."""
    tf.get_logger().setLevel(logging.INFO)
    tf.get_logger().addFilter(_filter_log)
    liveness.watch("ps", cluster.addresses["ps"])
    strategy = create_strategy("parameter_server", cluster)
    liveness.watch("worker", cluster.addresses["worker"])
    return strategy


class Steps:
    """Runs of a step, each by a worker that is free, reported in the order of their scheduling.

    If a worker is lost, others run its steps, also one whose report was lost with it.
    """

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        workers: int,
        step: Callable[..., Any],
        *arguments: Any,
    ) -> None:
        self._schedule = functools.partial(coordinator.schedule, step, args=arguments)
        self._coordinator, self._ahead = coordinator, STEPS_AHEAD * workers

    def run(
        self,
        numbers: range,
        is_stopped: Callable[[], bool],
        begin: Callable[[int], None] = lambda number: None,
    ) -> Iterator[Any]:
        """Run the steps of these numbers; yield what each has returned, or raise its error.

        Args:
            is_stopped: returns True once no more steps are to be scheduled.
            begin: called with a step's number before it is scheduled.
        """
        running: collections.deque[Any] = collections.deque()
        for number in numbers:
            if is_stopped():
                break
            begin(number)
            running.append(self._schedule())
            if len(running) == self._ahead:
                yield self._fetch(running.popleft())
        while running:
            yield self._fetch(running.popleft())

    def _fetch(self, report: Any) -> Any:
        while True:
            try:
                return report.fetch()
            except tf.errors.CancelledError:
                self._coordinator.join()  # Raises the error that cancelled the steps.
                raise
            except tf.errors.UnavailableError:  # The worker was lost after the step.
                report = self._schedule()  # Raises the error if a parameter server was lost.


def serve(cluster: Cluster) -> NoReturn:
    """Run a worker or a parameter server for the chief until the process is killed."""
    # A worker's step uses one accelerator.
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[:1] if cluster.role == "worker" else [], "GPU")
    options = tf.compat.v1.ConfigProto()
    # Each worker may block a thread with a call; with fewer threads, there would be a deadlock.
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


def _filter_log(record: logging.LogRecord) -> bool:
    """Filter TensorFlow's log: print a line for each lost or recovered worker; keep other errors.

    Other messages warn that each checkpoint's function is retraced, or repeat errors of steps,
    which are raised in the chief if they matter.
    """
    text = record.msg if isinstance(record.msg, str) else ""
    if text.startswith("Worker %s failed") and isinstance(record.args, tuple):
        print(f"{record.args[0]} is gone; the others continue", flush=True)
        return False
    if text.startswith("Worker %s has been recovered"):
        print(f"{record.getMessage().split()[1]} is back", flush=True)
        return False
    repeated = ("Cluster update failed", "Remote function on worker", " /job:worker/task:%d enc")
    return record.levelno >= logging.ERROR and not text.startswith(repeated)
