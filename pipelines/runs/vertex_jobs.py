"""Runs on Vertex AI: start, find and cancel them, and read the state of their tasks and jobs."""

import re
import uuid
from collections.abc import Mapping
from typing import Any

from pipelines.project.connection import Connection
from pipelines.runs.run import ENDED, JOB_ENDED, SEARCHES, SearchTrial, job_names, read_trials
from vertex.client.cloud_errors import (
    CONFLICT,
    NOT_FOUND,
    CloudError,
    describe,
    is_unanswered,
    status_of,
    tolerated,
    translated,
)
from vertex.errors import InputError
from vertex.registry.model_upload import MADE_BY, to_label

REQUEST = "request"
"""Label that identifies the request which created a run."""

_PAGE = 100
_LISTED = ("name", "display_name", "state", "labels", "create_time", "update_time", "end_time",
           "runtime_config.gcs_output_directory")  # fmt: skip
"""Fields that `list_runs` requests; the compiled pipeline, 200 KB for each run, is left out."""
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class NameTakenError(InputError):
    """A run with the ID exists."""


class NoRunError(InputError):
    """There is no run with the ID."""


def create(connection: Connection, job: Any, run_id: str) -> Any:
    """Start a run; raise NameTakenError if the ID is taken, InputError for an invalid request.

    The ID makes it safe to retry the request after a lost answer: a label tells the run of this
    request from an earlier run of the same ID.
    """
    job.labels[REQUEST] = uuid.uuid4().hex
    with translated(f"starting the run {run_id!r}"):
        try:
            return connection.pipelines.create_pipeline_job(
                parent=connection.settings.parent,
                pipeline_job=job,
                pipeline_job_id=run_id,
                retry=connection.retry,
            )
        except KeyboardInterrupt:
            connection.say(f"The run may have started: python -m pipelines status {run_id}")
            raise
        except Exception as error:
            if is_unanswered(error):
                raise CloudError(
                    f"starting the run {run_id!r}: {describe(error)}; it may have started: "
                    f"python -m pipelines status {run_id}"
                ) from None
            if status_of(error) != CONFLICT:
                raise
        existing = _get(connection, run_id)
    if existing.labels.get(REQUEST) != job.labels[REQUEST]:
        raise NameTakenError(f"a run {run_id!r} already exists; give another --name")
    return existing


def fetch(connection: Connection, run_id: str, retry: Any = None) -> Any:
    """Return the PipelineJob with an ID; raise NoRunError if there is none."""
    if not _RUN_ID.fullmatch(run_id):
        raise InputError(f"{run_id!r} is not a run's name; `python -m pipelines runs` lists runs")
    with translated(f"asking for the run {run_id!r}"), tolerated(NOT_FOUND):
        return _get(connection, run_id, retry)
    settings = connection.settings
    raise NoRunError(
        f"no run {run_id!r} in {settings.project}, {settings.region}; `python -m pipelines runs` "
        "lists the runs"
    )


def list_runs(
    connection: Connection, recipe: str = "", *, text: str = "", limit: int | None = None
) -> list[Any]:
    """List PipelineJobs, the latest first, without their pipelines and tasks.

    Lists the runs of one recipe, or all that this project started. If `text`, a filter of the API,
    is given, it replaces the filter by labels.
    """
    from google.protobuf import field_mask_pb2

    labels = {} if text else {**MADE_BY, **({"recipe": recipe.lower()} if recipe else {})}
    request = {
        "parent": connection.settings.parent,
        "filter": text or label_filter(labels),
        "order_by": "create_time desc",
        "page_size": min(limit or _PAGE, _PAGE),
        "read_mask": field_mask_pb2.FieldMask(paths=_LISTED),
    }
    found: list[Any] = []
    with translated("listing the runs"):
        for job in connection.pipelines.list_pipeline_jobs(request):
            # Check again after the server's filter: unlabeled runs are not this project's.
            if has_labels(job, labels):
                found.append(job)
            if len(found) == limit:
                break
    return found


def cancel(connection: Connection, run_id: str) -> None:
    """Request the cancellation of a run, or of the training jobs that it left running.

    Raises InputError if all have ended.
    """
    job = fetch(connection, run_id)
    ended = state_of(job) in ENDED
    jobs = list_custom_jobs(connection, job) if ended else []
    left = [custom_job for custom_job in jobs if state_of(custom_job) not in JOB_ENDED]
    if ended and not left:
        raise InputError(f"the run {run_id!r} has already ended: {state_of(job)}")
    with translated(f"cancelling the run {run_id!r}"):
        for custom_job in left:
            connection.jobs.cancel_custom_job(name=custom_job.name)
        if left:
            return
        try:
            connection.pipelines.cancel_pipeline_job(name=job.name)
        except Exception:
            # An earlier request, whose answer was lost, may have cancelled it.
            if state_of(_get(connection, run_id)) not in ("CANCELLING", "CANCELLED"):
                raise


def list_custom_jobs(connection: Connection, job: Any) -> list[Any]:
    """Return the CustomJobs that a run's tasks launched and that still exist, oldest first."""
    names, jobs = job_names(content_of(job)), []
    with translated("asking for the training job"):
        for name in names:
            with tolerated(NOT_FOUND):
                jobs.append(connection.jobs.get_custom_job(name=name))
        if not names:
            # Others may label their jobs, too; those of runs from the console lack MADE_BY.
            made_by = MADE_BY if has_labels(job, MADE_BY) else {}
            text = label_filter({**made_by, "run": to_label(id_of(job))})
            parent = connection.settings.parent
            jobs += connection.jobs.list_custom_jobs({"parent": parent, "filter": text})
    return sorted(jobs, key=lambda custom_job: seconds_of(custom_job.create_time))


def list_trials(connection: Connection, job: Any) -> tuple[SearchTrial, ...]:
    """Return the trials of a run's search for hyperparameters."""
    trials: tuple[SearchTrial, ...] = ()
    with translated("asking for the search"):
        for name in job_names(content_of(job), SEARCHES):
            with tolerated(NOT_FOUND):
                found = connection.jobs.get_hyperparameter_tuning_job(name=name)
                trials += read_trials(content_of(found))
    return trials


def content_of(message: Any) -> dict[str, Any]:
    """Return a resource in the REST API's JSON."""
    from google.protobuf import json_format

    return json_format.MessageToDict(message._pb)


def state_of(resource: Any) -> str:
    """Return a state without its prefix: SUCCEEDED for PIPELINE_STATE_SUCCEEDED."""
    return re.sub(r"^(PIPELINE|JOB)_STATE_", "", resource.state.name)


def id_of(resource: Any) -> str:
    """Return the last part of a resource's name."""
    return resource.name.rpartition("/")[2]


def has_labels(resource: Any, labels: Mapping[str, str]) -> bool:
    """Return True if a resource has all of the labels."""
    return all(resource.labels.get(key) == value for key, value in labels.items())


def label_filter(labels: dict[str, str]) -> str:
    """Return a filter by labels for the API's list methods."""
    return " AND ".join(f'labels.{key}="{value}"' for key, value in labels.items())


def seconds_of(moment: Any) -> float:
    """Return a timestamp in seconds since 1970; 0 if it is not set."""
    return moment.timestamp() if moment else 0.0


def _get(connection: Connection, run_id: str, retry: Any = None) -> Any:
    name = f"{connection.settings.parent}/pipelineJobs/{run_id}"
    return connection.pipelines.get_pipeline_job(name=name, retry=retry or connection.retry)
