"""Batch prediction on Vertex AI: its runs and schedules."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from components.planning.prediction_options import BIGQUERY, format_of
from pipelines.cloud import schedules
from pipelines.cloud.schedules import Applied
from pipelines.package import Package
from pipelines.printing import say
from pipelines.project.connection import Connection
from pipelines.project.settings import Settings
from pipelines.recipe import Recipe
from pipelines.runs import job_request, vertex_jobs
from pipelines.runs import launch as launching
from trainer.data.file_listing import list_objects
from vertex.client.cloud_errors import NOT_FOUND, tolerated, translated
from vertex.errors import InputError
from vertex.facts import regions, resource_names
from vertex.facts.resource_names import TABLE, is_prebuilt

_FORBIDDEN = 403
_PREBUILT_FORMATS = ("jsonl", "bigquery")


def launch(
    recipe: Recipe, given: Mapping[str, Any], settings: Settings, *, name: str, detach: bool
) -> int:
    """Start a batch prediction and, unless `detach`, wait for its end; return the exit code."""
    settings.require("project", "pipeline_root")
    run_id = job_request.make_run_id(recipe.batch_name, name)
    values = recipe.batch_values(given, origin="--batch")
    _check_locations(values, settings)
    connection = Connection(settings, say)
    _check_champion(connection, values)
    _check_input(connection, values["input"])
    _check_regions(connection, values)
    package = job_request.compile_package(recipe, settings, batch=True)
    values |= _values_from_settings(values, settings, package, run_id)
    vertex_jobs.create(
        connection, job_request.build_pipeline_job(package, settings, values), run_id
    )
    return launching.follow(connection, "", run_id, detach=detach) or 0


def apply(connection: Connection, recipe: Recipe, *, removed: Collection[str] = ()) -> Applied:
    """Create or update the schedule of a recipe's batch prediction as [batch] declares it."""
    batch = recipe.run_options.batch
    if not batch or not batch.schedule:
        raise InputError(
            f"recipe {recipe.name!r} declares no [batch.schedule] with cron = ...; add it"
        )
    settings = connection.settings
    origin = "[batch.schedule] parameters"
    values = recipe.batch_values(batch.schedule.parameters, origin=origin)
    _check_locations(values, settings)
    _check_regions(connection, values)
    package = job_request.compile_package(recipe, settings, batch=True)
    values |= _values_from_settings(values, settings, package, "")
    return schedules.update(connection, package, batch.schedule, values, removed=removed)


def _values_from_settings(
    values: Mapping[str, Any], settings: Settings, package: Package, run_id: str
) -> dict[str, Any]:
    """Return the values that settings give, without the service account.

    Vertex AI's own account may read the model, which is all that the replicas need. As another
    account they run only if Vertex AI's service agent has roles/iam.serviceAccountAdmin on it.
    """
    others = dataclasses.replace(settings, service_account="")
    return job_request.values_from_settings(values, others, package, run_id)


def _check_locations(values: Mapping[str, Any], settings: Settings) -> None:
    """Raise InputError if the input is missing, or Vertex AI can't reach the input or output."""
    key = values["encryption_spec_key_name"] or settings.encryption_key
    resource_names.check_region({"encryption_spec_key_name": key}, settings.region)
    regions.check_serving_machine(values["machine_type"], settings.region)
    if not values["input"]:
        raise InputError("batch prediction has no input; set input = ... in [batch]")
    for name in ("input", "output"):
        uri = values[name]
        if uri and not uri.startswith(("gs://", BIGQUERY)):
            raise InputError(
                f"{name}: {uri!r} is on this machine; give gs://BUCKET/..., or add --local"
            )
        if key and uri.startswith(BIGQUERY):
            raise InputError(
                f"{name}={uri!r}: Vertex AI accepts no encryption key with BigQuery; use gs://"
            )
    if values["input"].startswith(BIGQUERY) and not values["output"].startswith(BIGQUERY):
        raise InputError(
            f"input={values['input']!r} is in BigQuery, so Vertex AI writes the predictions there, "
            "too; give output=bq://PROJECT.DATASET"
        )


def _check_champion(connection: Connection, values: Mapping[str, Any]) -> None:
    model, kind = values["model_name"], format_of(values["input"])
    with translated(f"looking for the champion of {model!r}"):
        champion = connection.registry.fetch_champion(model)
        image = connection.models.get_model(name=champion.resource).container_spec.image_uri
    if is_prebuilt(image) and kind not in _PREBUILT_FORMATS:
        raise InputError(
            f"{champion.name} is served by {image}, which accepts only "
            f"{' and '.join(_PREBUILT_FORMATS)}, not {kind}; register a version with the setting "
            "serving_image"
        )


def _check_input(connection: Connection, uri: str) -> None:
    if uri.startswith(BIGQUERY):
        return

    def find() -> Any:
        return next(list_objects(connection.storage, uri), None)

    match = None
    with translated(f"looking for {uri}"), tolerated(NOT_FOUND):
        match = connection.retry(find)()  # Says when the answer takes long.
    if match is None:
        raise InputError(f"input={uri!r}: there is no such file; give a file or a pattern")


def _check_regions(connection: Connection, values: Mapping[str, Any]) -> None:
    """Raise InputError for input or output that is in another region than the model."""
    region = connection.settings.region
    for name in ("input", "output"):
        uri, location, view = values[name], "", False
        with translated(f"looking for {uri}"), tolerated(NOT_FOUND, _FORBIDDEN):
            location = _find_location(connection, uri).lower()
            view = name == "input" and _is_view(connection, uri)
        table = uri.startswith(BIGQUERY)
        if location and not regions.is_within(region, location, table=table, view=view):
            raise InputError(
                f"{name}={uri!r} is {'a view ' if view else ''}in {location}, but the model is in "
                f"{region}; copy it to {region}, or give another"
            )


def _find_location(connection: Connection, uri: str) -> str:
    """Return the location of a bucket or of a BigQuery dataset; empty if `uri` names neither."""
    if not uri.startswith(BIGQUERY):
        bucket = urlsplit(uri).netloc
        get = connection.storage.get_bucket
        return str(get(bucket, retry=connection.retry).location) if bucket else ""
    project, *rest = uri.removeprefix(BIGQUERY).split(".")
    if not rest:
        return ""
    path = f"bigquery/v2/projects/{project}/datasets/{rest[0]}"
    return str(connection.call_api("bigquery", "GET", path).get("location", ""))


def _is_view(connection: Connection, uri: str) -> bool:
    """Return whether a URI names a view in BigQuery."""
    if not TABLE.fullmatch(uri):
        return False
    project, dataset, table = uri.removeprefix(BIGQUERY).split(".")
    path = f"bigquery/v2/projects/{project}/datasets/{dataset}/tables/{table}"
    return connection.call_api("bigquery", "GET", path).get("type") == "VIEW"
