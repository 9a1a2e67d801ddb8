"""Checks of Vertex AI on the monitoring of an endpoint's models: a function a rule."""

from collections.abc import Collection
from typing import Any

from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.field_rules import check_display_name
from pipelines.emulator.labels import check_labels

_FORMATS = ("csv", "jsonl", "tf-record")
_UPDATABLE = {
    "display_name",
    "model_deployment_monitoring_schedule_config",
    "model_monitoring_alert_config",
    "logging_sampling_strategy",
    "labels",
    "log_ttl",
    "enable_monitoring_pipeline_logs",
    "model_deployment_monitoring_objective_configs",
}


def check(job: Any) -> None:
    """Refuse a job without a name, an endpoint, an objective, an interval or a sampling rate.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.modelDeploymentMonitoringJobs
    """
    for field in ("display_name", "endpoint", "model_deployment_monitoring_objective_configs"):
        if not getattr(job, field):
            raise invalid(f"{field} is required")
    check_display_name(job, "model_deployment_monitoring_job")
    check_labels(job.labels)
    if not job.model_deployment_monitoring_schedule_config.monitor_interval:
        raise invalid("model_deployment_monitoring_schedule_config.monitor_interval is required")
    rate = job.logging_sampling_strategy.random_sample_config.sample_rate
    if not 0 < rate <= 1:
        raise invalid(f"sample_rate {rate:g} is not in (0, 1]")


def check_objectives(job: Any, deployed: Collection[str]) -> None:
    """Refuse an objective of a model that is not deployed, and skew without training data.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.modelDeploymentMonitoringJobs
    """
    for one in job.model_deployment_monitoring_objective_configs:
        if one.deployed_model_id not in deployed:
            raise invalid(f"DeployedModel {one.deployed_model_id} is not at the endpoint")
        objective = one.objective_config
        data = objective.training_dataset
        if "training_prediction_skew_detection_config" in objective and not (
            data.gcs_source.uris or data.bigquery_source.input_uri or data.dataset
        ):
            raise invalid("training_dataset is required to detect skew")
        if data.gcs_source.uris and data.data_format not in _FORMATS:
            raise invalid(f"data_format {data.data_format!r} is none of {', '.join(_FORMATS)}")


def check_update(paths: Collection[str]) -> None:
    """Refuse to change what can't be changed.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.modelDeploymentMonitoringJobs/patch
    """
    for path in paths:
        if path.partition(".")[0] not in _UPDATABLE:
            raise invalid(f"update_mask names {path}, which is not updatable")


def check_paused(job: Any) -> None:
    """Refuse to delete a job that is not paused.

    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/model-monitoring/using-model-monitoring
    """
    if job.state.name != "JOB_STATE_PAUSED":
        raise ApiError("FAILED_PRECONDITION", f"{job.name} is {job.state.name}: pause it first")
