"""The component that plans a search for hyperparameters: a HyperparameterTuningJob."""

import json
from typing import NamedTuple

from components.planning.pipeline_options import JobOptions, PipelineOptions
from components.planning.search_options import TRIALS, SearchOptions, build_study_spec
from components.typed import component
from trainer.data.storage import join
from trainer.fields import build
from trainer.training.config import TrainingConfig

_DIRECTORY = "--base_output_directory="


class PlannedSearch(NamedTuple):
    """Outputs of plan_search."""

    job: str  # HyperparameterTuningJob, JSON


@component
def plan_search(
    config: TrainingConfig,
    options: PipelineOptions,
    job: JobOptions,
    search: dict,
    worker_pool_specs: list,
    base_output_directory: str,
    rates: dict,
    run: str,
) -> PlannedSearch:
    """Make the HyperparameterTuningJob whose trials are trainings with other values.

    Args:
        search: Options of the search.
        worker_pool_specs: Worker pools of the training with the recipe's values.
        base_output_directory: Directory of that training, in which the trials have theirs.
        rates: Prices per hour, by machine type, accelerator and GB of disk.
        run: Name of the pipeline run, and of the folder of its trials.
    """
    asked = build(SearchOptions, search)
    trials = options.cost_of(worker_pool_specs, rates).limit_trials(asked.trials, job.timeout)
    if trials < asked.trials:
        print(f"max_cost={options.max_cost:g} pays for {trials} of {asked.trials} trials")
    for pool in worker_pool_specs:
        if container := pool.get("container_spec"):
            # Each trial's replicas write to the directory that it has in base_output_directory.
            kept = [word for word in container["args"] if not word.startswith(_DIRECTORY)]
            container["args"] = kept
    spec = {
        "worker_pool_specs": worker_pool_specs,
        "scheduling": job.build_scheduling(options.scheduling_strategy),
        "service_account": job.service_account,
        "network": job.network,
        "tensorboard": job.tensorboard,
        "enable_web_access": job.enable_web_access,
        "base_output_directory": {"output_uri_prefix": join(base_output_directory, TRIALS, run)},
    }
    planned = {
        "display_name": run,
        "study_spec": build_study_spec(asked, config),
        "max_trial_count": trials,
        "parallel_trial_count": min(asked.parallel, trials),
        "max_failed_trial_count": min(asked.failed_trials, trials),
        "trial_job_spec": spec,
        "labels": job.labels,
        "encryption_spec": {"kms_key_name": job.encryption_spec_key_name},
    }
    return PlannedSearch(job=json.dumps(planned))
