"""What this project left on Vertex AI and in the bucket, and nobody needs any more.

Labels decide: what does not carry this project's is not even looked at. Kept in any case are
runs that go on, runs whose model has an alias (a champion's) and runs whose records a kept
run has taken over from the cache.
"""

import dataclasses
import datetime
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from pipelines.vertex import runs, schedules
from pipelines.vertex.connection import Connection, attempt, finished
from pipelines.vertex.errors import status_of, translated
from pipelines.vertex.template import MADE_BY
from trainer.errors import InputError

_AGE = re.compile(r"([0-9]+)([dhw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_NOT_FOUND = 404
_OTHERS = (403, 404, 501)


@dataclasses.dataclass(frozen=True)
class Item:
    """Something to delete.

    Attributes:
        kind: as a user calls it.
        name: of the resource, or a gs:// folder.
        detail: what helps to recognize it.
        delete: deletes it; not an error where it is gone already.
    """

    kind: str
    name: str
    detail: str
    delete: Callable[[], None]


@dataclasses.dataclass(frozen=True)
class Found:
    """Items in the order of their deletion, and why others stay."""

    items: list[Item]
    kept: list[str]


def age(text: str) -> datetime.timedelta:
    """30d, 12h or 4w; raises InputError for anything else."""
    match = _AGE.fullmatch(text)
    if not match:
        raise InputError(f"--older-than {text!r} is not an age, such as 30d, 12h or 4w")
    try:
        back = datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
        _ = datetime.datetime.now() - back
    except OverflowError:
        raise InputError(f"--older-than {text!r} is before the calendar; use less") from None
    return back


def find(
    connection: Connection,
    *,
    before: datetime.datetime,
    recipe: str = "",
    keep_last: int = 0,
) -> Found:
    """Looks for what ended before a time.

    Args:
        recipe: only of this one.
        keep_last: that many of a recipe's last successful runs stay, however old.
    """
    labels = {**MADE_BY, "recipe": recipe.lower()} if recipe else MADE_BY
    versions = _model_versions(connection)
    unused = [one for one in versions if _is_unused(one, before, labels)]
    every = list(runs.listed(connection))
    chosen = [job for job in every if runs.has_labels(job, labels)]
    kept: list[str] = []
    old = _old_runs(chosen, before, keep_last, kept)
    doomed = {job.name for job in old}
    users = [
        (f"model version {_version_name(one)} ({', '.join(one.version_aliases) or 'no alias'})",
         [one.artifact_uri])
        for one in versions
        if one not in unused
    ]  # fmt: skip
    users += [(f"run {runs.id_of(job)}", _uris(job)) for job in every if job.name not in doomed]
    free = []
    for job in old:
        user = _user_of(_folder(job), users)
        if user:
            kept.append(f"run {runs.id_of(job)}: {user} uses what it wrote")
        else:
            free.append(job)
    items = _schedule_items(connection, before, labels)
    items += _model_items(connection, unused)
    for job in free:
        items += _run_items(connection, job)
    gone = {runs.id_of(job) for job in free}
    known = {runs.id_of(job) for job in every}
    items += _custom_job_items(connection, before, labels, gone, known)
    return Found(items, kept)


def _old_runs(
    jobs: Sequence[Any], before: datetime.datetime, keep_last: int, kept: list[str]
) -> list[Any]:
    old, succeeded = [], dict.fromkeys((job.labels.get("recipe", "") for job in jobs), 0)
    for job in jobs:
        name, state = runs.id_of(job), runs.state_of(job)
        if state == "SUCCEEDED":
            succeeded[job.labels.get("recipe", "")] += 1
        if state not in runs.ENDED or _ended(job) >= before.timestamp():
            continue
        if state == "SUCCEEDED" and succeeded[job.labels.get("recipe", "")] <= keep_last:
            kept.append(f"run {name}: one of the last {keep_last}")
            continue
        old.append(job)
    return old


def _run_items(connection: Connection, job: Any) -> list[Item]:
    """A run's folder, its entries in the cache, and the run itself, which knows of both."""
    folder, executions = _folder(job), _executions(job)
    detail = f"{runs.state_of(job)}, {job.labels.get('recipe', '')}, {_day(_ended(job))}"
    items = []
    if folder:
        items.append(
            Item("folder", folder, f"of the run {runs.id_of(job)}",
                 functools.partial(_delete_folder, connection, folder))
        )  # fmt: skip
    if executions:
        # A later run would take over from the cache what is no longer there.
        items.append(
            Item("cache", f"{len(executions)} entries", f"of the run {runs.id_of(job)}",
                 functools.partial(_delete_executions, connection, executions))
        )  # fmt: skip
    delete = functools.partial(_delete, connection.pipelines.delete_pipeline_job, job.name)
    return [*items, Item("run", job.name, detail, delete)]


def _schedule_items(
    connection: Connection, before: datetime.datetime, labels: dict[str, str]
) -> list[Item]:
    """Schedules that have come to their end; those that may start runs are left alone."""
    return [
        Item("schedule", one.name, f"completed, {schedules.recipe_of(one)}",
             functools.partial(_delete, connection.schedules.delete_schedule, one.name))
        for one in schedules.listed(connection)
        if one.state.name == "COMPLETED"
        and runs.seconds_of(one.update_time or one.end_time) < before.timestamp()
        and runs.has_labels(one.create_pipeline_job_request.pipeline_job, labels)
    ]  # fmt: skip


def _model_items(connection: Connection, versions: Sequence[Any]) -> list[Item]:
    delete = connection.models.delete_model_version if versions else None
    return [
        Item("model version", _version_name(one), f"{one.display_name}, no alias",
             functools.partial(_delete, delete, _version_name(one)))
        for one in versions
    ]  # fmt: skip


def _is_unused(version: Any, before: datetime.datetime, labels: dict[str, str]) -> bool:
    """Whether a model version has no alias, serves nowhere, is old enough and ours."""
    created = runs.seconds_of(version.version_create_time or version.create_time)
    return (
        not version.version_aliases
        and not version.deployed_models
        and created < before.timestamp()
        and runs.has_labels(version, labels)
    )


def _custom_job_items(
    connection: Connection,
    before: datetime.datetime,
    labels: dict[str, str],
    gone: set[str],
    known: set[str],
) -> list[Item]:
    """Jobs of the runs that go, and old ones of which no run is left."""
    request = {"parent": connection.settings.parent, "filter": runs.label_filter(labels)}
    with translated("listing the training jobs"):
        jobs = attempt(lambda: list(connection.jobs.list_custom_jobs(request)))
    items = []
    for job in jobs:
        run, state = job.labels.get("run", ""), runs.state_of(job)
        ended = state in (*runs.ENDED, "EXPIRED") and _ended(job) < before.timestamp()
        if runs.has_labels(job, labels) and ended and (run in gone or run not in known):
            delete = functools.partial(_delete, connection.jobs.delete_custom_job, job.name)
            items.append(Item("training job", job.name, f"{state}, {job.display_name}", delete))
    return items


def _model_versions(connection: Connection) -> list[Any]:
    """Every version of every model: one that somebody else registered may need a run, too."""
    parent = connection.settings.parent
    with translated("listing the models"):
        models = attempt(lambda: list(connection.models.list_models(parent=parent)))
        return [
            version
            for model in models
            for version in attempt(functools.partial(_versions_of, connection, model.name))
        ]


def _versions_of(connection: Connection, model: str) -> list[Any]:
    return list(connection.models.list_model_versions(name=model.partition("@")[0]))


def _version_name(version: Any) -> str:
    return f"{version.name.partition('@')[0]}@{version.version_id}"


def _folder(job: Any) -> str:
    """Where Vertex AI puts all that a run writes: <root>/<project number>/<run>/."""
    root = job.runtime_config.gcs_output_directory.rstrip("/")
    number = job.name.split("/")[1]
    return f"{root}/{number}/{runs.id_of(job)}/" if root.startswith("gs://") else ""


def _uris(job: Any) -> list[str]:
    """What a run has written or taken over."""
    return [
        artifact.uri
        for detail in job.job_detail.task_details
        for side in (detail.outputs, detail.inputs)
        for artifacts in side.values()
        for artifact in artifacts.artifacts
    ]


def _user_of(folder: str, users: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The first that uses something in a folder; empty if nobody does."""
    for name, uris in users:
        if folder and any(uri.startswith(folder) for uri in uris):
            return name
    return ""


def _executions(job: Any) -> list[str]:
    return [one.execution.name for one in job.job_detail.task_details if one.execution.name]


def _ended(resource: Any) -> float:
    return runs.seconds_of(resource.end_time or resource.update_time or resource.create_time)


def _day(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc):%Y-%m-%d}"


def _delete(method: Any, name: str) -> None:
    with translated(f"deleting {name}"):
        try:
            finished(attempt(lambda: method(name=name)))
        except Exception as error:
            if status_of(error) != _NOT_FOUND:
                raise


def _delete_executions(connection: Connection, names: Sequence[str]) -> None:
    """Takes steps out of the cache; without the right to, they stay and their files go."""
    for name in names:
        with translated(f"deleting {name}"):
            try:
                attempt(functools.partial(connection.metadata.delete_execution, name=name))
            except Exception as error:
                if status_of(error) not in _OTHERS:
                    raise


def _delete_folder(connection: Connection, uri: str) -> None:
    bucket, _, prefix = uri.removeprefix("gs://").partition("/")
    with translated(f"deleting {uri}"):
        try:
            blobs = attempt(lambda: list(connection.storage.list_blobs(bucket, prefix=prefix)))
        except Exception as error:
            if status_of(error) != _NOT_FOUND:
                raise
            return
        for blob in blobs:
            try:
                attempt(blob.delete)
            except Exception as error:
                if status_of(error) != _NOT_FOUND:
                    raise
