"""What this project left on Vertex AI and in the bucket, and nobody needs any more.

Labels decide: what does not carry this project's is not even looked at. Kept in any case are
runs that go on, runs whose model has an alias (a champion's) and runs whose records a kept
run has taken over from the cache.
"""

import dataclasses
import datetime
import functools
from collections.abc import Sequence
from typing import Any

from pipelines.vertex import runs, schedules
from pipelines.vertex.connection import Connection, attempt
from pipelines.vertex.deletion import (
    Item,
    ended,
    folder_of,
    of_custom_job,
    of_model_version,
    of_run,
    of_schedule,
    version_name,
)
from pipelines.vertex.errors import translated
from pipelines.vertex.template import MADE_BY


@dataclasses.dataclass(frozen=True)
class Found:
    """Items in the order of their deletion, and why others stay."""

    items: list[Item]
    kept: list[str]


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
        (f"model version {version_name(one)} ({', '.join(one.version_aliases) or 'no alias'})",
         [one.artifact_uri])
        for one in versions
        if one not in unused
    ]  # fmt: skip
    users += [(f"run {runs.id_of(job)}", _uris(job)) for job in every if job.name not in doomed]
    free = _free(old, users, kept)
    gone = {runs.id_of(job) for job in free}
    known = {runs.id_of(job) for job in every}
    items = [of_schedule(connection, one) for one in _ended_schedules(connection, before, labels)]
    items += [of_model_version(connection, one) for one in unused]
    items += [item for job in free for item in of_run(connection, job)]
    for job in _ended_custom_jobs(connection, before, labels):
        run = job.labels.get("run", "")
        # Jobs of the runs that go, and old ones of which no run is left.
        if run in gone or run not in known:
            items.append(of_custom_job(connection, job))
    return Found(items, kept)


def _old_runs(
    jobs: Sequence[Any], before: datetime.datetime, keep_last: int, kept: list[str]
) -> list[Any]:
    """Runs that ended before a time, but for the last of each recipe; tells of those in `kept`."""
    old, succeeded = [], dict.fromkeys((job.labels.get("recipe", "") for job in jobs), 0)
    for job in jobs:
        name, state = runs.id_of(job), runs.state_of(job)
        if state == "SUCCEEDED":
            succeeded[job.labels.get("recipe", "")] += 1
        if state not in runs.ENDED or ended(job) >= before.timestamp():
            continue
        if state == "SUCCEEDED" and succeeded[job.labels.get("recipe", "")] <= keep_last:
            kept.append(f"run {name}: one of the last {keep_last}")
            continue
        old.append(job)
    return old


def _free(
    jobs: Sequence[Any], users: Sequence[tuple[str, Sequence[str]]], kept: list[str]
) -> list[Any]:
    """Of runs, those whose folder nobody uses; tells of the others in `kept`.

    Args:
        users: what stays, and the URIs that it uses.
    """
    free = []
    for job in jobs:
        folder = folder_of(job)
        used = (name for name, uris in users if any(uri.startswith(folder) for uri in uris))
        user = next(used, "") if folder else ""
        if user:
            kept.append(f"run {runs.id_of(job)}: {user} uses what it wrote")
        else:
            free.append(job)
    return free


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


def _is_unused(version: Any, before: datetime.datetime, labels: dict[str, str]) -> bool:
    """Whether a model version has no alias, serves nowhere, is old enough and ours."""
    created = runs.seconds_of(version.version_create_time or version.create_time)
    return (
        not version.version_aliases
        and not version.deployed_models
        and created < before.timestamp()
        and runs.has_labels(version, labels)
    )


def _uris(job: Any) -> list[str]:
    """What a run has written or taken over."""
    return [
        artifact.uri
        for detail in job.job_detail.task_details
        for side in (detail.outputs, detail.inputs)
        for artifacts in side.values()
        for artifact in artifacts.artifacts
    ]


def _ended_schedules(
    connection: Connection, before: datetime.datetime, labels: dict[str, str]
) -> list[Any]:
    """Schedules that have come to their end; those that may start runs are left alone."""
    return [
        one
        for one in schedules.listed(connection)
        if one.state.name == "COMPLETED"
        and runs.seconds_of(one.update_time or one.end_time) < before.timestamp()
        and runs.has_labels(one.create_pipeline_job_request.pipeline_job, labels)
    ]


def _ended_custom_jobs(
    connection: Connection, before: datetime.datetime, labels: dict[str, str]
) -> list[Any]:
    request = {"parent": connection.settings.parent, "filter": runs.label_filter(labels)}
    with translated("listing the training jobs"):
        jobs = attempt(lambda: list(connection.jobs.list_custom_jobs(request)))
    return [
        job
        for job in jobs
        if runs.has_labels(job, labels)
        and runs.state_of(job) in (*runs.ENDED, "EXPIRED")
        and ended(job) < before.timestamp()
    ]
