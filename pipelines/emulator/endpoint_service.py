"""EndpointService: endpoints, the models deployed to them, and their traffic.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints
"""

import datetime
import hashlib
import pathlib
from typing import Any

from pipelines.emulator import endpoint_rules
from pipelines.emulator.api_error import ApiError, invalid, not_found
from pipelines.emulator.model_service import ModelService
from pipelines.emulator.operations import PAGE_SIZE, Operations, page
from pipelines.emulator.resource_files import ResourceFiles


class EndpointService:
    """Keeps endpoints; no machine is started for the models that are deployed.

    Args:
        models: whose versions are deployed.
        folder: keeps them beyond this process; None: memory alone.
    """

    page_size = PAGE_SIZE

    def __init__(
        self, models: ModelService, operations: Operations, folder: pathlib.Path | None = None
    ) -> None:
        self.endpoints = ResourceFiles(folder, "Endpoint")
        self._models, self._operations = models, operations

    def create_endpoint(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        endpoint = types.Endpoint(request.endpoint)
        endpoint_rules.check(endpoint, request.endpoint_id)
        number = request.endpoint_id or str(len(self.endpoints) + 1)
        if number in self.endpoints:
            raise ApiError("ALREADY_EXISTS", f"Endpoint {number} exists already")
        endpoint.name = f"{request.parent}/endpoints/{number}"
        endpoint.create_time = endpoint.update_time = _now()
        self._keep(endpoint)
        return self._operations.start(endpoint.name, endpoint)

    def get_endpoint(self, request: Any) -> Any:
        return self._find(request.name)

    def list_endpoints(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        found, token = page(list(self.endpoints.values()), request, self.page_size)
        return types.ListEndpointsResponse(endpoints=found, next_page_token=token)

    def update_endpoint(self, request: Any) -> Any:
        """Change what the mask names: the traffic is all that this project changes."""
        endpoint = self._find(request.endpoint.name)
        if list(request.update_mask.paths) != ["traffic_split"]:
            raise invalid("update_mask is not traffic_split, all that is served on this machine")
        if request.endpoint.etag not in ("", endpoint.etag):
            raise ApiError("ABORTED", f"{endpoint.name} has changed since etag was read")
        split = dict(request.endpoint.traffic_split)
        endpoint_rules.check_traffic(split, _deployed(endpoint))
        endpoint.traffic_split = split
        self._keep(endpoint)
        return endpoint

    def deploy_model(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        endpoint = self._find(request.endpoint)
        deployed = types.DeployedModel(request.deployed_model)
        known = _deployed(endpoint)
        endpoint_rules.check_deployed_model(deployed, known)
        model = self._models.get_model(types.GetModelRequest(name=deployed.model))
        deployed.id = deployed.id or str(len(known) + 1)
        deployed.model, deployed.model_version_id = model.name, model.version_id
        deployed.create_time = _now()
        split = {
            deployed.id if name == endpoint_rules.NEW else name: share
            for name, share in request.traffic_split.items()
        }
        endpoint_rules.check_traffic(split, {**known, deployed.id: deployed})
        endpoint.deployed_models.append(deployed)
        if split:
            endpoint.traffic_split = split
        self._keep(endpoint)
        self._models.set_deployed(f"{model.name}@{model.version_id}", endpoint.name, deployed.id)
        return self._operations.start(
            endpoint.name, types.DeployModelResponse(deployed_model=deployed)
        )

    def undeploy_model(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        endpoint = self._find(request.endpoint)
        deployed = _deployed(endpoint).get(request.deployed_model_id)
        if not deployed:
            raise not_found(f"DeployedModel {request.deployed_model_id}")
        if request.traffic_split:
            endpoint_rules.check_traffic(dict(request.traffic_split), _deployed(endpoint))
            endpoint.traffic_split = dict(request.traffic_split)
        endpoint_rules.check_idle(endpoint, deployed.id)
        endpoint.deployed_models = [
            one for one in endpoint.deployed_models if one.id != deployed.id
        ]
        self._keep(endpoint)
        self._models.set_deployed(f"{deployed.model}@{deployed.model_version_id}", endpoint.name)
        return self._operations.start(endpoint.name, types.UndeployModelResponse())

    def _find(self, name: str) -> Any:
        endpoint = self.endpoints.get(name.rpartition("/")[2])
        if endpoint is None:
            raise not_found(name)
        return endpoint

    def _keep(self, endpoint: Any) -> None:
        endpoint.etag = ""
        content = type(endpoint).to_json(endpoint)
        endpoint.etag = hashlib.sha256(content.encode()).hexdigest()[:16]
        self.endpoints[endpoint.name.rpartition("/")[2]] = endpoint


def _deployed(endpoint: Any) -> dict[str, Any]:
    return {one.id: one for one in endpoint.deployed_models}


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
