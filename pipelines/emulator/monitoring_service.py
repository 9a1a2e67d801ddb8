"""JobService's jobs that monitor the models of an endpoint. They compare nothing here.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.modelDeploymentMonitoringJobs
"""

import pathlib
from typing import Any

from pipelines.emulator import monitoring_rules
from pipelines.emulator.api_error import not_found
from pipelines.emulator.endpoint_service import EndpointService
from pipelines.emulator.operations import Operations
from pipelines.emulator.resource_files import ResourceFiles


class MonitoringService:
    """Keeps monitoring jobs.

    Args:
        endpoints: whose models are monitored.
        folder: keeps them beyond this process; None: memory alone.
    """

    def __init__(
        self,
        endpoints: EndpointService,
        operations: Operations,
        folder: pathlib.Path | None = None,
    ) -> None:
        self.jobs = ResourceFiles(folder, "ModelDeploymentMonitoringJob")
        self._endpoints, self._operations = endpoints, operations

    def create_model_deployment_monitoring_job(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        job = types.ModelDeploymentMonitoringJob(request.model_deployment_monitoring_job)
        self._check(job)
        number = self.jobs.next_id()
        job.name = f"{request.parent}/modelDeploymentMonitoringJobs/{number}"
        job.state = types.JobState.JOB_STATE_RUNNING
        self.jobs[number] = job
        self._endpoints.set_monitoring(job.endpoint, job.name)
        return job

    def get_model_deployment_monitoring_job(self, request: Any) -> Any:
        return self._find(request.name)

    def update_model_deployment_monitoring_job(self, request: Any) -> Any:
        """Change the fields that the mask names."""
        given = request.model_deployment_monitoring_job
        job = self._find(given.name)
        monitoring_rules.check_update(request.update_mask.paths)
        changed = type(job)(job)
        for path in request.update_mask.paths:
            setattr(changed, path, getattr(given, path))
        self._check(changed)
        self.jobs[_id(job.name)] = changed
        return self._operations.start(job.name, changed)

    def pause_model_deployment_monitoring_job(self, request: Any) -> None:
        from google.cloud.aiplatform_v1 import types

        job = self._find(request.name)
        job.state = types.JobState.JOB_STATE_PAUSED
        self.jobs[_id(job.name)] = job

    def delete_model_deployment_monitoring_job(self, request: Any) -> Any:
        job = self._find(request.name)
        monitoring_rules.check_paused(job)
        self._endpoints.set_monitoring(job.endpoint, "")
        del self.jobs[_id(job.name)]
        return self._operations.start(request.name)

    def _check(self, job: Any) -> None:
        from google.cloud.aiplatform_v1 import types

        monitoring_rules.check(job)
        endpoint = self._endpoints.get_endpoint(types.GetEndpointRequest(name=job.endpoint))
        deployed = [one.id for one in endpoint.deployed_models]
        monitoring_rules.check_objectives(job, deployed)

    def _find(self, name: str) -> Any:
        job = self.jobs.get(_id(name))
        if job is None:
            raise not_found(name)
        return job


def _id(name: str) -> str:
    return name.rpartition("/")[2]
