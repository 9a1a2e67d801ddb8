"""JobService's jobs that monitor the models of an endpoint; here they only exist."""

import pathlib
from typing import Any

from pipelines.emulator import messages
from pipelines.emulator.endpoint_service import EndpointService
from pipelines.emulator.field_rules import refuse_state
from pipelines.emulator.operations import Operations
from pipelines.emulator.resources import Resources


class MonitoringService(Resources):
    """A store of monitoring jobs.

    Args:
        endpoints: holds the endpoints that are monitored.
    """

    kind = "ModelDeploymentMonitoringJob"

    def __init__(
        self,
        endpoints: EndpointService,
        operations: Operations,
        folder: pathlib.Path | None = None,
    ) -> None:
        super().__init__(operations, folder)
        self._endpoints = endpoints

    def begin(self, job: Any) -> None:
        job.state = messages.JobState.JOB_STATE_RUNNING
        self._endpoints.set_monitoring(job.endpoint, job.name)

    def update(self, request: Any) -> Any:
        job = super().update(request)
        return self.operations.start(job.name, job)

    def pause_model_deployment_monitoring_job(self, request: Any) -> None:
        with self.changing(request.name) as job:
            job.state = messages.JobState.JOB_STATE_PAUSED

    def check_deletable(self, job: Any) -> None:
        running = job.state.name != "JOB_STATE_PAUSED"
        refuse_state(running, f"{job.name} is {job.state.name}: pause it first")

    def delete(self, request: Any) -> Any:
        job = self.find(request.name)
        operation = super().delete(request)
        self._endpoints.set_monitoring(job.endpoint, "")
        return operation
