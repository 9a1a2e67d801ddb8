"""Find and delete what this project left on Vertex AI and in the bucket and no longer needs.

Only resources that carry this project's label are deleted. Three kinds of runs are always kept:
runs that have not ended, runs whose model version has an alias such as champion, and runs whose
records a kept run reuses from the cache. It is not an error if a resource is already deleted:
somebody else may be cleaning up as well, or an answer was lost.
"""

import collections
import concurrent.futures
import dataclasses
import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from rich.progress import track

from pipelines.cloud import schedules
from pipelines.printing import Console
from pipelines.project.connection import Connection
from pipelines.runs import vertex_jobs
from pipelines.runs.run import BATCH_JOBS, ENDED, JOB_ENDED, JOB_KINDS, SEARCHES, job_names
from vertex.client.cloud_errors import (
    FORBIDDEN,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    tolerated,
    translated,
)
from vertex.registry.endpoint_changes import EndpointChanges
from vertex.registry.endpoints import is_test
from vertex.registry.model_upload import MADE_BY

T = TypeVar("T")

_THREADS = 8
_LONGEST_TEST = datetime.timedelta(days=1)
_URI = re.compile(r"(?:gs://|/gcs/)([^\s\"']+)")
"""Part of a parameter such as csv:gs://BUCKET/FILE or {"weights": "/gcs/BUCKET/FILE"}."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A resource, a gs:// folder or a set of cache entries to delete."""

    kind: str
    name: str
    detail: str
    delete: Callable[[], None]
    run: str = ""  # name of the run that it is deleted with


def find_items(
    connection: Connection, before: datetime.datetime, recipe: str, keep_last: int
) -> tuple[list[Item], list[str]]:
    """Return items that ended before a time, in order of deletion, and why others are kept.

    Args:
        recipe: clean up after this recipe only; empty: after all recipes.
        keep_last: number of each recipe's last successful runs to keep, however old they are.
    """
    labels = {**MADE_BY, "recipe": recipe.lower()} if recipe else MADE_BY
    all_runs = vertex_jobs.list_runs(connection)
    items, kept = _find_idle_endpoints(connection, before, labels, all_runs)
    matching = [job for job in all_runs if vertex_jobs.has_labels(job, labels)]
    to_delete = {job.name for job in _find_old_runs(matching, before, keep_last, kept)}
    jobs = _fetch_with_tasks(connection, all_runs) if to_delete else []
    # Each resource that is kept, with the URIs that it uses.
    users = [
        (f"run {vertex_jobs.id_of(job)}", uris) for job, uris in jobs if job.name not in to_delete
    ]
    for schedule in schedules.list_schedules(connection, {}):
        job = schedule.create_pipeline_job_request.pipeline_job
        if schedule.state.name != "COMPLETED":
            users.append((f"schedule {schedule.display_name}", _list_uris(job)))
            continue
        # Its end_time is the one that was declared.
        ended = vertex_jobs.seconds_of(schedule.update_time or schedule.end_time)
        if vertex_jobs.has_labels(job, labels) and ended < before.timestamp():
            detail = f"completed, {schedules.recipe_of(schedule)}"
            delete = connection.schedules.delete_schedule
            items.append(_resource_item(connection, "schedule", schedule.name, detail, delete))
    for version in _list_model_versions(connection):
        name = f"{version.name.partition('@')[0]}@{version.version_id}"
        if _is_unused(version, before, labels):
            detail = f"{version.display_name}, no alias"
            delete = connection.models.delete_model_version
            items.append(_resource_item(connection, "model version", name, detail, delete))
        else:
            aliases = ", ".join(version.version_aliases) or "no alias"
            users.append((f"model version {name} ({aliases})", [version.artifact_uri]))
    ended_jobs = _list_ended_jobs(connection, before, labels)
    for job, own_uris in jobs:
        if job.name not in to_delete:
            continue
        folder = _folder_of(job, own_uris)
        used_by = (name for name, uris in users if any(uri.startswith(folder) for uri in uris))
        user = next(used_by, "") if folder else ""
        if user:
            kept.append(f"run {vertex_jobs.id_of(job)}: {user} uses its outputs")
        else:
            items += _make_run_items(connection, job, folder, ended_jobs)
    ids = {"", *map(vertex_jobs.id_of, all_runs)}
    orphans = [job for job in ended_jobs if job.labels.get("run", "") not in ids]
    return [*items, *(_make_job_item(connection, job) for job in orphans)], kept


def show_progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Yield each item; show a bar on a terminal."""
    console = Console(stderr=True)
    yield from track(
        items, what, total, console=console, transient=True, disable=not console.is_terminal
    )


def _find_idle_endpoints(
    connection: Connection, before: datetime.datetime, labels: dict[str, str], jobs: Sequence[Any]
) -> tuple[list[Item], list[str]]:
    """Return endpoints for a test that a killed step left, and why other idle ones are kept.

    A test takes minutes, so its endpoint is left over if it was made before the time `before`, or a
    day ago.

    Args:
        jobs: the PipelineJobs of the project; one that has not ended may be using a test endpoint.
    """
    items, kept = [], []
    latest = max(before, datetime.datetime.now(datetime.UTC) - _LONGEST_TEST).timestamp()
    with translated("listing the endpoints"):
        endpoints = list(connection.endpoints.list_endpoints(parent=connection.settings.parent))
    for endpoint in endpoints:
        if not vertex_jobs.has_labels(endpoint, labels):
            continue
        line = f"endpoint {vertex_jobs.id_of(endpoint)}"
        if not is_test(endpoint):
            if endpoint.deployed_models and not endpoint.traffic_split:
                kept.append(f"{line}: billed, without traffic; remove it with `deploy --undeploy`")
            continue
        created = vertex_jobs.seconds_of(endpoint.create_time)
        users = [
            vertex_jobs.id_of(job)
            for job in jobs
            if vertex_jobs.state_of(job) not in ENDED
            and vertex_jobs.seconds_of(job.create_time) <= created
        ]
        left = f"{'billed, ' if endpoint.deployed_models else ''}left over from a step"
        if users:
            kept.append(f"{line}: the run {users[0]} may be using it for a test")
        elif created >= latest:
            kept.append(f"{line}: {left}; a shorter --older-than deletes it")
        else:
            delete = partial(_delete_endpoint, connection, endpoint.name)
            items.append(Item("endpoint", endpoint.name, left, delete))
    return items, kept


def _fetch_with_tasks(
    connection: Connection, all_runs: Sequence[Any]
) -> list[tuple[Any, list[str]]]:
    """Fetch runs one by one, each with the URIs of its inputs and outputs, which lists leave out.

    Also fetches runs without this project's label that share the cache: Vertex AI keeps one cache
    for each name of a pipeline.
    """
    pipelines: set[str] = set()

    def fetch(name: str) -> Any:
        with tolerated(NOT_FOUND):
            job = connection.pipelines.get_pipeline_job(name=name)
            pipelines.add(job.pipeline_spec["pipelineInfo"]["name"])
            uris = _list_uris(job)
            # Save memory: a pipeline is 200 KB, and there may be a thousand runs.
            job._pb.ClearField("pipeline_spec")
            return job, uris
        return None

    jobs: dict[str, tuple[Any, list[str]]] = {}

    def fetch_all(listed: Sequence[Any]) -> None:
        names = [job.name for job in listed if job.name not in jobs]
        found = show_progress(pool.map(fetch, names), len(names), "Reading runs")
        jobs.update((pair[0].name, pair) for pair in found if pair)

    with (
        translated("reading the runs' inputs and outputs"),
        concurrent.futures.ThreadPoolExecutor(_THREADS) as pool,
    ):
        fetch_all(all_runs)
        for pipeline in sorted(pipelines):
            fetch_all(vertex_jobs.list_runs(connection, text=f'pipeline_name="{pipeline}"'))
    return list(jobs.values())


def _find_old_runs(
    jobs: Sequence[Any], before: datetime.datetime, keep_last: int, kept: list[str]
) -> Iterator[Any]:
    """Yield runs that ended before a time; add the last ones of each recipe to `kept` instead."""
    succeeded: collections.Counter[str] = collections.Counter()
    for job in jobs:
        state, recipe = vertex_jobs.state_of(job), job.labels.get("recipe", "")
        succeeded[recipe] += state == "SUCCEEDED"
        if state not in ENDED or _end_of(job) >= before.timestamp():
            continue
        if state == "SUCCEEDED" and succeeded[recipe] <= keep_last:
            kept.append(f"run {vertex_jobs.id_of(job)}: one of the last {keep_last}")
        else:
            yield job


def _list_model_versions(connection: Connection) -> list[Any]:
    """Return all versions of all models, since unlabeled ones may use a run's outputs, too."""
    versions: list[Any] = []
    with translated("listing the models"):
        for model in connection.models.list_models(parent=connection.settings.parent):
            with tolerated(NOT_FOUND):
                name = model.name.partition("@")[0]
                versions += connection.models.list_model_versions(name=name)
    return versions


def _is_unused(version: Any, before: datetime.datetime, labels: dict[str, str]) -> bool:
    """Return True for a version of this project that is old, not deployed and has no alias."""
    created = vertex_jobs.seconds_of(version.version_create_time or version.create_time)
    used = version.version_aliases or version.deployed_models
    return not used and created < before.timestamp() and vertex_jobs.has_labels(version, labels)


def _list_ended_jobs(
    connection: Connection, before: datetime.datetime, labels: dict[str, str]
) -> list[Any]:
    """Return the jobs that ended before a time: training, searches and batch predictions."""
    request = {"parent": connection.settings.parent, "filter": vertex_jobs.label_filter(labels)}
    with translated("listing the training jobs"):
        jobs = list(connection.jobs.list_custom_jobs(request))
    with translated("listing the searches"), tolerated(NOT_FOUND, NOT_IMPLEMENTED):
        jobs += connection.jobs.list_hyperparameter_tuning_jobs(request)
    with translated("listing the batch prediction jobs"), tolerated(NOT_FOUND, NOT_IMPLEMENTED):
        jobs += connection.jobs.list_batch_prediction_jobs(request)
    return [
        job
        for job in jobs
        if vertex_jobs.has_labels(job, labels)
        and vertex_jobs.state_of(job) in JOB_ENDED
        and _end_of(job) < before.timestamp()
    ]


def _make_run_items(
    connection: Connection, job: Any, folder: str, ended_jobs: Sequence[Any]
) -> Iterator[Item]:
    """Yield a run's jobs, its cache entries, its folder and finally the run itself.

    The run comes last because only the run names the others. A cache entry that outlives the folder
    would make a later run use files that are no longer there.
    """
    run_id = vertex_jobs.id_of(job)
    content = vertex_jobs.content_of(job)
    names = {name.rpartition("/")[2] for kind in JOB_KINDS for name in job_names(content, kind)}
    for ended in ended_jobs:
        if vertex_jobs.id_of(ended) in names or ended.labels.get("run") == run_id:
            yield _make_job_item(connection, ended)
    part = f"of the run {run_id}"
    executions = (task.execution.name for task in job.job_detail.task_details)
    if cached := [name for name in executions if name]:
        delete = partial(_delete_executions, connection, cached)
        yield Item("cache", f"{len(cached)} entries", part, delete)
    if folder:
        yield Item("folder", folder, part, partial(_delete_folder, connection, folder), job.name)
    day = datetime.datetime.fromtimestamp(_end_of(job), datetime.UTC).date()
    detail = f"{vertex_jobs.state_of(job)}, {job.labels.get('recipe', '')}, {day}"
    yield _resource_item(
        connection, "run", job.name, detail, connection.pipelines.delete_pipeline_job
    )


def _make_job_item(connection: Connection, job: Any) -> Item:
    kind, delete = "training job", connection.jobs.delete_custom_job
    if f"/{SEARCHES}/" in job.name:
        kind, delete = "search", connection.jobs.delete_hyperparameter_tuning_job
    if f"/{BATCH_JOBS}/" in job.name:
        kind, delete = "batch prediction", connection.jobs.delete_batch_prediction_job
    detail = f"{vertex_jobs.state_of(job)}, {job.display_name}"
    return _resource_item(connection, kind, job.name, detail, delete)


def _resource_item(connection: Connection, kind: str, name: str, detail: str, method: Any) -> Item:
    """Return the item of a resource that `method` of a client deletes."""
    return Item(kind, name, detail, partial(_delete_resource, connection, method, name), name)


def _list_uris(job: Any) -> list[str]:
    """Return the URIs of a run's inputs, outputs and parameters such as `resume_from`."""
    inputs = job._pb.pipeline_spec.fields["root"].struct_value.fields["inputDefinitions"]
    parameters = f"{inputs} {job._pb.runtime_config.parameter_values}"
    return [f"gs://{path}" for path in _URI.findall(parameters)] + [
        artifact.uri
        for detail in job.job_detail.task_details
        for side in (detail.outputs, detail.inputs)
        for artifacts in side.values()
        for artifact in artifacts.artifacts
    ]


def _folder_of(job: Any, uris: Sequence[str]) -> str:
    """Return the folder of a run's outputs on Vertex AI, by one of them, if it has any.

    The page on PipelineJobs has <root>/<run>/, others saw <root>/<project number>/<run>/.
    """
    root = job.runtime_config.gcs_output_directory.rstrip("/")
    if not root.startswith("gs://"):
        return ""
    direct, usual = (
        f"{root}/{part}{vertex_jobs.id_of(job)}/" for part in ("", f"{job.name.split('/')[1]}/")
    )
    return direct if any(uri.startswith(direct) for uri in uris) else usual


def _end_of(resource: Any) -> float:
    """Return the end of a run or job, in seconds since 1970."""
    return vertex_jobs.seconds_of(resource.end_time or resource.update_time or resource.create_time)


def _delete_resource(connection: Connection, method: Any, name: str) -> None:
    with translated(f"deleting {name}"):
        operation = None
        with tolerated(NOT_FOUND):
            operation = method(name=name)
        if operation:
            connection.finish(operation)


def _delete_endpoint(connection: Connection, name: str) -> None:
    """Delete an endpoint with its deployed versions."""
    with translated(f"deleting {name}"):
        EndpointChanges(connection.endpoints, connection.say).delete(name)


def _delete_executions(connection: Connection, names: Sequence[str]) -> None:
    """Delete steps from the cache; without permission for that, do nothing."""
    for name in names:
        with translated(f"deleting {name}"), tolerated(FORBIDDEN, NOT_FOUND, NOT_IMPLEMENTED):
            connection.metadata.delete_execution(name=name)


def _delete_folder(connection: Connection, uri: str) -> None:
    bucket, _, prefix = uri.removeprefix("gs://").partition("/")
    retry = connection.retry
    with translated(f"deleting {uri}"), tolerated(NOT_FOUND):
        for blob in connection.storage.list_blobs(bucket, prefix=prefix, retry=retry):
            with tolerated(NOT_FOUND):
                blob.delete(retry=retry)
