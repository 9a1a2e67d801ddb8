"""Delete each thing that a run leaves on Vertex AI and in the bucket.

What is gone already is no error: somebody else cleans up, too, or an answer was lost.
"""

import dataclasses
import datetime
import functools
from collections.abc import Callable, Sequence
from typing import Any

from components.cloud_errors import FORBIDDEN, NOT_FOUND, NOT_IMPLEMENTED, tolerated, translated
from pipelines.cloud import runs, schedules
from pipelines.cloud.connection import Connection


@dataclasses.dataclass(frozen=True)
class Item:
    """Something to delete: a resource, a gs:// folder or entries of the cache."""

    kind: str
    name: str
    detail: str
    delete: Callable[[], None]


def of_run(connection: Connection, job: Any) -> list[Item]:
    """Return a run's folder, its entries in the cache, and the run itself, which knows of both."""
    folder = folder_of(job)
    executions = [one.execution.name for one in job.job_detail.task_details if one.execution.name]
    part = f"of the run {runs.id_of(job)}"
    items = []
    if folder:
        delete = functools.partial(_delete_folder, connection, folder)
        items.append(Item("folder", folder, part, delete))
    if executions:
        # A later run would take over from the cache what is no longer there.
        delete = functools.partial(_delete_executions, connection, executions)
        items.append(Item("cache", f"{len(executions)} entries", part, delete))
    day = datetime.datetime.fromtimestamp(ended(job), datetime.timezone.utc).date()
    detail = f"{runs.state_of(job)}, {job.labels.get('recipe', '')}, {day}"
    delete = connection.pipelines.delete_pipeline_job
    return [*items, _resource(connection, "run", job.name, detail, delete)]


def of_schedule(connection: Connection, schedule: Any) -> Item:
    """Return a schedule that is completed."""
    detail = f"completed, {schedules.recipe_of(schedule)}"
    delete = connection.schedules.delete_schedule
    return _resource(connection, "schedule", schedule.name, detail, delete)


def of_model_version(connection: Connection, version: Any) -> Item:
    """Return a version that has no alias: the registry does not delete the default one."""
    name, detail = version_name(version), f"{version.display_name}, no alias"
    delete = connection.models.delete_model_version
    return _resource(connection, "model version", name, detail, delete)


def of_custom_job(connection: Connection, job: Any) -> Item:
    """Return a training job that has ended."""
    detail = f"{runs.state_of(job)}, {job.display_name}"
    delete = connection.jobs.delete_custom_job
    return _resource(connection, "training job", job.name, detail, delete)


def _resource(connection: Connection, kind: str, name: str, detail: str, method: Any) -> Item:
    return Item(kind, name, detail, functools.partial(_delete, connection, method, name))


def version_name(version: Any) -> str:
    """Return projects/P/locations/L/models/M@version."""
    return f"{version.name.partition('@')[0]}@{version.version_id}"


def folder_of(job: Any) -> str:
    """Return where Vertex AI puts all that a run writes: <root>/<project number>/<run>/."""
    root = job.runtime_config.gcs_output_directory.rstrip("/")
    number = job.name.split("/")[1]
    return f"{root}/{number}/{runs.id_of(job)}/" if root.startswith("gs://") else ""


def ended(resource: Any) -> float:
    """Return when a run or job ended, in seconds since 1970."""
    return runs.seconds_of(resource.end_time or resource.update_time or resource.create_time)


def _delete(connection: Connection, method: Any, name: str) -> None:
    with translated(f"deleting {name}"), tolerated(NOT_FOUND):
        connection.finish(method(name=name))


def _delete_executions(connection: Connection, names: Sequence[str]) -> None:
    """Take steps out of the cache; without the right to, they stay and their files go."""
    for name in names:
        with (
            translated(f"deleting {name}"),
            tolerated(FORBIDDEN, NOT_FOUND, NOT_IMPLEMENTED),
        ):
            connection.metadata.delete_execution(name=name)


def _delete_folder(connection: Connection, uri: str) -> None:
    bucket, _, prefix = uri.removeprefix("gs://").partition("/")
    retry = connection.retry
    with translated(f"deleting {uri}"), tolerated(NOT_FOUND):
        for blob in connection.storage.list_blobs(bucket, prefix=prefix, retry=retry):
            with tolerated(NOT_FOUND):
                blob.delete(retry=retry)
