"""summary.json: a run's parameters, tasks, jobs and results."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import itertools
import json
import pathlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipelines.runs import run_files
from pipelines.runs.run import Run, TrainingJob
from pipelines.runs.run_folders import REPORT_FILE_NAME, SEARCH_FILE_NAME, SUMMARY_FILE_NAME
from trainer.data import storage
from vertex import checked_json
from vertex.emulator.job_state import ReplicaState

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
    return {
        **{name: getattr(run, name) for name in _OF_RUN},
        "started": run.started.astimezone(datetime.UTC).isoformat(timespec="milliseconds"),
        "seconds": round(run.seconds or 0.0, 3),
        "tasks": [{name: getattr(task, name) for name in _OF_TASK} for task in run.tasks],
        "custom_jobs": [*map(_summarize_job, run.jobs)],
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
    content = json.dumps(checked_json.with_checksum(summary), indent=1) + "\n"
    storage.write_atomically(str(directory / SUMMARY_FILE_NAME), content.encode())


def _summarize_job(job: TrainingJob) -> dict[str, Any]:
    by_role = itertools.groupby(job.replicas, key=lambda replica: replica.role)
    pools = [
        _summarize_pool(pool["machine_spec"], role, [*replicas])
        for pool, (role, replicas) in zip(job.pools, by_role, strict=True)
    ]
    result = {"name": job.display_name, "state": job.state, "worker_pools": pools}
    return {**result, "error": job.error} if job.error else result


def _summarize_pool(
    machine: Mapping[str, Any], role: str, replicas: Sequence[ReplicaState]
) -> dict[str, Any]:
    return {
        "role": role,
        "replicas": len(replicas),
        "machine_type": machine["machine_type"],
        "accelerator_type": machine.get("accelerator_type"),
        "accelerator_count": machine.get("accelerator_count", 0),
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
