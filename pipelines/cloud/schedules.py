"""Schedules of Vertex AI, one a recipe, brought to what the recipe declares."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from components.cloud_errors import NOT_FOUND, CloudError, tolerated, translated
from components.registry.model_upload import MADE_BY
from pipelines.cloud import job_request, runs, schedule_fields, upload
from pipelines.cloud.connection import Connection
from pipelines.operation import Schedule
from pipelines.package import Package
from pipelines.recipe import Recipe
from trainer.errors import InputError

_ROUNDS = 5
_REFUSED = (400, 501)
_UNSETTABLE = ("max_run_count", "end_time")
"""Fields that no update takes away once they are set."""


@dataclasses.dataclass(frozen=True)
class Applied:
    """A schedule as it is now, and what `apply` has done to it.

    Attributes:
        action: created, updated, recreated or unchanged.
        changed: fields that differed.
        digest: of the pipeline that its runs start from.
    """

    action: str
    changed: list[str]
    schedule: Any
    digest: str


def apply(connection: Connection, recipe: Recipe, package: Package) -> Applied:
    """Make the recipe's schedule what the recipe declares; do nothing where it is so.

    The schedule holds the compiled pipeline itself: runs keep starting from those bytes until
    it is applied again. It is looked for before it is created, so that a request whose answer
    was lost makes no second one; of several, by two who apply at once, one is left.

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
    values = job_request.run_values(recipe, parameters, settings, package, "")
    return bring(connection, package, declared, values)


def bring(
    connection: Connection, package: Package, declared: Schedule, values: Mapping[str, Any]
) -> Applied:
    """Make the schedule of a package as declared, for runs with these values of its parameters."""
    settings, name = connection.settings, package.recipe
    job = job_request.pipeline_job(package, settings, values)
    job.template_uri = upload.pinned(connection, package)
    wanted = schedule_fields.schedule(name, declared, job, settings.parent)
    with translated(f"applying the schedule of {name!r}"):
        action, changed, schedule = connection.retry(_reconcile)(connection, name, wanted)
    return Applied(action, changed, schedule, package.digest)


def find(connection: Connection, recipe: str) -> list[Any]:
    """Return the recipe's schedules that are not completed; raise InputError without one.

    There is one, but where two have applied at once and were interrupted.
    """
    with translated(f"looking for the schedule of {recipe!r}"):
        found = _find(connection, recipe)
    if not found:
        raise InputError(
            f"recipe {recipe!r} has no schedule in {connection.settings.parent}; `schedule apply "
            f"{recipe}` makes it"
        )
    return found


def listed(connection: Connection) -> list[Any]:
    """Return every schedule that this project made."""
    with translated("listing the schedules"):
        schedules = connection.schedules.list_schedules(parent=connection.settings.parent)
        return [
            one
            for one in schedules
            if runs.has_labels(one.create_pipeline_job_request.pipeline_job, MADE_BY)
        ]


def pause(connection: Connection, recipe: str) -> None:
    """Stop a schedule from starting runs, until it is resumed."""
    _bring(connection, recipe, "PAUSED", connection.schedules.pause_schedule)


def resume(connection: Connection, recipe: str) -> None:
    """Let a schedule start runs again; those it has missed are not made up for."""
    _bring(connection, recipe, "ACTIVE", connection.schedules.resume_schedule)


def delete(connection: Connection, recipe: str) -> None:
    """Delete a recipe's schedule; its runs stay."""
    with translated(f"deleting the schedule of {recipe!r}"):
        _delete(connection, find(connection, recipe))


def recipe_of(schedule: Any) -> str:
    """Return the recipe that a schedule runs."""
    return schedule.create_pipeline_job_request.pipeline_job.labels.get("recipe", "")


def _find(connection: Connection, recipe: str) -> list[Any]:
    return [
        one
        for one in listed(connection)
        if recipe_of(one) == recipe.lower() and one.state.name != "COMPLETED"
    ]


def _bring(connection: Connection, recipe: str, state: str, method: Callable[..., Any]) -> None:
    """Bring a recipe's schedules into a state."""
    for schedule in find(connection, recipe):
        if schedule.state.name == state:
            continue
        with translated(f"bringing the schedule of {recipe!r} to {state}"):
            try:
                method(name=schedule.name)
            except Exception:
                # Refused, perhaps, because a request whose answer was lost has done it.
                if not any(
                    one.name == schedule.name and one.state.name == state
                    for one in _find(connection, recipe)
                ):
                    raise


def _delete(connection: Connection, schedules: list[Any]) -> None:
    for schedule in schedules:
        # Gone already, perhaps by a request whose answer was lost.
        with tolerated(NOT_FOUND):
            connection.finish(connection.schedules.delete_schedule(name=schedule.name))


def _reconcile(connection: Connection, recipe: str, wanted: Any) -> tuple[str, list[str], Any]:
    """Change, create and delete until the recipe has one schedule, and that is as wanted."""
    action = "unchanged"
    changed: list[str] = []
    # Names of those that this call has made or changed, and that were accepted.
    own: set[str] = set()
    for _ in range(_ROUNDS):
        present = _find(connection, recipe)
        for name in own - {one.name for one in present}:
            # A list may lag behind, or somebody else may have deleted it.
            with tolerated(NOT_FOUND):
                present.append(connection.schedules.get_schedule(name=name))
        fitting = [
            one for one in present if one.name in own or not schedule_fields.changed(one, wanted)
        ]
        if fitting:
            kept = min(fitting, key=_age)
            others = [one for one in present if one.name != kept.name]
            if not others:
                return action, changed, kept
            if any(one.state.name == "PAUSED" for one in others) and kept.state.name == "ACTIVE":
                connection.schedules.pause_schedule(name=kept.name)
            _delete(connection, others)
            continue
        if present:
            oldest = min(present, key=_age)
            changed = schedule_fields.changed(oldest, wanted)
            made = _updated(connection, oldest, wanted, changed)
            action = "updated" if made else "recreated"
        else:
            action, changed, made = "created", [], None
        made = made or connection.schedules.create_schedule(
            parent=connection.settings.parent, schedule=wanted
        )
        own.add(made.name)
    raise CloudError("somebody else changes it at the same time; apply it again")


def _updated(connection: Connection, present: Any, wanted: Any, changed: list[str]) -> Any:
    """Update a schedule; return it, or None where that can't be and it has to be recreated."""
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
        return None if "end_time" in schedule_fields.changed(updated, wanted) else updated
    return None


def _age(schedule: Any) -> tuple[float, str]:
    return runs.seconds_of(schedule.create_time), schedule.name
