"""The component that plans the training job."""

import dataclasses
from typing import Any, NamedTuple

from kfp import dsl

from components.planning.code_digest import code_digest, configuration_digest
from components.planning.pipeline_options import JobOptions, PipelineOptions, RegistryOptions
from components.planning.preparation import check_job, find_warm_start, prepare
from components.planning.registered_model import RegisteredModel, digest_dataset, training_labels
from components.planning.serving_container import check_serving_image
from components.planning.worker_pools import (
    MachineOptions,
    build_worker_pool_specs,
    check_gpu_image,
)
from components.typed import component
from trainer.data import schema
from trainer.data.write.record_options import EngineOptions
from trainer.fields import default_of
from trainer.models import find_user_module
from trainer.tasks import name_task
from trainer.training.config import (
    TrainingConfig,
    config_uri,
    override,
    write_config,
)
from vertex.errors import InputError
from vertex.registry.model_upload import to_label


class TrainingPlan(NamedTuple):
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
    registered_model: RegisteredModel,
    engine: EngineOptions,
    rates: dict,
    rates_of: str,
    run: str,
    registry: RegistryOptions,
    recipe_sets: list,
    class_floors: dict,
    searched: dict,
) -> TrainingPlan:
    """Decide whether to train; make the worker pools and the config of the training job.

    CustomTrainingJobOp can't substitute typed parameters or URIs of artifacts in its
    worker_pool_specs, so this step makes the whole list at run time. The URI of its output
    artifact is a directory that no other run writes to; it holds the config for all replicas.

    Args:
        records: Records to train on.
        rates: Prices per hour, by machine type, accelerator and GB of disk.
        rates_of: Region and date of the prices.
        run: Name of the pipeline run.
        recipe_sets: Names of the parameters that the recipe sets, for the report.
        class_floors: Least recall of single classes, which the records must have.
        searched: Options of training that a search has found, as text by name.
    """
    config = override(config, searched)
    training.uri = options.resume_from.rstrip("/") or training.uri
    check_job(config, machines, options, job)
    if not registered_model.is_local:
        check_gpu_image(machines.accelerator_type, machines.gpu_image_uri, "set gpu_image_uri")
        check_serving_image(
            registry.serving_image, registers=registry.registers, deploys=options.deploy_champion
        )
    content = digest_dataset(records.uri)
    task = name_task(schema.load_dataset(records.uri))
    configuration = _digest_configuration(config, machines, task, local=registered_model.is_local)
    trained_on = training_labels(content, configuration)
    unchanged, reason = _find_unchanged(options, records.uri, trained_on, registered_model)
    uris = {
        "dataset": records.uri,
        "base_output_directory": training.uri,
        "config": config_uri(training.uri),
    }
    pools = build_worker_pool_specs(machines, [f"--{name}={uri}" for name, uri in uris.items()])
    cost = options.cost_of(pools, rates)
    timeout, price = cost.limit_timeout(job.timeout), cost.describe(rates_of)
    if not unchanged:
        # A resumed job keeps its initial weights, even if the champion has changed since.
        start = find_warm_start(training.uri) if options.resume_from else None
        if start is None:
            start = registered_model.find_start_weights(config.warm_start)
        start = prepare(config, machines, records.uri, training.uri, class_floors, start)
        write_config(dataclasses.replace(config, warm_start=start), training.uri)
    training.metadata.update(vars(config) | vars(machines))
    training.metadata.update(_choose_options((options, job, engine), recipe_sets))
    training.metadata.update(serving_image=registry.serving_image, recipe_sets=recipe_sets)
    if price:
        training.metadata["price"] = price
    return TrainingPlan(
        worker_pool_specs=pools,
        base_output_directory=training.uri,
        timeout=timeout,
        labels={**job.labels, "run": to_label(run)},
        configuration=configuration,
        trains="no" if unchanged else "yes",
        reason=reason,
        version=unchanged,
    )


def _digest_configuration(
    config: TrainingConfig, machines: MachineOptions, task: str, *, local: bool
) -> str:
    # On Vertex AI, the image's name stands for its code.
    own = (find_user_module(config.model), task.partition(":")[0])
    code = code_digest(*own) if local else ""
    return configuration_digest(config, f"{machines.training_image}{code}")


def _find_unchanged(
    options: PipelineOptions,
    records_uri: str,
    trained_on: dict[str, str],
    registered_model: RegisteredModel,
) -> tuple[str, str]:
    """Return the version that makes training unnecessary, and why; empty if there is none.

    Raises InputError if the data have drifted by more than max_drift.
    """
    same = registered_model.find_version(trained_on) if options.skip_if_unchanged else None
    if same:
        return same.name, f"nothing changed since {same.name}"
    if not options.max_drift and not options.min_drift:
        return "", ""
    champion = registered_model.find_champion()
    if champion:
        from trainer.evaluation import drift  # imports NumPy, which few runs need

        dataset = schema.load_dataset(records_uri)
        drifts = drift.measure_since_training(champion.artifact_uri, dataset)
        if drifts is None:
            print(f"{champion.name} has no {schema.FILE_NAME}: drift since its training is unknown")
            return "", ""
        drifted = drift.format_drifts(drifts.columns, options.max_drift)
        if options.max_drift and drifted:
            raise InputError(
                f"max_drift={options.max_drift:g}: the training data have drifted since "
                f"{champion.name}: {drifted}; correct the source or, if the data are right, set "
                "max_drift=0 for this run"
            )
        if options.min_drift and not drift.format_drifts(drifts.columns, options.min_drift):
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
