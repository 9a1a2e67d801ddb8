"""Check and copy what training needs, after records are written and before machines are billed."""

import math
from collections.abc import Collection

from components.planning.pipeline_options import JobOptions, PipelineOptions
from components.planning.scheduling import check_duration, check_scheduling
from components.planning.worker_pools import MachineOptions
from trainer.data import storage
from trainer.data.read.input_share import check_batch_size
from trainer.data.schema import load_to_train
from trainer.data.storage import join
from trainer.effects import check_effects
from trainer.engine.cluster import check_strategy
from trainer.evaluation.gate_options import check_floors
from trainer.models import find_model_class, prepare_model
from trainer.tasks.label_kinds import check_label_options, kind_of_records, label_of_records
from trainer.training.config import TrainingConfig, phases
from vertex import checked_json
from vertex.errors import InputError
from vertex.formats import count

MAX_PADDING = 0.9
"""A share of padding in a batch that makes the batch size an error instead of a warning."""


def check_job(
    config: TrainingConfig, machines: MachineOptions, options: PipelineOptions, job: JobOptions
) -> None:
    """Raise InputError if these machines can't train with this config, or can't be scheduled."""
    accelerators = machines.accelerator_count
    check_strategy(config.strategy, machines.replicas, accelerators, xla=config.xla)
    if not options.resume_from and not find_model_class(config.model).is_program:
        check_batch_size(config.batch_size, machines.batch_shares)
    check_scheduling(options.scheduling_strategy, machines)
    check_duration(options.scheduling_strategy, job.timeout, job.max_wait_duration)


def prepare(
    config: TrainingConfig,
    machines: MachineOptions,
    dataset_uri: str,
    directory: str,
    class_floors: Collection[str],
    start: str = "",
) -> str:
    """Check that a job can train, and write the files that its replicas share to `directory`.

    Return the URI of the job's copy of the initial weights; empty: there are none.

    Args:
        directory: the job's base_output_directory.
        class_floors: names of the classes for which the gate has a floor.
        start: URI of the initial weights; empty: none.
    """
    dataset = load_to_train(dataset_uri)
    check_effects(config, values={"label": label_of_records(dataset)})
    check_label_options(kind_of_records(dataset), config)
    check_floors(class_floors, dataset.classes)
    examples = dataset.splits["train"].examples
    examples = min(examples, config.max_train_examples or examples)
    # With parameter servers, workers fill a batch from the start of the split.
    if not machines.ps_count and not find_model_class(config.model).is_program:
        _check_padding(config, examples, machines.batch_shares)
    _check_warmup(config, examples)
    if not dataset.splits["validation"].examples:
        _check_needs_no_validation(config)
    prepared = prepare_model(config.model, dataset, config.model_options, directory)
    if not start:
        return ""
    # Imported here, because importing TensorFlow takes seconds.
    from components.planning import warm_start
    from trainer.exported import keras_file

    copy = warm_start.copy(start, directory)
    keras_file.load(prepared.build(dataset), copy)
    warm_start.check_meaning(start, dataset)
    return copy


def find_warm_start(directory: str) -> str | None:
    """Return the warm_start of the job that has begun in `directory`; None if no job has begun."""
    uri = join(directory, "checkpoints", "run.json")
    try:
        return checked_json.parse(storage.read(uri)).get("warm_start", "")
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{uri} is damaged ({error}); remove it and run again") from None


def _check_padding(config: TrainingConfig, examples: int, replicas: int) -> None:
    """Warn if a batch is larger than the split; raise InputError if it is mostly padding.

    A batch always has its full size, for `replicas` to share: missing examples are replaced by
    padding, which costs as much computation.
    """
    padding = 1 - examples / config.batch_size
    if padding <= 0:
        return
    fitting = max(replicas, examples - examples % replicas)
    message = (
        f"batch_size={config.batch_size}, but the training split has {count(examples, 'example')}: "
        f"{100 * padding:.3g}% of each step is padding; set batch_size={fitting} or less"
    )
    if padding >= MAX_PADDING:
        raise InputError(message)
    print(f"warning: {message}", flush=True)


def _check_warmup(config: TrainingConfig, examples: int) -> None:
    """Raise InputError if training ends before the learning rate has risen to its peak."""
    steps = config.steps_per_epoch or math.ceil(examples / config.batch_size)
    steps *= min(phase.epochs for phase in phases(config))
    if config.warmup_steps > steps:
        raise InputError(
            f"warmup_steps={config.warmup_steps}, but training ends after {count(steps, 'step')}, "
            f"before the learning rate reaches its peak; set warmup_steps={steps // 10}, for "
            "example, or more epochs"
        )


def _check_needs_no_validation(config: TrainingConfig) -> None:
    """Raise InputError for options that have no effect without a validation split."""
    watching = {
        "early_stopping_patience": config.early_stopping_patience,
        "plateau_patience": config.plateau_patience,
    }
    if len(phases(config)) > 1:
        watching["fine_tune_early_stopping_patience"] = config.fine_tune_early_stopping_patience
        watching["fine_tune_plateau_patience"] = config.fine_tune_plateau_patience
    for name, value in watching.items():
        if value:
            raise InputError(
                f"{name}={value} watches the validation split, which is empty; set it to 0, or "
                "split_fractions with a validation split"
            )
