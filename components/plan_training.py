"""The component that plans the training job."""

import dataclasses
from typing import Any, NamedTuple

from kfp import dsl

from components.code_digest import code_digest
from components.pipeline_options import JobOptions, PipelineOptions
from components.registry.model_upload import check_accepts_records, to_label
from components.registry.registered_model import (
    RegisteredModel,
    digest_dataset,
    training_labels,
)
from components.typed import component
from components.vertex_client import LOCAL_PROJECT
from trainer.config import TrainingConfig, config_uri, configuration_digest, write_config
from trainer.data import schema
from trainer.data.record_options import EngineOptions
from trainer.fields import default_of
from trainer.machines.price import job_price, limit_timeout
from trainer.machines.scheduling import check_duration, check_scheduling
from trainer.machines.worker_pools import MachineOptions, build_worker_pool_specs, check_gpu_image
from trainer.training.preparation import check_config_and_machines, find_warm_start, prepare


class Plan(NamedTuple):
    """Outputs of plan_training."""

    worker_pool_specs: list
    base_output_directory: str
    timeout: str
    labels: dict
    configuration: str  # digest of all that decides the model except the records
    trains: str  # yes or no
    reason: str  # why it does not train; empty if it does
    version: str  # the version that stands for the one not trained; empty if it trains


@component
def plan_training(
    records: dsl.Input[dsl.Dataset],
    training: dsl.Output[dsl.Artifact],
    config: TrainingConfig,
    machines: MachineOptions,
    options: PipelineOptions,
    job: JobOptions,
    engine: EngineOptions,
    rates: dict,
    rates_of: str,
    run: str,
    serving_image: str,
    recipe_sets: list,
    class_floors: dict,
    model_name: str,
    project: str,
    location: str,
) -> Plan:
    """Decide whether to train; make the worker pools and the config of the training job.

    CustomTrainingJobOp can't substitute typed parameters or URIs of artifacts in its
    worker_pool_specs, so this step makes the whole list at run time. The URI of its output
    artifact is a directory that no other run writes to; it holds the config for all replicas.

    Args:
        records: Records to train on.
        rates: Prices per hour, by machine type, accelerator and GB of disk.
        rates_of: Region and date of the prices.
        run: Name of the pipeline run.
        serving_image: Image that serves the model, for the report.
        recipe_sets: Names of the parameters that the recipe sets, for the report.
        class_floors: Least recall of single classes, which the records must have.
        model_name: Model in the Model Registry with the earlier versions.
        project: Google Cloud project of the registry.
        location: Region of the registry.
    """
    training.uri = options.resume_from.rstrip("/") or training.uri
    check_config_and_machines(config, machines)
    check_scheduling(options.scheduling_strategy, machines)
    check_duration(options.scheduling_strategy, job.timeout, job.max_wait_duration)
    if project != LOCAL_PROJECT:
        check_gpu_image(machines.accelerator_type, machines.gpu_image_uri, "set gpu_image_uri")
        check_accepts_records(options.deploy_champion, serving_image)
    # On Vertex AI, the image's name stands for its code.
    code = code_digest(config.model) if project == LOCAL_PROJECT else ""
    configuration = configuration_digest(config, f"{machines.training_image}{code}")
    trained_on = training_labels(digest_dataset(records.uri), configuration)
    model = RegisteredModel(model_name, project, location)
    unchanged, reason = _find_unchanged(options, records.uri, trained_on, model)
    locations = [f"--dataset={records.uri}", f"--base_output_directory={training.uri}"]
    pools = build_worker_pool_specs(machines, [*locations, f"--config={config_uri(training.uri)}"])
    timeout = limit_timeout(job.timeout, options.max_cost, options.price_per_hour, pools, rates)
    price = job_price(pools, options.price_per_hour, rates, rates_of)
    if not unchanged:
        start = find_warm_start(training.uri) if options.resume_from else None
        if start is None:
            start = model.find_start_weights(config.warm_start)
        start = prepare(config, machines, records.uri, training.uri, class_floors, start)
        write_config(dataclasses.replace(config, warm_start=start), training.uri)
    training.metadata.update(vars(config) | vars(machines))
    training.metadata.update(_choose_options((options, job, engine), recipe_sets))
    training.metadata.update({"serving_image": serving_image, "recipe_sets": recipe_sets})
    if price:
        training.metadata["price"] = dataclasses.asdict(price)
    return Plan(
        worker_pool_specs=pools,
        base_output_directory=training.uri,
        timeout=timeout,
        labels={**job.labels, "run": to_label(run)},
        configuration=configuration,
        trains="no" if unchanged else "yes",
        reason=reason,
        version=unchanged,
    )


def _find_unchanged(
    options: PipelineOptions, records_uri: str, trained_on: dict[str, str], model: RegisteredModel
) -> tuple[str, str]:
    """Return the version that makes training unnecessary, and why; empty if there is none.

    Raises InputError if the data have drifted by more than max_drift.
    """
    same = model.find_version(trained_on) if options.skip_if_unchanged else None
    if same:
        return same.name, f"nothing changed since {same.name}"
    if not options.max_drift and not options.min_drift:
        return "", ""
    champion = model.find_champion()
    if champion:
        from trainer.evaluation import drift  # imports NumPy, which few runs need

        dataset = schema.load_dataset(records_uri)
        drifts = drift.measure_since_training(champion.artifact_uri, dataset)
        drift.check(drifts, champion.name, options.max_drift)
        if drift.is_small(drifts, options.min_drift):
            reason = f"no drift of min_drift={options.min_drift:g} since {champion.name}"
            return champion.name, reason
    return "", ""


def _choose_options(groups: tuple[Any, ...], recipe_sets: list[str]) -> dict[str, Any]:
    """Return the options that the recipe sets or that differ from their default."""
    # Labels differ on each run, because the project adds its own.
    return {
        field.name: getattr(group, field.name)
        for group in groups
        for field in dataclasses.fields(group)
        if field.name in recipe_sets
        or (field.name != "labels" and getattr(group, field.name) != default_of(field))
    }
