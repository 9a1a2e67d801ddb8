"""Find what this project left on Vertex AI and in the bucket, and nobody needs any more.

Labels decide: what does not carry this project's is not deleted. Kept in any case are runs that go
on, runs whose model has an alias (a champion's) and runs whose records a kept run has taken over
from the cache.
"""

import collections
import concurrent.futures
import dataclasses
import datetime
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from components.cloud_errors import NOT_FOUND, tolerated, translated
from components.registry.endpoints import is_test
from components.registry.model_upload import MADE_BY
from pipelines.cloud import runs, schedules
from pipelines.cloud.connection import Connection
from pipelines.cloud.deletion import (
    Item,
    ended,
    folder_of,
    of_custom_job,
    of_model_version,
    of_run,
    of_schedule,
    version_name,
)

T = TypeVar("T")

SILENCE_SECONDS = 5.0
_AT_ONCE = 8


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
    """Look for what ended before a time.

    Args:
        recipe: only of this one.
        keep_last: that many of a recipe's last successful runs stay, however old.
    """
    labels = {**MADE_BY, "recipe": recipe.lower()} if recipe else MADE_BY
    versions = _model_versions(connection)
    unused = [one for one in versions if _is_unused(one, before, labels)]
    known = runs.listed(connection)
    kept = [f"endpoint {one}" for one in _idle_endpoints(connection, labels)]
    chosen = [job for job in known if runs.has_labels(job, labels)]
    doomed = {job.name for job in _old_runs(chosen, before, keep_last, kept)}
    jobs = _with_tasks(connection, known) if doomed else []
    old = [job for job in jobs if job.name in doomed]
    users = [
        (f"model version {version_name(one)} ({', '.join(one.version_aliases) or 'no alias'})",
         [one.artifact_uri])
        for one in versions
        if one not in unused
    ]  # fmt: skip
    users += [(f"run {runs.id_of(job)}", _uris(job)) for job in jobs if job.name not in doomed]
    free = _free(old, users, kept)
    items = [of_schedule(connection, one) for one in _ended_schedules(connection, before, labels)]
    items += [of_model_version(connection, one) for one in unused]
    custom_jobs = _ended_custom_jobs(connection, before, labels)
    for job in free:
        # The run goes last: it alone names its training jobs, of which a schedule's have no label.
        names = {name.rpartition("/")[2] for name in runs.job_names(job)}
        own = [
            one
            for one in custom_jobs
            if runs.id_of(one) in names or one.labels.get("run") == runs.id_of(job)
        ]
        items += [of_custom_job(connection, one) for one in own]
        items += of_run(connection, job)
    ids = {runs.id_of(job) for job in known}
    orphans = [one for one in custom_jobs if one.labels.get("run", "") not in {"", *ids}]
    items += [of_custom_job(connection, one) for one in orphans]
    return Found(items, kept)


def _with_tasks(connection: Connection, known: Iterable[Any]) -> list[Any]:
    """Return the runs of a list with what they wrote and took over, which lists do not have.

    Runs without this project's label count, too, where they share the cache: that is a
    pipeline's, by its name.
    """
    pipelines: set[str] = set()

    def whole(name: str) -> Any:
        with tolerated(NOT_FOUND):
            job = connection.pipelines.get_pipeline_job(name=name)
            pipelines.add(job.pipeline_spec["pipelineInfo"]["name"])
            # 200 KB, of each of perhaps a thousand runs.
            job._pb.ClearField("pipeline_spec")
            return job
        return None

    def all_of(names: list[str]) -> list[Any]:
        found = progress(connection, pool.map(whole, names), len(names), "runs read")
        return [job for job in found if job]

    with (
        translated("asking for what the runs use"),
        concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool,
    ):
        jobs = all_of([one.name for one in known])
        seen = {job.name for job in jobs}
        for pipeline in sorted(pipelines):
            others = runs.listed(connection, text=f'pipelineName="{pipeline}"')
            jobs += all_of([one.name for one in others if one.name not in seen])
    return jobs


def progress(connection: Connection, items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Pass items on; say every few seconds how many there have been."""
    said = time.monotonic()
    for number, item in enumerate(items, 1):
        yield item
        if time.monotonic() - said >= SILENCE_SECONDS:
            connection.say(f"{what}: {number:,} of {total:,}")
            said = time.monotonic()


def _old_runs(
    jobs: Sequence[Any], before: datetime.datetime, keep_last: int, kept: list[str]
) -> list[Any]:
    """Return runs that ended before a time, but for the last of each recipe, named in `kept`."""
    old = []
    succeeded: collections.Counter[str] = collections.Counter()
    for job in jobs:
        state, recipe = runs.state_of(job), job.labels.get("recipe", "")
        succeeded[recipe] += state == "SUCCEEDED"
        if state not in runs.ENDED or ended(job) >= before.timestamp():
            continue
        if state == "SUCCEEDED" and succeeded[recipe] <= keep_last:
            kept.append(f"run {runs.id_of(job)}: one of the last {keep_last}")
        else:
            old.append(job)
    return old


def _free(
    jobs: Sequence[Any], users: Sequence[tuple[str, Sequence[str]]], kept: list[str]
) -> list[Any]:
    """Return those runs whose folder nobody uses; name the others in `kept`.

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
    """Return every version of every model: one that somebody else registered may need a run."""
    parent = connection.settings.parent
    with translated("listing the models"):
        return [
            version
            for model in connection.models.list_models(parent=parent)
            for version in connection.models.list_model_versions(name=model.name.partition("@")[0])
        ]


def _idle_endpoints(connection: Connection, labels: dict[str, str]) -> Iterator[str]:
    """Yield the endpoints that are billed for nothing, with the reason."""
    with translated("listing the endpoints"):
        for one in connection.endpoints.list_endpoints(parent=connection.settings.parent):
            name = one.name.rpartition("/")[2]
            if not one.deployed_models or not runs.has_labels(one, labels):
                continue
            if is_test(name):
                yield f"{name}: billed, and left by a step, unless one runs; delete it"
            elif not one.traffic_split:
                yield f"{name}: billed, without traffic; `deploy --undeploy` ends it"


def _is_unused(version: Any, before: datetime.datetime, labels: dict[str, str]) -> bool:
    """Return whether a model version has no alias, serves nowhere, is old enough and ours."""
    created = runs.seconds_of(version.version_create_time or version.create_time)
    return (
        not version.version_aliases
        and not version.deployed_models
        and created < before.timestamp()
        and runs.has_labels(version, labels)
    )


def _uris(job: Any) -> list[str]:
    """Return the URIs of what a run has written, taken over or been given, as `resume_from`."""
    given = [one for one in job.runtime_config.parameter_values.values() if isinstance(one, str)]
    return given + [
        artifact.uri
        for detail in job.job_detail.task_details
        for side in (detail.outputs, detail.inputs)
        for artifacts in side.values()
        for artifact in artifacts.artifacts
    ]


def _ended_schedules(
    connection: Connection, before: datetime.datetime, labels: dict[str, str]
) -> list[Any]:
    """Return completed schedules; those that may start runs are left alone."""
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
        return [
            job
            for job in connection.jobs.list_custom_jobs(request)
            if runs.has_labels(job, labels)
            and runs.state_of(job) in runs.JOB_ENDED
            and ended(job) < before.timestamp()
        ]
