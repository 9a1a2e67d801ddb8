"""summary.json: a run's parameters, tasks, jobs and results."""

import contextlib
import importlib.metadata
import json
import pathlib
import platform
import time
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.local import run_files
from pipelines.local.run_state import RunState
from pipelines.local.services import Services
from pipelines.run_history import (
    SUMMARY_FILE_NAME,
    RunRecord,
    artifacts_of,
    select_validation,
)
from trainer import checked_json
from trainer.training.cluster import ROLES
from vertex_emulator.custom_job import CustomJob
from vertex_emulator.job_rules import is_empty

REPORT_FILE_NAME = "report.html"
_TEMPORARY_NAME = f".{SUMMARY_FILE_NAME}"
_RESERVED_BYTES = 65536
_PACKAGES = (
    "tensorflow",
    "keras",
    "numpy",
    "kfp",
    "google-cloud-pipeline-components",
    "google-cloud-aiplatform",
)


def summarize(
    record: RunRecord, state: str, run_state: RunState, services: Services, error: str
) -> dict[str, Any]:
    """Return the content of summary.json; copy the report, if any, to the run's folder."""
    evaluation = _find_outputs(run_state, "report")
    collected = _find_outputs(run_state, "model")
    models = (artifact.uri for artifact in _find_artifacts(run_state, "system.Model"))
    summary: dict[str, Any] = {
        "recipe": record.recipe,
        "state": state,
        "started": record.started,
        "seconds": round(time.monotonic() - run_state.started, 3),
        "parameters": record.parameters,
        "tasks": [
            {
                "name": task.key,
                "display_name": task.display_name,
                "state": task.state,
                "seconds": round(task.seconds, 3),
            }
            for task in run_state.tasks.values()
        ],
        "custom_jobs": [_summarize_job(job) for job in services.jobs.jobs],
        "batch_predictions": [_summarize_batch(job.message) for job in services.batches.jobs],
        "metrics": dict(evaluation["metrics"].metadata) if "metrics" in evaluation else {},
        "validation": select_validation(collected["metrics"].metadata)
        if "metrics" in collected
        else {},
        "dataset": _summarize_dataset(run_state),
        "artifacts": artifacts_of(record, run_state.folder),
        "model": next(models, None),
        "report": _copy_report(evaluation, run_state.folder),
        "predictions": evaluation["predictions"].uri if "predictions" in evaluation else None,
        "versions": _read_versions(),
    }
    if verdict := _find_outputs(run_state, "verdict"):
        summary["verdict"] = verdict["verdict"]
    if gate := _find_outputs(run_state, "decision"):
        summary["gate"] = dict(gate["decision"].metadata)
    if registration := _find_outputs(run_state, "registered_as"):
        summary |= _summarize_registration(registration, summary)
    return {**summary, "error": error} if error else summary


def _summarize_registration(
    outputs: Mapping[str, Any], summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the summary's entries about registration, which may have changed the verdict."""
    role = outputs["registered_as"]
    changed: dict[str, Any] = {}
    if outputs["registered"]:
        changed = {"registered": outputs["registered"], "registered_as": role}
    gate = summary.get("gate", {})
    if gate.get("reason") != outputs["why"]:
        verdict = "accepted" if role == "champion" else "rejected"
        changed["verdict"] = verdict
        correction = {"verdict": verdict, "role": role or "none", "reason": outputs["why"]}
        changed["gate"] = {**gate, **correction}
    return changed


def reserve(directory: pathlib.Path) -> None:
    """Reserve disk space for summary.json, so that it can be written when the disk is full."""
    with contextlib.suppress(OSError):
        (directory / _TEMPORARY_NAME).write_bytes(bytes(_RESERVED_BYTES))


def write(summary: Mapping[str, Any], directory: pathlib.Path) -> None:
    """Write summary.json atomically."""
    temporary = directory / _TEMPORARY_NAME
    temporary.unlink(missing_ok=True)
    temporary.write_text(json.dumps(checked_json.with_checksum(summary), indent=1) + "\n")
    temporary.replace(directory / SUMMARY_FILE_NAME)


def _summarize_job(job: CustomJob) -> dict[str, Any]:
    pools = []
    for index, pool in enumerate(job.message.job_spec.worker_pool_specs):
        if is_empty(pool):
            continue
        machine = pool.machine_spec
        kind = machine.accelerator_type
        replicas = [replica for replica in job.replicas if replica.pool == index]
        pools.append(
            {
                "role": ROLES[index],
                "replicas": pool.replica_count,
                "machine_type": machine.machine_type,
                "accelerator_type": kind.name if kind else None,
                "accelerator_count": machine.accelerator_count,
                "restarts": [max(0, replica.starts - 1) for replica in replicas],
                "peak_memory_bytes": [replica.peak_memory for replica in replicas],
            }
        )
    result = {"name": job.message.display_name, "state": job.state, "worker_pools": pools}
    return {**result, "error": job.error} if job.error else result


def _summarize_batch(message: Any) -> dict[str, Any]:
    return {
        "folder": message.output_info.gcs_output_directory,
        "successful": message.completion_stats.successful_count,
        "failed": message.completion_stats.failed_count,
    }


def _find_outputs(run_state: RunState, name: str) -> dict[str, Any]:
    """Return the outputs of the last task that has an output called `name`; {} if none has."""
    outputs = [task.outputs for task in run_state.tasks.values() if name in task.outputs]
    return outputs[-1] if outputs else {}


def _find_artifacts(run_state: RunState, schema_title: str) -> Iterator[Any]:
    """Yield the artifacts of a type, those of the last task first."""
    for task in reversed(run_state.tasks.values()):
        for output in task.outputs.values():
            if getattr(output, "schema_title", "") == schema_title:
                yield output


def _summarize_dataset(run_state: RunState) -> dict[str, Any] | None:
    """Return the counts of the dataset from its dataset.json; None if there is none."""
    for artifact in _find_artifacts(run_state, "system.Dataset"):
        text = run_files.read(f"{artifact.uri}/dataset.json")
        if text is None:
            continue
        content = json.loads(text)
        return {
            "examples": {name: split["examples"] for name, split in content["splits"].items()},
            "rejected": content["rejected"]["count"],
        }
    return None


def _copy_report(evaluation: Mapping[str, Any], directory: pathlib.Path) -> str | None:
    """Copy the report, a self-contained file, into the run's folder; return the copy's path."""
    content = run_files.read(evaluation["report"].uri) if evaluation else None
    if content is None:
        return None
    copy = directory / REPORT_FILE_NAME
    try:
        copy.write_bytes(content)
    except OSError:  # The disk may be full; the summary is still written.
        copy.unlink(missing_ok=True)
        return None
    return str(copy)


def _read_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
