"""Parameters of a run to the worker pools that will train."""

from typing import NamedTuple

from kfp import dsl

from trainer.config import TrainingConfig
from trainer.fields import describe_arguments
from trainer.machines.worker_pools import IMAGE, MachineOptions


@dsl.component(base_image=IMAGE, install_kfp_package=False)
@describe_arguments(TrainingConfig, MachineOptions)
def plan_training(
    records: dsl.Input[dsl.Dataset],
    training: dsl.Output[dsl.Artifact],
    model: str,
    model_options: dict,
    warm_start: str,
    strategy: str,
    epochs: int,
    steps_per_epoch: int,
    max_train_examples: int,
    batch_size: int,
    optimizer: str,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    schedule: str,
    warmup_steps: int,
    decay_rate: float,
    decay_steps: int,
    wide_learning_rate: float,
    wide_l1: float,
    wide_l2: float,
    plateau_patience: int,
    plateau_factor: float,
    early_stopping_patience: int,
    monitor: str,
    fine_tune_epochs: int,
    fine_tune_layers: int,
    fine_tune_learning_rate: float,
    fine_tune_plateau_patience: int,
    fine_tune_early_stopping_patience: int,
    gradient_clip_norm: float,
    precision: str,
    xla: bool,
    class_weights: str,
    label_smoothing: float,
    augmentation: str,
    augmentation_operations: list,
    checkpoint_steps: int,
    shuffle_megabytes: float,
    seed: int,
    chief_machine_type: str,
    worker_count: int,
    worker_machine_type: str,
    ps_count: int,
    ps_machine_type: str,
    evaluator_count: int,
    evaluator_machine_type: str,
    accelerator_type: str,
    accelerator_count: int,
    boot_disk_type: str,
    boot_disk_size_gb: int,
    image_uri: str,
    gpu_image_uri: str,
    scheduling_strategy: str,
    timeout: str,
    max_wait_duration: str,
    max_cost: float,
    price_per_hour: float,
    rates: dict,
    rates_of: str,
    skip_if_unchanged: bool,
    resume_from: str,
    labels: dict,
    run: str,
    recipe_sets: list,
    class_floors: dict,
    model_name: str,
    project: str,
    location: str,
) -> NamedTuple(  # type: ignore[valid-type]
    "Plan",
    [
        ("worker_pool_specs", list),
        ("base_output_directory", str),
        ("timeout", str),
        ("labels", dict),
        ("configuration", str),
        ("trains", str),
        ("reason", str),
        ("version", str),
    ],
):
    """Plans the training job: whether there is one, its machines, and their command line.

    CustomTrainingJobOp can't put a parameter of the pipeline into its worker_pool_specs with
    its type, nor an artifact's URI at all: this step makes the whole list while the pipeline
    runs. The URI of its output artifact is a directory that no other run writes to.

    Args:
        records: Records to train on.
        scheduling_strategy: Strategy by which Vertex AI provides the job's machines.
        timeout: The job's longest running time, in seconds: '3600s'.
        max_wait_duration: The job's longest wait for machines, with FLEX_START.
        max_cost: Most that the job may cost; the timeout is shortened to fit. 0: no limit.
        price_per_hour: Price of the whole job; 0: from the rates.
        rates: Prices an hour, by machine type, accelerator and GB of disk.
        rates_of: Their region and date.
        skip_if_unchanged: Train only where no version of the model was trained on the same
            records with the same configuration.
        resume_from: Directory of an interrupted job, to go on from its checkpoint; empty: this
            step's own.
        labels: Labels of the job, as a JSON object of text; the run's is added.
        run: Name of the pipeline's run.
        recipe_sets: Names of the parameters that the recipe sets, for the report.
        class_floors: Floors of recall of single classes, which the records must have.
        model_name: Model in the Model Registry whose versions count.
        project: Google Cloud project of the registry.
        location: Its region.
    """
    arguments = dict(locals())
    import dataclasses
    import os

    from components.registry.model_registry import start_weights
    from components.registry.model_upload import label
    from components.registry.trained_versions import dataset_digest, find_version, training_labels
    from components.vertex_client import LOCAL_PROJECT
    from trainer.config import TrainingConfig, configuration_digest, to_flags
    from trainer.errors import exit_on_input_error
    from trainer.fields import build, pick
    from trainer.machines.price import affordable_timeout, job_price
    from trainer.machines.scheduling import check_duration, check_scheduling
    from trainer.machines.worker_pools import MachineOptions, check_gpu_image, worker_pool_specs
    from trainer.training.preparation import check_together, prepare, started_from

    training.uri = resume_from.rstrip("/") or training.uri
    with exit_on_input_error():
        config = build(TrainingConfig, pick(TrainingConfig, arguments))
        machines = build(MachineOptions, pick(MachineOptions, arguments))
        check_together(config, machines)
        check_scheduling(scheduling_strategy, machines)
        check_duration(scheduling_strategy, timeout, max_wait_duration)
        if project != LOCAL_PROJECT:
            check_gpu_image(machines, "give it as gpu_image_uri")
        configuration = configuration_digest(config, machines.training_image)
        trained_on = training_labels(dataset_digest(records.uri), configuration)
        known = None
        if skip_if_unchanged:
            known = find_version(model_name, trained_on, project, location, os.environ)
        if not known:
            start = started_from(training.uri) if resume_from else None
            if start is None:
                start = start_weights(warm_start, model_name, project, location, os.environ)
            start = prepare(config, machines, records.uri, training.uri, class_floors, start)
            config = dataclasses.replace(config, warm_start=start)
        pools = worker_pool_specs(machines, to_flags(config))
        timeout = affordable_timeout(timeout, max_cost, price_per_hour, pools, rates)
        price = job_price(pools, price_per_hour, rates, rates_of)
    training.metadata.update(pick(TrainingConfig, arguments) | pick(MachineOptions, arguments))
    training.metadata["recipe_sets"] = recipe_sets
    training.metadata.update({name: arguments[name] for name in recipe_sets if name in arguments})
    if price:
        training.metadata["price"] = dataclasses.asdict(price)
    locations = [f"--dataset={records.uri}", f"--base_output_directory={training.uri}"]
    pools = worker_pool_specs(machines, [*locations, *to_flags(config)])
    name = known.name if known else ""
    reason = f"nothing changed since {name}" if known else ""
    job_labels = {**labels, "run": label(run)}
    trains = "no" if known else "yes"
    return (pools, training.uri, timeout, job_labels, configuration, trains, reason, name)
