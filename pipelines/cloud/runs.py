"""Runs on Vertex AI: start, find and cancel them, and read the state of their tasks and jobs."""

import dataclasses
import re
import time
import uuid
from collections.abc import Mapping
from typing import Any

from components.registry.model_upload import MADE_BY, to_label
from components.vertex.cloud_errors import (
    CONFLICT,
    NOT_FOUND,
    CloudError,
    describe,
    is_unanswered,
    status_of,
    tolerated,
    translated,
)
from pipelines.cloud.connection import Connection
from pipelines.package import display_names
from trainer.errors import InputError

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
EXPIRED = "EXPIRED"
JOB_ENDED = (*ENDED, EXPIRED, "PARTIALLY_SUCCEEDED")
REQUEST = "request"
"""Label that identifies the request which created a run."""
JOB_KINDS = CUSTOM_JOBS, BATCH_JOBS = "customJobs", "batchPredictionJobs"

_PAGE = 100
_LISTED = ("name", "display_name", "state", "labels", "create_time", "update_time", "end_time",
           "runtime_config.gcs_output_directory")  # fmt: skip
"""Fields that `list_runs` requests; the compiled pipeline, 200 KB for each run, is left out."""
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a run."""

    name: str  # display name, the same in the console and in runs on this machine
    state: str  # of PipelineTaskDetail.State, but CACHED for SKIPPED, which means a cache hit
    seconds: float  # time from its start to its end or to now; 0 before the start
    error: str  # error message in one line; empty if there is none
    logged_as: str  # job_id of its lines in Cloud Logging; empty if it has none


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
        raise InputError(f"{run_id!r} is not a run's name; `python -m pipelines status` lists them")
    with translated(f"asking for the run {run_id!r}"), tolerated(NOT_FOUND):
        return _get(connection, run_id, retry)
    settings = connection.settings
    raise NoRunError(
        f"no run {run_id!r} in {settings.project}, {settings.region}; `python -m pipelines status` "
        "lists them"
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
    names, jobs = job_names(job), []
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


def list_readable_jobs(connection: Connection, job: Any) -> list[Any]:
    """Return the CustomJobs of a run; if they can't be read, print the error and return none.

    The run's own state and verdict don't depend on them.
    """
    try:
        return list_custom_jobs(connection, job)
    except (CloudError, InputError) as error:
        connection.say(str(error))
        return []


def find_expiry(connection: Connection, job: Any) -> str:
    """Return an error message if a run's training job has expired; else an empty string.

    JOB_STATE_EXPIRED is not a final state for the launcher of Google's component, so the run may
    continue for days.
    """
    if state_of(job) in ENDED:
        return ""
    custom_jobs = list_readable_jobs(connection, job)
    if not any(state_of(custom_job) == EXPIRED for custom_job in custom_jobs):
        return ""
    return (
        "the training job has expired; if the step Train still waits for it, cancel the run: "
        f"python -m pipelines cancel {id_of(job)}"
    )


def job_names(job: Any, kind: str = CUSTOM_JOBS) -> list[str]:
    """Return the resource names of the jobs of a kind that a run's tasks launched.

    Vertex AI launches the job of a CustomTrainingJobOp without the component's container
    (machine-learning/pipelines/components-introduction). Names are read from the tasks' details,
    and from Vertex ML Metadata, where containers write them. Runs from `list_runs` have neither. A
    task that is a cache hit launched none, but names the job of an earlier run.
    """
    names: list[str] = []
    for task in job.job_detail.task_details:
        if task.state.name == "SKIPPED":
            continue
        detail = task.executor_detail.custom_job_detail
        names += [*detail.failed_jobs, detail.job] if kind == CUSTOM_JOBS else []
        names += re.findall(
            rf"projects/[^/]+/locations/[^/]+/{kind}/[0-9]+", str(task.execution._pb.metadata)
        )
    return list(dict.fromkeys(filter(None, names)))


def tasks_of(job: Any) -> list[Task]:
    """Return the tasks of a run in the order in which they started, without groups of tasks."""
    from google.protobuf import json_format

    details = job.job_detail.task_details
    groups = {detail.parent_task_id for detail in details}
    names = display_names(json_format.MessageToDict(job._pb.pipeline_spec))
    tasks = []
    for detail in sorted(details, key=lambda task: seconds_of(task.start_time) or 1e12):
        if detail.task_id in groups:
            continue
        start, end = seconds_of(detail.start_time), seconds_of(detail.end_time)
        # The server's clock may be ahead of this machine's.
        until = end or max(time.time(), start)
        state = detail.state.name
        tasks.append(
            Task(
                name=names.get(detail.task_name, detail.task_name),
                state="CACHED" if state == "SKIPPED" else state,
                seconds=until - start if start else 0.0,
                error=" ".join(detail.error.message.split()),
                logged_as=detail.executor_detail.container_detail.main_job.rpartition("/")[2]
                or detail.executor_detail.custom_job_detail.job.rpartition("/")[2],
            )
        )
    return tasks


def failure_of(job: Any, jobs: list[Any]) -> str:
    """Return a failed run's error in one line; prefer the training job's to the task's."""
    for custom_job in reversed(jobs):
        if custom_job.error.message:
            return " ".join(custom_job.error.message.split())
    for task in tasks_of(job):
        if task.state == "FAILED" and task.error:
            return f"{task.name}: {task.error}"
    return " ".join(job.error.message.split()) or "no reason was given"


def verdict_of(job: Any) -> str:
    """Return the gate's verdict, or that training was skipped; empty if nothing is decided yet."""
    from google.protobuf import json_format

    for detail in job.job_detail.task_details:
        # Tasks that decide write their verdict to an output of this name.
        decision = detail.outputs.get("decision")
        for artifact in decision.artifacts if decision else []:
            values = json_format.MessageToDict(artifact._pb.metadata)
            if values.get("verdict"):
                return f"{values['verdict']}: {values.get('reason', '')}"
    return ""


def state_of(resource: Any) -> str:
    """Return a state without its prefix: SUCCEEDED for PIPELINE_STATE_SUCCEEDED."""
    return re.sub(r"^(PIPELINE|JOB)_STATE_", "", resource.state.name)


def recipe_of(job: Any) -> str:
    """Return the recipe of a PipelineJob by its label, since its display name may be edited."""
    label = job.labels.get("recipe", job.display_name)
    return str(job.display_name if job.display_name.lower() == label.lower() else label)


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
