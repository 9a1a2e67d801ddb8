"""JobService's jobs that monitor the models of an endpoint; the emulator only stores them."""

import dataclasses
from collections.abc import Collection
from typing import Any

from vertex.emulator import messages
from vertex.emulator.endpoint_service import EndpointService
from vertex.emulator.field_rules import check_choice, refuse, refuse_state, region_of
from vertex.emulator.resources import Resources
from vertex.facts import regions
from vertex.facts.resource_names import TABLE


@dataclasses.dataclass(eq=False, kw_only=True)
class MonitoringService(Resources):
    """A store of monitoring jobs."""

    kind = "ModelDeploymentMonitoringJob"
    updatable = (
        "display_name",
        "model_deployment_monitoring_schedule_config",
        "model_monitoring_alert_config",
        "logging_sampling_strategy",
        "labels",
        "log_ttl",
        "enable_monitoring_pipeline_logs",
        "model_deployment_monitoring_objective_configs",
    )
    endpoints: EndpointService  # holds the endpoints that are monitored

    def check(self, job: Any, parent: str) -> None:
        super().check(job, parent)
        regions.check_monitoring(region_of(parent))
        rate = job.logging_sampling_strategy.random_sample_config.sample_rate
        refuse(not 0 < rate <= 1, f"sample_rate {rate:g} is not in (0, 1]")
        deployed = [model.id for model in self.endpoints.find(job.endpoint).deployed_models]
        check_objectives(job, deployed)

    def begin(self, job: Any) -> None:
        job.state = messages.JobState.JOB_STATE_RUNNING
        self.endpoints.set_monitoring(job.endpoint, job.name)

    def update(self, request: Any) -> Any:
        """Update the fields that the mask names; without a mask, those that are set; `*`: all."""
        paths, new = request.update_mask.paths, request.model_deployment_monitoring_job
        if not paths or "*" in paths:
            request.update_mask = {
                "paths": [name for name in self.updatable if "*" in paths or name in new]
            }
        job = super().update(request)
        return self.operations.start(job.name, job)

    def pause_model_deployment_monitoring_job(self, request: Any) -> None:
        with self.changing(request.name) as job:
            running = job.state.name == "JOB_STATE_RUNNING"
            refuse_state(not running, f"{job.name} is {job.state.name}, not running")
            job.state = messages.JobState.JOB_STATE_PAUSED

    def resume_model_deployment_monitoring_job(self, request: Any) -> None:
        with self.changing(request.name) as job:
            paused = job.state.name == "JOB_STATE_PAUSED"
            refuse_state(not paused, f"{job.name} is {job.state.name}, not paused")
            job.state = messages.JobState.JOB_STATE_RUNNING

    def check_deletable(self, job: Any) -> None:
        running = job.state.name != "JOB_STATE_PAUSED"
        refuse_state(running, f"{job.name} is {job.state.name}: pause it first")

    def delete(self, request: Any) -> Any:
        job = self.find(request.name)
        operation = super().delete(request)
        self.endpoints.set_monitoring(job.endpoint, "")
        return operation


def check_objectives(job: Any, deployed: Collection[str]) -> None:
    """Refuse an objective for a model that is not deployed, or skew without training data."""
    for config in job.model_deployment_monitoring_objective_configs:
        number = config.deployed_model_id
        refuse(number not in deployed, f"DeployedModel {number} is not at the endpoint")
        objective = config.objective_config
        data = objective.training_dataset
        detects = "training_prediction_skew_detection_config" in objective
        given = data.gcs_source.uris or data.bigquery_source.input_uri or data.dataset
        refuse(detects and not given, "training_dataset is required to detect skew")
        if table := data.bigquery_source.input_uri:
            refuse(not TABLE.fullmatch(table), f"{table!r} is not bq://PROJECT.DATASET.TABLE")
        if data.gcs_source.uris:
            check_choice("data_format", data.data_format, ("csv", "jsonl", "tf-record"))
