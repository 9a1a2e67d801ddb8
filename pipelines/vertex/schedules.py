"""Schedules of Vertex AI, one a recipe, brought to what the recipe declares."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pipelines.operation import Schedule
from pipelines.recipe import Recipe
from pipelines.vertex import runs, upload
from pipelines.vertex import template as templates
from pipelines.vertex.connection import Connection, attempt, finished
from pipelines.vertex.errors import translated
from pipelines.vertex.template import MADE_BY, Template
from trainer.errors import InputError

FINGERPRINT = "declared"
"""The label that holds a hash of everything a schedule starts its runs with."""

_COMPLETED = "COMPLETED"


@dataclasses.dataclass(frozen=True)
class Applied:
    """What `apply` did.

    Attributes:
        action: created, updated or unchanged.
        changed: fields that were updated.
        schedule: the resource as it is now.
        digest: of the template that its runs start from.
    """

    action: str
    changed: list[str]
    schedule: Any
    digest: str


def apply(connection: Connection, recipe: Recipe, template: Template) -> Applied:
    """Makes the recipe's schedule what the recipe declares; does nothing where it is so.

    The schedule holds the compiled pipeline itself: runs keep starting from those bytes until
    it is applied again. It is looked for before it is created, so that a request whose answer
    was lost makes no second one.

    Raises:
        InputError: the recipe declares no schedule, or one that Vertex AI refuses.
        CloudError: refused for another reason, or no connection.
    """
    if not recipe.operation.retraining:
        raise InputError(
            f"recipe {recipe.name!r} declares no schedule; add [retraining] with cron = ... to its "
            "file"
        )
    settings = connection.settings.require("project", "pipeline_root")
    declared = recipe.operation.retraining
    parameters = recipe.with_values(declared.parameters, place="[retraining] parameters")
    values = templates.run_values(recipe, parameters, settings, template, "")
    job = templates.pipeline_job(template, settings, values)
    job.template_uri = upload.pinned(connection, template)
    job.labels[FINGERPRINT] = _fingerprint(job)
    wanted = _schedule(recipe.name, declared, job, settings.parent)
    with translated(f"applying the schedule of {recipe.name!r}"):
        action, changed, schedule = attempt(lambda: _reconcile(connection, recipe.name, wanted))
    return Applied(action, changed, schedule, template.digest)


def find(connection: Connection, recipe: str) -> Any:
    """The recipe's schedule that is not completed; raises InputError where there is none."""
    with translated(f"looking for the schedule of {recipe!r}"):
        schedule = attempt(lambda: _find(connection, recipe))
    if schedule is None:
        raise InputError(
            f"recipe {recipe!r} has no schedule in {connection.settings.parent}; `schedule apply "
            f"{recipe}` makes it"
        )
    return schedule


def listed(connection: Connection) -> list[Any]:
    """Every schedule that this project made."""
    with translated("listing the schedules"):
        return attempt(lambda: _listed(connection))


def pause(connection: Connection, recipe: str) -> None:
    """Stops a schedule from starting runs, until it is resumed."""
    schedule = find(connection, recipe)
    if schedule.state.name == "PAUSED":
        return
    with translated(f"pausing the schedule of {recipe!r}"):
        attempt(lambda: connection.schedules.pause_schedule(name=schedule.name))


def resume(connection: Connection, recipe: str) -> None:
    """Lets a schedule start runs again; those it has missed are not made up for."""
    schedule = find(connection, recipe)
    if schedule.state.name == "ACTIVE":
        return
    with translated(f"resuming the schedule of {recipe!r}"):
        attempt(lambda: connection.schedules.resume_schedule(name=schedule.name))


def delete(connection: Connection, recipe: str) -> None:
    """Deletes a recipe's schedule; its runs stay."""
    schedule = find(connection, recipe)
    with translated(f"deleting the schedule of {recipe!r}"):
        finished(attempt(lambda: connection.schedules.delete_schedule(name=schedule.name)))


def is_ours(schedule: Any) -> bool:
    """Whether this project made a schedule: the label is on the runs that it starts."""
    return runs.has_labels(schedule.create_pipeline_job_request.pipeline_job, MADE_BY)


def recipe_of(schedule: Any) -> str:
    """The recipe that a schedule runs."""
    return schedule.create_pipeline_job_request.pipeline_job.labels.get("recipe", "")


def _listed(connection: Connection) -> list[Any]:
    schedules = connection.schedules.list_schedules(parent=connection.settings.parent)
    return [schedule for schedule in schedules if is_ours(schedule)]


def _find(connection: Connection, recipe: str) -> Any:
    for schedule in _listed(connection):
        if recipe_of(schedule) == recipe.lower() and schedule.state.name != _COMPLETED:
            return schedule
    return None


def _reconcile(connection: Connection, recipe: str, wanted: Any) -> tuple[str, list[str], Any]:
    from google.protobuf import field_mask_pb2

    present = _find(connection, recipe)
    if present is None:
        created = connection.schedules.create_schedule(
            parent=connection.settings.parent, schedule=wanted
        )
        return "created", [], created
    changed = _changed(present, wanted)
    if not changed:
        return "unchanged", [], present
    wanted.name = present.name
    updated = connection.schedules.update_schedule(
        schedule=wanted, update_mask=field_mask_pb2.FieldMask(paths=changed)
    )
    return "updated", changed, updated


def _changed(present: Any, wanted: Any) -> list[str]:
    """The fields that differ; what was not declared and the server has filled in does not."""
    plain = (
        "cron",
        "max_concurrent_run_count",
        "max_concurrent_active_run_count",
        "allow_queueing",
        "max_run_count",
    )
    changed = [name for name in plain if getattr(present, name) != getattr(wanted, name)]
    for name in ("start_time", "end_time"):
        seconds = runs.seconds_of(getattr(wanted, name))
        if seconds and runs.seconds_of(getattr(present, name)) != seconds:
            changed.append(name)
    labels = present.create_pipeline_job_request.pipeline_job.labels
    if labels.get(FINGERPRINT) != wanted.create_pipeline_job_request.pipeline_job.labels.get(
        FINGERPRINT
    ):
        changed.append("create_pipeline_job_request")
    return changed


def _schedule(recipe: str, declared: Schedule, job: Any, parent: str) -> Any:
    from google.cloud.aiplatform_v1 import types

    schedule = types.Schedule(
        display_name=recipe,
        cron=declared.cron_with_zone,
        # The first limits how many runs are started at once, the second how many go on.
        max_concurrent_run_count=declared.max_concurrent_runs,
        max_concurrent_active_run_count=declared.max_concurrent_runs,
        max_run_count=declared.max_runs,
        allow_queueing=declared.allow_queueing,
        create_pipeline_job_request=types.CreatePipelineJobRequest(parent=parent, pipeline_job=job),
    )
    if declared.start_time:
        schedule.start_time = declared.start_time
    if declared.end_time:
        schedule.end_time = declared.end_time
    return schedule


def _fingerprint(job: Any) -> str:
    """A hash of what runs start with. The commit is left out: it alone changes nothing."""
    from google.protobuf import json_format

    content: Mapping[str, Any] = json_format.MessageToDict(job._pb)
    text = json.dumps({**content, "labels": _without_commit(content["labels"])}, sort_keys=True)
    own = json.loads(text)
    values = own["runtimeConfig"]["parameterValues"]
    values["labels"] = _without_commit(values.get("labels", {}))
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:32]


def _without_commit(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key != "commit"}
