"""Schedules on Vertex AI: one for each recipe, in the state that the recipe declares."""

import dataclasses
import functools
import time
from collections.abc import Collection, Mapping
from typing import Any

from pipelines.cloud import upload
from pipelines.package import Package
from pipelines.project.connection import Connection
from pipelines.recipe import Recipe
from pipelines.run_options import Schedule, parse_time
from pipelines.runs import job_request, vertex_jobs
from vertex.client.cloud_errors import NOT_FOUND, Change, tolerated, translated
from vertex.errors import InputError
from vertex.registry.model_upload import MADE_BY

_REFUSED = (400, 501)
_COMPARED = ("cron", "max_concurrent_run_count", "max_concurrent_active_run_count",
             "allow_queueing", "max_run_count")  # fmt: skip
_COMPARED_IN_JOB = ("displayName", "pipelineSpec", "labels", "serviceAccount", "network",
                    "encryptionSpec", "templateUri")  # fmt: skip
REMOVABLE = ("encryption_key", "labels", "network", "service_account", "tensorboard")
"""Settings that the runs of a schedule lose only if that is asked for."""
_DEFAULT_ACCOUNT = "-compute@developer.gserviceaccount.com"
_UNSETTABLE = ("max_run_count", "end_time")
"""Fields that no update can unset."""


@dataclasses.dataclass(frozen=True)
class Applied:
    """The outcome of `apply`."""

    action: str  # created, updated, recreated or unchanged
    changed: list[str]  # names of the fields that differed
    schedule: Any  # the schedule as it is now
    digest: str  # SHA-256 of the pipeline that its runs start from


def apply(connection: Connection, recipe: Recipe, *, removed: Collection[str] = ()) -> Applied:
    """Create or update a schedule as its recipe declares it; do nothing if it is up to date.

    Raises InputError if its runs would lose a setting, such as network, that is not `removed`.
    """
    declared = recipe.run_options.retraining
    if not declared:
        raise InputError(
            f"recipe {recipe.name!r} declares no schedule; add [retraining] with cron = ..."
        )
    parameters = recipe.with_values(declared.parameters, origin="[retraining] parameters")
    package = job_request.compile_package(recipe, connection.settings)
    values = job_request.run_values(recipe, parameters, connection.settings, package, "")
    return update(connection, package, declared, values, removed=removed)


def update(
    connection: Connection,
    package: Package,
    declared: Schedule,
    values: Mapping[str, Any],
    *,
    removed: Collection[str],
) -> Applied:
    """Create or update the schedule of a package, with parameter values for its runs.

    The schedule contains the compiled pipeline: its runs use that pipeline until the schedule is
    applied again. An existing schedule is looked up before one is created, so that a retry after a
    lost answer does not create a second one.
    """
    settings, name = connection.settings, package.recipe
    end = vertex_jobs.seconds_of(parse_time(declared.end))
    if end and end < time.time():
        raise InputError(f"end={declared.end!r} has passed, so no run would start; set a later one")
    job = job_request.build_pipeline_job(package, settings, values)
    job.template_uri = upload.pin_template(connection, package)
    wanted = _build_schedule(name, declared, job, settings.parent)
    repeat = "repeat the command, which creates no second one"
    with translated(f"applying the schedule of {name!r}", repeat=repeat), Change() as change:
        reconcile = functools.partial(_reconcile, connection, name, wanted, removed=removed)
        action, changed, schedule = connection.retry(reconcile)(change)
    return Applied(action, changed, schedule, package.digest)


def fetch_schedules(connection: Connection, recipe: str) -> list[Any]:
    """Return the recipe's schedules that are not completed; raise InputError if there are none.

    There is only one, unless `apply` was killed while it replaced it; the next `apply` keeps one.
    """
    with translated(f"looking for the schedule of {recipe!r}"):
        found = _list_current(connection, recipe)
    if not found:
        raise InputError(
            f"recipe {recipe!r} has no schedule in {connection.settings.parent}; `schedule apply "
            f"{recipe}` creates it"
        )
    return found


def list_schedules(connection: Connection, labels: Mapping[str, str] = MADE_BY) -> list[Any]:
    """Return every schedule whose runs have the labels, by default those of this project."""
    with translated("listing the schedules"):
        return _list(connection, labels)


def _list(connection: Connection, labels: Mapping[str, str]) -> list[Any]:
    schedules = connection.schedules.list_schedules(parent=connection.settings.parent)
    return [
        schedule
        for schedule in schedules
        if vertex_jobs.has_labels(schedule.create_pipeline_job_request.pipeline_job, labels)
    ]


def set_state(connection: Connection, recipe: str, state: str) -> None:
    """Set a recipe's schedule to PAUSED or ACTIVE; runs missed in between are not started later."""
    client = connection.schedules
    method = client.pause_schedule if state == "PAUSED" else client.resume_schedule
    found = fetch_schedules(connection, recipe)
    for name in [schedule.name for schedule in found if schedule.state.name != state]:
        with translated(f"setting the schedule of {recipe!r} to {state}"):
            try:
                method(name=name)
            except Exception:
                # An earlier request, whose answer was lost, may have done it.
                current = _list_current(connection, recipe)
                states = [schedule.state.name for schedule in current if schedule.name == name]
                if states != [state]:
                    raise


def delete(connection: Connection, recipe: str) -> None:
    """Delete a recipe's schedule; its runs stay."""
    with translated(f"deleting the schedule of {recipe!r}"):
        _delete(connection, fetch_schedules(connection, recipe))


def recipe_of(schedule: Any) -> str:
    return schedule.create_pipeline_job_request.pipeline_job.labels.get("recipe", "")


def _list_current(connection: Connection, recipe: str) -> list[Any]:
    return [
        schedule
        for schedule in _list(connection, MADE_BY)
        if recipe_of(schedule) == recipe.lower() and schedule.state.name != "COMPLETED"
    ]


def _delete(connection: Connection, schedules: list[Any]) -> None:
    for schedule in schedules:
        # An earlier request, whose answer was lost, may have deleted it.
        with tolerated(NOT_FOUND):
            connection.finish(connection.schedules.delete_schedule(name=schedule.name))


def _reconcile(
    connection: Connection, recipe: str, wanted: Any, change: Change, *, removed: Collection[str]
) -> tuple[str, list[str], Any]:
    """Create or update the recipe's schedule; delete others that it may have."""
    action, existing = "unchanged", _list_current(connection, recipe)
    for schedule in existing:
        _check_keeps_settings(recipe, schedule, wanted, removed)
    known = {schedule.name for schedule in existing}

    def create() -> list[Any]:
        """Create a schedule; return the new ones, the oldest first, which all users keep."""
        created = connection.schedules.create_schedule(
            parent=connection.settings.parent, schedule=wanted
        )
        change.begun = True
        listed = {schedule.name: schedule for schedule in _list_current(connection, recipe)}
        new = {created.name: created, **listed}
        return sorted((one for name, one in new.items() if name not in known), key=_age)

    if existing:
        existing.sort(key=lambda schedule: (bool(_find_changes(schedule, wanted)), _age(schedule)))
    else:
        action, existing = "created", create()
    kept, *others = existing
    if changed := _find_changes(kept, wanted):
        updated = _update(connection, kept, wanted, changed)
        change.begun = True
        action = "updated" if updated else "recreated"
        if updated:
            kept = updated
        else:
            known.update(schedule.name for schedule in existing)
            kept, *newer = create()
            others = [*existing, *newer]
    paused = any(schedule.state.name == "PAUSED" for schedule in others)
    if paused and kept.state.name == "ACTIVE":
        connection.schedules.pause_schedule(name=kept.name)
    _delete(connection, others)
    return action, changed, kept


def _check_keeps_settings(
    recipe: str, existing: Any, wanted: Any, removed: Collection[str]
) -> None:
    """Raise InputError if the runs of a schedule would lose a setting that is not `removed`."""
    new = _settings_of(wanted)
    for (name, part), value in _settings_of(existing).items():
        if value and not new.get((name, part)) and name not in removed:
            lost = f"{name}={f'{part}={value}' if name == 'labels' else value}"
            raise InputError(
                f"the runs of the schedule of {recipe!r} have {lost}, which is not set now; set "
                f"it, or give --remove {name} to apply the schedule without it"
            )


def _settings_of(schedule: Any) -> dict[tuple[str, str], str]:
    """Return settings that a schedule's runs have: by name, and run, job or the label's key."""
    run = schedule.create_pipeline_job_request.pipeline_job
    job = run.runtime_config.parameter_values
    default = run.service_account.endswith(_DEFAULT_ACCOUNT)
    return {
        ("encryption_key", "run"): run.encryption_spec.kms_key_name,
        ("encryption_key", "job"): job.get("encryption_spec_key_name"),
        ("network", "run"): run.network,
        ("network", "job"): job.get("network"),
        ("service_account", "run"): "" if default else run.service_account,
        ("tensorboard", "job"): job.get("tensorboard"),
        **{("labels", key): value for key, value in _filter_labels(run.labels).items()},
    }


def _age(schedule: Any) -> tuple[float, str]:
    return vertex_jobs.seconds_of(schedule.create_time), schedule.name


def _update(connection: Connection, existing: Any, wanted: Any, changed: list[str]) -> Any:
    """Update a schedule and return it; return None if it has to be recreated instead."""
    from google.cloud.aiplatform_v1 import types
    from google.protobuf import field_mask_pb2

    # The documentation says: "When you update the schedule, the START_TIME remains unchanged".
    unset = any(name in _UNSETTABLE and not getattr(wanted, name) for name in changed)
    if unset or "start_time" in changed:
        return None
    schedule = types.Schedule(wanted)
    schedule.name = existing.name
    with tolerated(*_REFUSED):
        updated = connection.schedules.update_schedule(
            schedule=schedule, update_mask=field_mask_pb2.FieldMask(paths=changed)
        )
        return None if "end_time" in _find_changes(updated, wanted) else updated
    return None


def _build_schedule(recipe: str, declared: Schedule, job: Any, parent: str) -> Any:
    """Return the Schedule that a recipe declares, whose runs start from a PipelineJob."""
    from google.cloud.aiplatform_v1 import types

    return types.Schedule(
        display_name=recipe,
        cron=f"TZ={declared.time_zone} {' '.join(declared.cron.split())}",
        # The first field limits runs that are starting, the second runs that have not ended.
        max_concurrent_run_count=declared.max_concurrent_runs,
        max_concurrent_active_run_count=declared.max_concurrent_runs,
        max_run_count=declared.max_runs,
        allow_queueing=declared.allow_queueing,
        create_pipeline_job_request=types.CreatePipelineJobRequest(parent=parent, pipeline_job=job),
        start_time=parse_time(declared.start),
        end_time=parse_time(declared.end),
    )


def _find_changes(existing: Any, wanted: Any) -> list[str]:
    """Return the names of fields that differ, except those that the server fills in."""
    changed = [name for name in _COMPARED if getattr(existing, name) != getattr(wanted, name)]
    if _start_of(existing) != _start_of(wanted):
        changed.append("start_time")
    if vertex_jobs.seconds_of(existing.end_time) != vertex_jobs.seconds_of(wanted.end_time):
        changed.append("end_time")
    jobs = [schedule.create_pipeline_job_request.pipeline_job for schedule in (existing, wanted)]
    if _content_of(jobs[0]) != _content_of(jobs[1]):
        changed.append("create_pipeline_job_request")
    return changed


def _start_of(schedule: Any) -> float:
    """Return the time before which no run starts; 0 if it is past or only the creation time."""
    start = vertex_jobs.seconds_of(schedule.start_time)
    return (
        start
        if start > max(time.time(), vertex_jobs.seconds_of(schedule.create_time) + 60)
        else 0.0
    )


def _content_of(job: Any) -> dict[str, Any]:
    """Return everything that runs start with, except the commit, which alone changes nothing."""
    from google.protobuf import json_format

    document = json_format.MessageToDict(job._pb)
    content = {name: document.get(name) for name in _COMPARED_IN_JOB}
    runtime = document.get("runtimeConfig", {})
    values = dict(runtime.get("parameterValues", {}))
    if str(content["serviceAccount"]).endswith(_DEFAULT_ACCOUNT):
        content["serviceAccount"] = None
    values["labels"] = _filter_labels(values.get("labels"))
    return {
        **content,
        "labels": _filter_labels(content["labels"]),
        "root": runtime.get("gcsOutputDirectory"),
        "values": values,
    }


def _filter_labels(labels: Any) -> dict[str, str]:
    """Return labels without the commit's label and Vertex AI's own labels."""
    return {
        key: value
        for key, value in (labels or {}).items()
        if key != "commit" and "vertex-ai-" not in key
    }
