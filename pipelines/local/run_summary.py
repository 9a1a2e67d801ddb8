"""summary.json: a run's parameters, tasks, jobs and results."""

import contextlib
import dataclasses
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.runs import run_files
from pipelines.runs.run import Run
from pipelines.runs.run_folders import (
    REPORT_FILE_NAME,
    SEARCH_FILE_NAME,
    SUMMARY_FILE_NAME,
    read_record,
)
from pipelines.runs.this_machine import read_jobs
from vertex import checked_json
from vertex.emulator import job_state
from vertex.emulator.job_state import ReplicaState

_TEMPORARY_NAME = f".{SUMMARY_FILE_NAME}"
_OF_RUN = (
    "recipe", "state", "error", "parameters", "metrics", "validation", "verdict", "gate",
    "registered", "registered_as", "search", "search_report", "report", "predictions", "artifacts",
)  # fmt: skip
_OF_TASK = ("name", "display_name", "state", "seconds")
_PACKAGES = (
    "tensorflow",
    "keras",
    "numpy",
    "kfp",
    "google-cloud-pipeline-components",
    "google-cloud-aiplatform",
)


def summarize(run: Run, batch_jobs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return the content of summary.json.

    `batch_jobs` are the run's BatchPredictionJobs, in the REST API's JSON.
    """
    directory = pathlib.Path(run.link)
    return {
        **{name: getattr(run, name) for name in _OF_RUN},
        "started": read_record(directory).started,
        "seconds": round(run.seconds or 0.0, 3),
        "tasks": [{name: getattr(task, name) for name in _OF_TASK} for task in run.tasks],
        "custom_jobs": [_summarize_job(job) for job in read_jobs(directory).values()],
        "batch_predictions": [_summarize_batch(job) for job in batch_jobs],
        "dataset": _summarize_dataset(run),
        "model": next(_list_uris(run, "system.Model"), None),
        "versions": _read_versions(),
    }


def copy_pages(run: Run) -> Run:
    """Copy the pages of a run, self-contained files, to its folder; return the run with copies."""
    folder = pathlib.Path(run.link)
    return dataclasses.replace(
        run,
        report=_copy_page(run.report, folder / REPORT_FILE_NAME),
        search_report=_copy_page(run.search_report, folder / SEARCH_FILE_NAME),
    )


def _copy_page(uri: str, copy: pathlib.Path) -> str:
    """Copy a page; return the copy's path, or that of the page if it can't be copied."""
    content = run_files.read(uri) if uri else None
    if content is None:
        return uri
    try:
        copy.write_bytes(content)
    except OSError:  # The disk may be full; the summary is still written.
        copy.unlink(missing_ok=True)
        return uri
    return str(copy)


def write(summary: Mapping[str, Any], directory: pathlib.Path) -> None:
    """Write summary.json atomically."""
    temporary = directory / _TEMPORARY_NAME
    temporary.write_text(json.dumps(checked_json.with_checksum(summary), indent=1) + "\n")
    temporary.replace(directory / SUMMARY_FILE_NAME)


def _summarize_job(file: job_state.JobFile) -> dict[str, Any]:
    pools: dict[str, list[ReplicaState]] = {}
    for replica in file.replicas:
        pools.setdefault(replica.role, []).append(replica)
    specs = [spec for spec in file.job["jobSpec"]["workerPoolSpecs"] if spec]
    job = file.job
    result = {
        "name": job["displayName"],
        "state": job["state"].removeprefix("JOB_STATE_"),
        "worker_pools": [
            _summarize_pool(spec, role, replicas)
            for spec, (role, replicas) in zip(specs, pools.items(), strict=True)
        ],
    }
    error = job.get("error", {}).get("message")
    return {**result, "error": error} if error else result


def _summarize_pool(
    spec: Mapping[str, Any], role: str, replicas: Sequence[ReplicaState]
) -> dict[str, Any]:
    machine = spec["machineSpec"]
    return {
        "role": role,
        "replicas": len(replicas),
        "machine_type": machine["machineType"],
        "accelerator_type": machine.get("acceleratorType"),
        "accelerator_count": machine.get("acceleratorCount", 0),
        "restarts": [max(0, replica.starts - 1) for replica in replicas],
        "peak_memory_bytes": [replica.peak_memory for replica in replicas],
    }


def _summarize_batch(job: Mapping[str, Any]) -> dict[str, Any]:
    counts = job.get("completionStats", {})
    return {
        "folder": job.get("outputInfo", {}).get("gcsOutputDirectory", ""),
        "successful": int(counts.get("successfulCount", 0)),
        "failed": int(counts.get("failedCount", 0)),
    }


def _list_uris(run: Run, schema_title: str) -> Iterator[str]:
    """Yield the URIs of the artifacts of a type, those of the last task first."""
    for task in reversed(run.tasks):
        for artifact in task.artifacts.values():
            if artifact.get("schemaTitle") == schema_title:
                yield artifact["uri"]


def _summarize_dataset(run: Run) -> dict[str, Any] | None:
    """Return the counts of the dataset from its dataset.json; None if there is none.

    A step that reads records has named a damaged one; that of a user's own step may be another
    file.
    """
    for uri in _list_uris(run, "system.Dataset"):
        with contextlib.suppress(AttributeError, LookupError, TypeError, ValueError):
            content = json.loads(run_files.read(f"{uri}/dataset.json") or "")
            return {
                "examples": {name: split["examples"] for name, split in content["splits"].items()},
                "rejected": content["rejected"]["count"],
            }
    return None


def _read_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
