"""Run a replica according to its role."""

import os
import platform
import statistics
import sys
import time

import keras
import tensorflow as tf

from trainer import checked_json
from trainer.data import storage
from trainer.data.schema import join, load_to_train
from trainer.errors import RETRY_EXIT_CODE, InputError, first_line
from trainer.exported.results import HISTORY, METRICS
from trainer.training import asynchronous, evaluator, loop, strategies, weights
from trainer.training.cluster import Cluster, from_environment
from trainer.training.export import export
from trainer.training.job import Job
from trainer.training.loop import PeerTerminatedError, Run, TerminatedError

RETRIED = "retry attempts failed"
PEER_GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,  # At startup, TensorFlow waits for peers for an hour.
)

REPLACED = (
    "Unable to find the relevant tensor remote_handle",
    "Resource input tensor contains an invalid device",
)
"""Texts of an InvalidArgumentError if a replica restarted or ended before its loss was noticed."""


class PeerGoneError(Exception):
    """Another replica was lost; a new process can wait for it and resume from the checkpoint."""


def run(job: Job) -> int:
    """Train, serve or evaluate; the chief also exports. Return the process's exit code.

    Raise PeerGoneError if another replica was lost, so that a new process can resume.
    """
    strategies.check_accelerators(job.accelerator_count, os.environ)
    strategies.divide_cpu(os.environ)
    cluster = from_environment(os.environ, job.evaluator_pool)
    try:
        if cluster.role == "evaluator":
            results = join(job.base_output_directory, METRICS)
            evaluator.evaluate(job, load_to_train(job.dataset), results)
        else:
            _train(job, cluster)
    except TerminatedError as stop:
        print(f"{cluster.name}: told to stop {stop}; a checkpoint is saved", flush=True)
        return RETRY_EXIT_CODE
    except PeerTerminatedError as stop:
        raise PeerGoneError(f"a peer of {cluster.name} was told to stop {stop}") from None
    except (*PEER_GONE, tf.errors.InvalidArgumentError) as error:
        is_replaced = any(text in str(error) for text in REPLACED)
        if isinstance(error, tf.errors.InvalidArgumentError) and not is_replaced:
            raise
        # The Cloud Storage client raises an error of the same type when its retries fail.
        if RETRIED not in str(error):
            raise PeerGoneError(f"a peer of {cluster.name} is gone ({first_line(error)})") from None
        print(f"error: storage does not answer: {first_line(error)}", file=sys.stderr)
        return RETRY_EXIT_CODE
    except tf.errors.UnimplementedError as error:
        if not job.config.xla:
            raise
        raise InputError(
            f"xla=true: XLA has no deterministic form of an operation of model="
            f"{job.config.model!r} ({first_line(error)}); set xla=false"
        ) from None
    except RuntimeError as error:
        if not job.config.xla or "merge_call" not in str(error):
            raise
        raise InputError(
            f"xla=true: in model={job.config.model!r}, a layer such as batch normalization waits "
            "for other devices, which XLA can't compile; set xla=false"
        ) from None
    except tf.errors.ResourceExhaustedError as error:
        if "No space left" in str(error):
            raise InputError(
                f"no space left to write to {job.base_output_directory} ({first_line(error)}); "
                "free some space and run the job again: it resumes from the last complete "
                "checkpoint"
            ) from None
        raise InputError(
            f"batch_size={job.config.batch_size} and model={job.config.model!r} do not fit into "
            f"the memory of {cluster.name} ({first_line(error)}); use a smaller batch size or "
            "model, or a larger machine"
        ) from None
    return 0


def _train(job: Job, cluster: Cluster) -> None:
    """Train, or run steps for the chief; the chief writes the results."""
    strategy = strategies.resolve(job.config.strategy, cluster, xla=job.config.xla)
    started = time.monotonic()
    if strategy == "parameter_server":
        if not cluster.is_chief:
            asynchronous.serve(cluster)
        trained = asynchronous.train(job, cluster)
    else:
        tf.config.experimental.enable_op_determinism()
        trained = loop.train(job, cluster)
    if cluster.is_chief:
        _write_results(trained, job, strategy, time.monotonic() - started)
    # No replica may exit while another needs it for a collective operation. A peer may exit as soon
    # as it has passed this last barrier: when the results are written, its loss is not a failure.
    try:
        strategies.barrier(trained.strategy)
    except PEER_GONE:
        if not tf.io.gfile.exists(join(job.base_output_directory, METRICS)):
            raise


def _write_results(trained: Run, job: Job, strategy: str, seconds: float) -> None:
    """Write model.keras, model/ and, last, metrics.json, which marks the results as complete."""
    base = job.base_output_directory
    weights.save(trained.model, join(base, weights.FILE_NAME))
    export(trained.model, trained.dataset, join(base, "model"), weights.FILE_NAME, HISTORY)
    history = trained.progress.history
    row = history[trained.kept_epoch - 1]
    # The first epoch includes tracing the step.
    steady = [epoch["examples_per_second"] for epoch in history[1:] or history]
    metrics = {
        "epochs": len(history),
        "best_epoch": trained.progress.best_epoch,
        "kept_epoch": trained.kept_epoch,
        "stopped": trained.progress.stopped,
        "stopped_phases": [*trained.progress.stops, trained.progress.stopped],
        "steps": trained.optimizer_step,
        "seconds": seconds,
        "examples_per_second": statistics.median(steady),
        "strategy": strategy,
        "replicas": trained.replicas,
        "model": job.config.model,
        "parameters": trained.model.count_params(),
        "precision": job.config.precision,
        "train": {name: row[name] for name in trained.task.measured},
        "validation": {
            name: row[f"validation_{name}"]
            for name in trained.task.measured
            if f"validation_{name}" in row
        },
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
    }
    storage.write_json(join(base, METRICS), checked_json.with_checksum(metrics))
    kept, best = trained.kept_epoch, trained.progress.best_epoch
    which = f"epoch {kept} of {len(history)}{', the best' if kept == best else ''}"
    print(f"model exported to {join(base, 'model')}, with the weights of {which}", flush=True)
