"""Schedules on Vertex AI, one for each recipe, kept as the recipe declares them."""

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import Any

from components.cloud_errors import NOT_FOUND, tolerated, translated
from components.registry.model_upload import MADE_BY
from pipelines.cloud import job_request, runs, upload
from pipelines.cloud.connection import Connection
from pipelines.package import Package
from pipelines.recipe import Recipe
from pipelines.run_options import Schedule, parse_time
from trainer.errors import InputError

_REFUSED = (400, 501)
_PLAIN = ("cron", "max_concurrent_run_count", "max_concurrent_active_run_count",
          "allow_queueing", "max_run_count")  # fmt: skip
_SENT = ("displayName", "pipelineSpec", "labels", "serviceAccount", "network", "encryptionSpec",
         "templateUri")  # fmt: skip
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


def apply(connection: Connection, recipe: Recipe) -> Applied:
    """Create or update a schedule as its recipe declares it; do nothing if it is up to date."""
    declared = recipe.run_options.retraining
    if not declared:
        raise InputError(
            f"recipe {recipe.name!r} declares no schedule; add [retraining] with cron = ... to its "
            "file"
        )
    parameters = recipe.with_values(declared.parameters, place="[retraining] parameters")
    package = job_request.compile_package(recipe, connection.settings)
    values = job_request.run_values(recipe, parameters, connection.settings, package, "")
    return update(connection, package, declared, values)


def update(
    connection: Connection, package: Package, declared: Schedule, values: Mapping[str, Any]
) -> Applied:
    """Create or update the schedule of a package, with parameter values for its runs.

    The schedule holds the compiled pipeline itself: runs start from those bytes until it is
    applied again. Looks for the schedule before creating one, so that a retry after a lost answer
    makes no second one.
    """
    settings, name = connection.settings, package.recipe
    job = job_request.build_pipeline_job(package, settings, values)
    job.template_uri = upload.pin_template(connection, package)
    wanted = _build_schedule(name, declared, job, settings.parent)
    with translated(f"applying the schedule of {name!r}"):
        action, changed, schedule = connection.retry(_reconcile)(connection, name, wanted)
    return Applied(action, changed, schedule, package.digest)


def fetch_schedules(connection: Connection, recipe: str) -> list[Any]:
    """Return the recipe's schedules that are not completed; raise InputError if there are none.

    There is only one, unless two users replaced it at once; the next `apply` leaves one.
    """
    with translated(f"looking for the schedule of {recipe!r}"):
        found = _list_current(connection, recipe)
    if not found:
        raise InputError(
            f"recipe {recipe!r} has no schedule in {connection.settings.parent}; `schedule apply "
            f"{recipe}` creates it"
        )
    return found


def list_schedules(connection: Connection) -> list[Any]:
    """Return every schedule that this project made."""
    with translated("listing the schedules"):
        schedules = connection.schedules.list_schedules(parent=connection.settings.parent)
        return [
            one
            for one in schedules
            if runs.has_labels(one.create_pipeline_job_request.pipeline_job, MADE_BY)
        ]


def set_state(connection: Connection, recipe: str, state: str) -> None:
    """Set a recipe's schedule to PAUSED or ACTIVE; missed runs are not made up for."""
    client = connection.schedules
    method = client.pause_schedule if state == "PAUSED" else client.resume_schedule
    found = fetch_schedules(connection, recipe)
    for name in [one.name for one in found if one.state.name != state]:
        with translated(f"setting the schedule of {recipe!r} to {state}"):
            try:
                method(name=name)
            except Exception:
                # An earlier request, whose answer was lost, may have done it.
                present = _list_current(connection, recipe)
                now = [one.state.name for one in present if one.name == name]
                if now != [state]:
                    raise


def delete(connection: Connection, recipe: str) -> None:
    """Delete a recipe's schedule; its runs stay."""
    with translated(f"deleting the schedule of {recipe!r}"):
        _delete(connection, fetch_schedules(connection, recipe))


def recipe_of(schedule: Any) -> str:
    return schedule.create_pipeline_job_request.pipeline_job.labels.get("recipe", "")


def _list_current(connection: Connection, recipe: str) -> list[Any]:
    return [
        one
        for one in list_schedules(connection)
        if recipe_of(one) == recipe.lower() and one.state.name != "COMPLETED"
    ]


def _delete(connection: Connection, schedules: list[Any]) -> None:
    for schedule in schedules:
        # An earlier request, whose answer was lost, may have deleted it.
        with tolerated(NOT_FOUND):
            connection.finish(connection.schedules.delete_schedule(name=schedule.name))


def _reconcile(connection: Connection, recipe: str, wanted: Any) -> tuple[str, list[str], Any]:
    """Create or update the recipe's schedule; delete others that it may have."""
    action, present = "unchanged", {one.name: one for one in _list_current(connection, recipe)}
    create = functools.partial(
        connection.schedules.create_schedule, parent=connection.settings.parent, schedule=wanted
    )
    made = None if present else create()
    if made:
        # If others create one at the same time, all keep the oldest.
        action = "created"
        present = {one.name: one for one in [made, *_list_current(connection, recipe)]}

    def rank(one: Any) -> tuple[bool, float, str]:
        differs = not made and bool(_find_changes(one, wanted))
        return differs, runs.seconds_of(one.create_time), one.name

    kept, *others = sorted(present.values(), key=rank)
    if changed := _find_changes(kept, wanted):
        updated = _update(connection, kept, wanted, changed)
        action = "updated" if updated else "recreated"
        kept, others = (updated, others) if updated else (create(), [kept, *others])
    if any(one.state.name == "PAUSED" for one in others) and kept.state.name == "ACTIVE":
        connection.schedules.pause_schedule(name=kept.name)
    _delete(connection, others)
    return action, changed, kept


def _update(connection: Connection, present: Any, wanted: Any, changed: list[str]) -> Any:
    """Update a schedule and return it; return None if it has to be recreated instead."""
    from google.cloud.aiplatform_v1 import types
    from google.protobuf import field_mask_pb2

    # "When you update the schedule, the START_TIME remains unchanged", says its page.
    unset = any(name in _UNSETTABLE and not getattr(wanted, name) for name in changed)
    if unset or "start_time" in changed:
        return None
    schedule = types.Schedule(wanted)
    schedule.name = present.name
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
        # The first limits runs that are starting, the second runs that have not ended.
        max_concurrent_run_count=declared.max_concurrent_runs,
        max_concurrent_active_run_count=declared.max_concurrent_runs,
        max_run_count=declared.max_runs,
        allow_queueing=declared.allow_queueing,
        create_pipeline_job_request=types.CreatePipelineJobRequest(parent=parent, pipeline_job=job),
        start_time=parse_time(declared.start),
        end_time=parse_time(declared.end),
    )


def _find_changes(present: Any, wanted: Any) -> list[str]:
    """Return the names of fields that differ, except those that the server fills in."""
    found = [name for name in _PLAIN if getattr(present, name) != getattr(wanted, name)]
    if _start_of(present) != _start_of(wanted):
        found.append("start_time")
    if runs.seconds_of(present.end_time) != runs.seconds_of(wanted.end_time):
        found.append("end_time")
    jobs = [one.create_pipeline_job_request.pipeline_job for one in (present, wanted)]
    if _content_of(jobs[0]) != _content_of(jobs[1]):
        found.append("create_pipeline_job_request")
    return found


def _start_of(schedule: Any) -> float:
    """Return the time before which no run starts; 0 if it is past or only the creation time."""
    start = runs.seconds_of(schedule.start_time)
    return start if start > max(time.time(), runs.seconds_of(schedule.create_time) + 60) else 0.0


def _content_of(job: Any) -> dict[str, Any]:
    """Return all that runs start with, without the commit: a new commit alone is no change."""
    from google.protobuf import json_format

    document = json_format.MessageToDict(job._pb)
    content = {name: document.get(name) for name in _SENT}
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
    """Return labels without the commit's and Vertex AI's own."""
    own = (labels or {}).items()
    return {key: value for key, value in own if key != "commit" and "vertex-ai-" not in key}
