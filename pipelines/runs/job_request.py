"""The request that starts a run on Vertex AI: build/<recipe>.yaml and the run's values."""

import copy
import datetime
from collections.abc import Mapping
from typing import Any

from components.planning.serving_container import check_serving_image
from components.planning.worker_pools import IMAGE
from pipelines import plan
from pipelines.package import BUILD, Package, read_images
from pipelines.parameters import ParameterSet
from pipelines.printing import print_error
from pipelines.project.settings import Settings
from pipelines.recipe import Recipe, to_id
from pipelines.runs.run_folders import check_name
from trainer.data.sources import parse_source
from vertex.errors import InputError
from vertex.facts import regions, resource_names
from vertex.registry import model_upload
from vertex.registry.version_aliases import CHAMPION

_COPIED_FIELDS = ("display_name", "pipeline_spec", "labels", "runtime_config", "service_account",
                  "network", "encryption_spec")  # fmt: skip
"""Fields of a PipelineJob that `copy_job` copies."""


def compile_package(recipe: Recipe, settings: Settings, *, batch: bool = False) -> Package:
    """Compile a recipe, or its batch prediction, with the settings' image; check the image."""
    from pipelines import compilation

    name = recipe.batch_name if batch else recipe.name
    require_image(settings.image or read_images(BUILD / f"{name}.yaml")[0], settings)
    path = compilation.write_yaml(recipe, BUILD, settings.image, settings.gpu_image, batch=batch)
    return Package(path)


def require_image(image: str, settings: Settings) -> None:
    """Raise InputError if the image is local or empty; warn if it has no digest."""
    if image in ("", IMAGE):
        settings.require("image")
    if "@sha256:" not in image:
        print_error(
            f"warning: image {image} has no digest: after a push of other code, runs still use "
            "cached records of the old code; give IMAGE@sha256:DIGEST"
        )


def run_values(
    recipe: Recipe, parameters: ParameterSet, settings: Settings, package: Package, run_id: str
) -> dict[str, Any]:
    """Return a run's parameter values that differ from the defaults in its template.

    Raises InputError for a source that Vertex AI can't read, a resource in another region, or a
    max_cost that is too low.
    """
    values = parameters.values()
    _check_sources(values)
    plan.check_affordable(recipe, parameters)
    plan.check_search_duration(recipe, parameters)
    recipe.run_options.check_records_machine(parameters.engine.records_engine)
    defaults = recipe.parameters.values()
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    changed |= values_from_settings(values, settings, package, run_id)
    resource_names.check_region(
        {"encryption_spec_key_name": settings.encryption_key}, settings.region
    )
    sent = {**values, **changed}
    resource_names.check_region(sent, settings.region)
    resource_names.check_tensorboard(sent["tensorboard"], sent["service_account"])
    resource_names.check_image_region(sent["serving_image"], settings.region)
    resource_names.check_peering(sent["network"], sent["accelerator_type"])
    for accelerator in (sent["accelerator_type"], recipe.run_options.evaluation_accelerator):
        regions.check_accelerator(accelerator, settings.region)
    deploys = parameters.pipeline.deploy_champion
    registers = parameters.registry.registers
    check_serving_image(sent["serving_image"], registers=registers, deploys=deploys)
    if deploys:
        regions.check_serving_machine(recipe.run_options.serving.machine_type, settings.region)
    settings.check_gpu_images(recipe, parameters.machines)
    return changed


def values_from_settings(
    values: Mapping[str, Any], settings: Settings, package: Package, run_id: str
) -> dict[str, Any]:
    """Return the labels, and the settings' values for parameters that the user has not set."""
    carried = {
        "service_account": settings.service_account,
        "network": settings.network,
        "tensorboard": settings.tensorboard,
        "encryption_spec_key_name": settings.encryption_key,
        "serving_image": settings.serving_image,
        "gpu_image_uri": settings.gpu_image if values.get("accelerator_count") else "",
    }
    used = {name: value for name, value in carried.items() if value and values.get(name) == ""}
    run = {"run": model_upload.to_label(run_id)} if run_id else {}
    labels = {**settings.labels, **values["labels"], **package.labels, **run}
    resource_names.check_labels(labels)
    return {**used, "labels": labels}


def build_pipeline_job(
    package: Package, settings: Settings, values: Mapping[str, Any], cache: bool | None = None
) -> Any:
    """Return a PipelineJob proto with the values that `run_values` returns.

    `cache` enables or disables caching of every task; None leaves it as the pipeline has it.
    """
    from google.cloud.aiplatform_v1 import types

    spec = copy.deepcopy(package.content)
    if cache is not None:
        for component in [spec["root"], *spec["components"].values()]:
            for task in component.get("dag", {}).get("tasks", {}).values():
                task["cachingOptions"] = {"enableCache": cache}
    key = settings.encryption_key
    return types.PipelineJob(
        display_name=package.recipe,
        pipeline_spec=spec,
        labels={**settings.labels, **package.labels},
        runtime_config={
            "gcs_output_directory": settings.pipeline_root,
            "parameter_values": dict(values),
        },
        service_account=settings.service_account,
        network=settings.network,
        encryption_spec={"kms_key_name": key} if key else None,
    )


def copy_job(job: Any, run_id: str, resume_from: str, changed: Mapping[str, Any]) -> Any:
    """Return a copy of a PipelineJob that has ended, ready to be sent as another run.

    `changed` are parameters that differ.
    """
    from google.cloud.aiplatform_v1 import types

    new = types.PipelineJob(job)
    for field, _ in job._pb.ListFields():
        if field.name not in _COPIED_FIELDS:
            new._pb.ClearField(field.name)
    values = new.runtime_config.parameter_values
    values["labels"] = {**(values.get("labels") or {}), "run": run_id}
    if resume_from:
        values["resume_from"] = resume_from
    values.update(changed)
    return new


def make_run_id(recipe: str, name: str) -> str:
    """Return the ID of a run: `name`, which is checked, or <recipe>-<time> if it is empty."""
    if name:
        check_name(name)
        return name
    return f"{to_id(recipe)}-{datetime.datetime.now():%Y%m%d-%H%M%S}"


def _check_sources(values: Mapping[str, Any]) -> None:
    """Raise InputError for a URI or path that Vertex AI can't read."""
    kind, location = parse_source(values["source"])
    kind.check_cloud(location, values["data_dir"])
    uris = {name: values[name] for name in ("data_dir", "records_store")}
    uris["source"] = kind.uri(location)
    if values["warm_start"] != CHAMPION:
        uris["warm_start"] = values["warm_start"]
    for name, uri in uris.items():
        if uri and "://" not in uri and not uri.startswith("/gcs/"):
            raise InputError(
                f"{name}: {uri!r} is on this machine, where Vertex AI can't read it; copy it to "
                "a bucket and give gs://BUCKET/FOLDER, or add --local"
            )
