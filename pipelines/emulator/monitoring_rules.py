"""Vertex AI's checks of the monitoring of an endpoint's models."""

from collections.abc import Collection
from typing import Any

from pipelines.emulator.field_rules import check_choice, check_required, refuse, refuse_state

_FORMATS = ("csv", "jsonl", "tf-record")
UPDATABLE = (
    "display_name",
    "model_deployment_monitoring_schedule_config",
    "model_monitoring_alert_config",
    "logging_sampling_strategy",
    "labels",
    "log_ttl",
    "enable_monitoring_pipeline_logs",
    "model_deployment_monitoring_objective_configs",
)


def check(job: Any) -> None:
    """Refuse a job without an endpoint, an objective, an interval or a sampling rate."""
    check_required(job, "", "endpoint", "model_deployment_monitoring_objective_configs")
    schedule = "model_deployment_monitoring_schedule_config"
    check_required(getattr(job, schedule), f"{schedule}.", "monitor_interval")
    rate = job.logging_sampling_strategy.random_sample_config.sample_rate
    refuse(not 0 < rate <= 1, f"sample_rate {rate:g} is not in (0, 1]")


def check_objectives(job: Any, deployed: Collection[str]) -> None:
    """Refuse an objective for a model that is not deployed, or skew without training data."""
    for one in job.model_deployment_monitoring_objective_configs:
        number = one.deployed_model_id
        refuse(number not in deployed, f"DeployedModel {number} is not at the endpoint")
        objective = one.objective_config
        data = objective.training_dataset
        detects = "training_prediction_skew_detection_config" in objective
        given = data.gcs_source.uris or data.bigquery_source.input_uri or data.dataset
        refuse(detects and not given, "training_dataset is required to detect skew")
        if data.gcs_source.uris:
            check_choice("data_format", data.data_format, _FORMATS)


def check_paused(job: Any) -> None:
    """Refuse to delete a job that is not paused."""
    running = job.state.name != "JOB_STATE_PAUSED"
    refuse_state(running, f"{job.name} is {job.state.name}: pause it first")
