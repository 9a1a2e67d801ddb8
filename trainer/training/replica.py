"""Run a replica according to its role."""

import os
import platform
import statistics
import sys
import time
from typing import Any

import keras
import tensorflow as tf

from trainer.data import storage
from trainer.data.schema import Dataset
from trainer.data.storage import join
from trainer.engine import agreement, parameter_servers, strategies
from trainer.engine.cluster import Cluster, from_environment
from trainer.engine.error_causes import PEER_ERRORS, Cause, find_cause
from trainer.exported import keras_file
from trainer.exported.export import export
from trainer.exported.results import HISTORY, METRICS
from trainer.models import find_model_class
from trainer.training import asynchronous, evaluator, loop, program, trial
from trainer.training.job import Job
from trainer.training.loop import PeerTerminatedError, TerminatedError, TrainingLoop
from vertex import checked_json
from vertex.errors import RETRY_EXIT_CODE, InputError, first_line


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
            evaluator.evaluate(job)
        else:
            _train(job, cluster)
    except TerminatedError as stop:
        print(f"{cluster.name}: told to stop {stop}; a checkpoint is saved", flush=True)
        return RETRY_EXIT_CODE
    except PeerTerminatedError as stop:
        raise PeerGoneError(f"a peer of {cluster.name} was told to stop {stop}") from None
    except (tf.errors.OpError, RuntimeError) as error:
        return _handle_error(error, job, cluster)
    return 0


def _handle_error(error: Exception, job: Job, cluster: Cluster) -> int:
    """Return the exit code after an error of TensorFlow, or raise what its cause asks for."""
    line, config = first_line(error), job.config
    match find_cause(error):
        case Cause.PEER_LOST:
            raise PeerGoneError(f"a peer of {cluster.name} is gone ({line})") from None
        case Cause.STORAGE_UNREACHABLE:
            print(f"error: storage does not answer: {line}", file=sys.stderr)
            return RETRY_EXIT_CODE
        case Cause.DISK_FULL:
            raise InputError(
                f"no space left to write to {job.base_output_directory} ({line}); free some space "
                "and run the job again: it resumes from the last complete checkpoint"
            ) from None
        case Cause.MEMORY_FULL:
            raise InputError(
                f"batch_size={config.batch_size} and model={config.model!r} do not fit into the "
                f"memory of {cluster.name} ({line}); use a smaller batch size or model, or a "
                "larger machine"
            ) from None
        case Cause.NO_XLA_KERNEL if config.xla:
            raise InputError(
                "xla=true: XLA has no deterministic form of an operation of model="
                f"{config.model!r} ({line}); set xla=false"
            ) from None
        case Cause.XLA_MERGE_CALL if config.xla:
            raise InputError(
                f"xla=true: in model={config.model!r}, a layer such as batch normalization waits "
                "for other devices, which XLA can't compile; set xla=false"
            ) from None
    raise error


def _train(job: Job, cluster: Cluster) -> None:
    """Train, or run steps for the chief; the chief writes the results."""
    started = time.monotonic()
    if cluster.is_chief:
        trial.begin(job)
    is_program = find_model_class(job.config.model).is_program
    name = "auto" if is_program else job.config.strategy
    strategy = strategies.resolve(name, cluster, xla=job.config.xla)
    if strategy == "parameter_server" and not cluster.is_chief:
        parameter_servers.serve(cluster)
    trained: TrainingLoop | program.Trained
    if is_program:
        trained = program.train(job, cluster)
    elif strategy == "parameter_server":
        trained = asynchronous.train(job, cluster)
    else:
        tf.config.experimental.enable_op_determinism()
        trained = loop.train(job, cluster)
    if cluster.is_chief:
        seconds = time.monotonic() - started
        if isinstance(trained, TrainingLoop):
            figures = _measure(trained, seconds)
        else:
            figures = trained.measure(seconds)
        _write_results(trained.model, trained.dataset, job, figures | {"strategy": strategy})
    try:
        # Until no replica needs another for a collective operation, when they may exit.
        agreement.barrier(trained.strategy)
    except PEER_ERRORS:
        # A peer may exit as soon as it has passed this last barrier.
        if not tf.io.gfile.exists(join(job.base_output_directory, METRICS)):
            raise


def _measure(trained: TrainingLoop, seconds: float) -> dict[str, Any]:
    """Return the content of metrics.json for a run of the training loop."""
    history = trained.progress.history
    row = history[trained.kept_epoch - 1]
    # The first epoch includes tracing the step.
    steady = [epoch["examples_per_second"] for epoch in history[1:] or history]
    return {
        "epochs": len(history),
        "best_epoch": trained.progress.best_epoch,
        "kept_epoch": trained.kept_epoch,
        "stopped": trained.progress.stopped,
        "stopped_phases": [*trained.progress.stops, trained.progress.stopped],
        "steps": trained.optimizer_step,
        "seconds": seconds,
        "examples_per_second": statistics.median(steady),
        "replicas": trained.replicas,
        "precision": trained.config.precision,
        "train": {name: row[name] for name in trained.task_model.measured},
        "validation": {
            name: row[f"validation_{name}"]
            for name in trained.task_model.measured
            if f"validation_{name}" in row
        },
        **({"profile": trained.profiler.result} if trained.profiler.result else {}),
    }


def _write_results(model: keras.Model, dataset: Dataset, job: Job, figures: dict[str, Any]) -> None:
    """Write model.keras, model/ and, last, metrics.json, which marks the results as complete."""
    base = job.base_output_directory
    keras_file.save(model, join(base, keras_file.FILE_NAME))
    export(model, dataset, join(base, "model"), keras_file.FILE_NAME, HISTORY)
    metrics = {
        **figures,
        "model": job.config.model,
        "parameters": model.count_params(),
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
        },
    }
    storage.write_json(join(base, METRICS), checked_json.with_checksum(metrics))
    kept, best = figures["kept_epoch"], figures["best_epoch"]
    which = f"epoch {kept} of {figures['epochs']}{', the best' if kept == best else ''}"
    print(f"model exported to {join(base, 'model')}, with the weights of {which}", flush=True)
