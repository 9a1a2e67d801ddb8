"""A run on Vertex AI: sent, found again, cancelled, and what its tasks and jobs are doing."""

import dataclasses
import datetime
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from pipelines.vertex.connection import TRIES, Connection, attempt
from pipelines.vertex.errors import NOT_FOUND, status_of, tolerated, translated
from pipelines.vertex.template import MADE_BY
from trainer.errors import InputError

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_TIMEOUT_SECONDS = 60.0
_PATIENT_TRIES = 12
_CUSTOM_JOB = re.compile(r"projects/[^/]+/locations/[^/]+/customJobs/[0-9]+")
_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CONFLICT = 409


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a run.

    Attributes:
        name: in the pipeline.
        state: PENDING, RUNNING, SUCCEEDED, SKIPPED, CACHED, FAILED, CANCELLED or NOT_TRIGGERED.
        seconds: from its start to its end or to now; 0 before the start.
        error: in one line; empty without one.
        logged_as: job_id under which Cloud Logging has its lines; empty where it has none.
    """

    name: str
    state: str
    seconds: float
    error: str
    logged_as: str


def create(connection: Connection, job: Any, run_id: str, told: Callable[[str], None]) -> Any:
    """Starts a run.

    The ID makes it safe to send the request again after an answer was lost.

    Raises:
        InputError: the ID is taken, or the request is wrong.
        CloudError: refused for another reason, or no connection.
    """
    parent = connection.settings.parent
    tried = 0

    def send() -> Any:
        nonlocal tried
        tried += 1
        try:
            return connection.pipelines.create_pipeline_job(
                parent=parent,
                pipeline_job=job,
                pipeline_job_id=run_id,
                timeout=_TIMEOUT_SECONDS,
            )
        except Exception as error:
            if status_of(error) != _CONFLICT:
                raise
            if tried == 1:
                raise InputError(
                    f"there is a run {run_id!r} already; give another --name"
                ) from None
            return _get(connection, run_id)

    with translated(f"starting the run {run_id!r}"):
        return attempt(send, told=told)


def get(connection: Connection, run_id: str, told: Callable[[str], None] | None = None) -> Any:
    """The PipelineJob with an ID.

    Args:
        told: is given a line for each try that failed; with it, they go on for minutes.

    Raises:
        InputError: there is none.
        CloudError: refused, or no connection for minutes.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise InputError(f"{run_id!r} is not a run's name; `python -m pipelines status` lists them")
    with translated(f"asking for the run {run_id!r}"), tolerated(NOT_FOUND):
        tries = _PATIENT_TRIES if told else TRIES
        return attempt(lambda: _get(connection, run_id), told=told, tries=tries)
    settings = connection.settings
    raise InputError(
        f"no run {run_id!r} in {settings.project}, {settings.region}; `python -m pipelines status` "
        "lists them"
    )


def recent(connection: Connection, recipe: str = "", limit: int = 20) -> list[Any]:
    """PipelineJobs that this project made, the latest first."""
    found = []
    for job in listed(connection, recipe):
        found.append(job)
        if len(found) == limit:
            break
    return found


def listed(connection: Connection, recipe: str = "") -> Iterator[Any]:
    """Every PipelineJob that this project made, of a recipe or of all, the latest first."""
    labels = {**MADE_BY, "recipe": recipe.lower()} if recipe else MADE_BY
    request = {
        "parent": connection.settings.parent,
        "filter": label_filter(labels),
        "order_by": "create_time desc",
    }
    with translated("listing the runs"):
        jobs = attempt(
            lambda: list(connection.pipelines.list_pipeline_jobs(request, timeout=_TIMEOUT_SECONDS))
        )
    # The server has filtered already; nothing unlabeled may ever pass for ours.
    yield from (job for job in jobs if has_labels(job, labels))


def cancel(connection: Connection, run_id: str) -> None:
    """Asks for a run to be cancelled; one that has ended is left as it is."""
    job = get(connection, run_id)
    if state_of(job) in ENDED:
        raise InputError(f"the run {run_id!r} has ended already: {state_of(job)}")
    with translated(f"cancelling the run {run_id!r}"):
        attempt(
            lambda: connection.pipelines.cancel_pipeline_job(
                name=job.name, timeout=_TIMEOUT_SECONDS
            )
        )


def custom_jobs(connection: Connection, job: Any) -> list[Any]:
    """The CustomJobs that a run's tasks launched, in order of creation.

    Their names are in what the launchers left with Vertex ML Metadata; where that says
    nothing, jobs labeled with the run's ID are taken.
    """
    names = []
    for detail in job.job_detail.task_details:
        names += _CUSTOM_JOB.findall(_metadata_text(detail))
    with translated("asking for the training job"):
        if names:
            jobs = [
                attempt(functools.partial(connection.jobs.get_custom_job, name=name))
                for name in dict.fromkeys(names)
            ]
        else:
            request = {
                "parent": connection.settings.parent,
                "filter": label_filter({"run": id_of(job)}),
            }
            jobs = attempt(lambda: list(connection.jobs.list_custom_jobs(request)))
    return sorted(jobs, key=lambda one: seconds_of(one.create_time))


def tasks_of(job: Any, now: datetime.datetime) -> list[Task]:
    """The tasks of a run in order of their start, groups of tasks left out."""
    groups = {detail.parent_task_id for detail in job.job_detail.task_details}
    tasks = []
    for detail in sorted(
        job.job_detail.task_details, key=lambda one: seconds_of(one.start_time) or 1e12
    ):
        if detail.task_id in groups:
            continue
        start, end = seconds_of(detail.start_time), seconds_of(detail.end_time)
        state = detail.state.name
        tasks.append(
            Task(
                name=detail.task_name,
                state="CACHED" if state == "SKIPPED" and detail.outputs else state,
                seconds=(end or now.timestamp()) - start if start else 0.0,
                error=" ".join(detail.error.message.split()),
                logged_as=detail.executor_detail.container_detail.main_job.rpartition("/")[2]
                or detail.executor_detail.custom_job_detail.job.rpartition("/")[2],
            )
        )
    return tasks


def failure_of(job: Any, jobs: list[Any], now: datetime.datetime) -> str:
    """Why a run failed, in one line: the training job's words before the task's."""
    for custom_job in reversed(jobs):
        if custom_job.error.message:
            return " ".join(custom_job.error.message.split())
    for task in tasks_of(job, now):
        if task.state == "FAILED" and task.error:
            return f"{task.name}: {task.error}"
    return " ".join(job.error.message.split()) or "no reason was given"


def verdict_of(job: Any) -> str:
    """What the gate said, or that there was nothing to train, in one line; empty before that."""
    from google.protobuf import json_format

    for detail in job.job_detail.task_details:
        # The tasks that decide keep their verdict in an output of this name.
        decision = detail.outputs.get("decision")
        for artifact in decision.artifacts if decision else []:
            values = json_format.MessageToDict(artifact._pb.metadata)
            if values.get("verdict"):
                return f"{values['verdict']}: {values.get('reason', '')}"
    return ""


def state_of(resource: Any) -> str:
    """SUCCEEDED, of PIPELINE_STATE_SUCCEEDED or JOB_STATE_SUCCEEDED."""
    return re.sub(r"^(PIPELINE|JOB)_STATE_", "", resource.state.name)


def id_of(resource: Any) -> str:
    """The last part of a resource's name."""
    return resource.name.rpartition("/")[2]


def has_labels(resource: Any, labels: dict[str, str]) -> bool:
    """Whether a resource carries each of the labels."""
    return all(resource.labels.get(key) == value for key, value in labels.items())


def label_filter(labels: dict[str, str]) -> str:
    """A filter of the API's list methods."""
    return " AND ".join(f'labels.{key}="{value}"' for key, value in labels.items())


def seconds_of(time: Any) -> float:
    """Seconds since 1970 of a timestamp; 0 for one that is not set."""
    return time.timestamp() if time else 0.0


def _get(connection: Connection, run_id: str) -> Any:
    name = f"{connection.settings.parent}/pipelineJobs/{run_id}"
    return connection.pipelines.get_pipeline_job(name=name, timeout=_TIMEOUT_SECONDS)


def _metadata_text(detail: Any) -> str:
    """What a task's execution has on record, as text."""
    from google.protobuf import json_format

    metadata = detail.execution._pb.metadata if detail.execution else None
    if metadata is None:
        return ""
    return json.dumps(json_format.MessageToDict(metadata))
