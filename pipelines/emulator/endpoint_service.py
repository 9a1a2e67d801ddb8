"""EndpointService and PredictionService: endpoints, their deployed models, traffic and answers.

https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints
"""

import contextlib
import datetime
import hashlib
import json
import pathlib
import random
from collections.abc import Iterator
from typing import Any

from pipelines.emulator import endpoint_rules
from pipelines.emulator.api_error import ApiError, invalid, not_found
from pipelines.emulator.json_file import Content, JsonFile
from pipelines.emulator.model_service import ModelService
from pipelines.emulator.operations import PAGE_SIZE, Operations, page
from pipelines.emulator.serving_processes import ServingProcesses

FILE_NAME = "endpoints.json"


class EndpointService:
    """Keeps endpoints in `<directory>/endpoints.json`; servers and processes may share it.

    Args:
        directory: made when the first endpoint is created.
        models: whose versions are deployed.
        servers: of the deployed models; None: they answer nothing.
    """

    page_size = PAGE_SIZE

    def __init__(
        self,
        directory: pathlib.Path,
        models: ModelService,
        operations: Operations,
        servers: ServingProcesses | None = None,
    ) -> None:
        self._file = JsonFile(directory / FILE_NAME, _is_endpoint)
        self._models, self._operations, self._servers = models, operations, servers

    @property
    def endpoints(self) -> dict[str, Any]:
        """The endpoints by their IDs."""
        found = map(_message, self._file.read().values())
        return {one.name.rpartition("/")[2]: one for one in found}

    def create_endpoint(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        endpoint = types.Endpoint(request.endpoint)
        endpoint_rules.check(endpoint, request.endpoint_id, request.parent)
        with self._file.change() as content:
            number = request.endpoint_id or str(len(content) + 1)
            endpoint.name = f"{request.parent}/endpoints/{number}"
            if endpoint.name in content:
                raise ApiError("ALREADY_EXISTS", f"Endpoint {number} exists already")
            endpoint.create_time = endpoint.update_time = _now()
            content[endpoint.name] = _to_json(endpoint)
        return self._operations.start(endpoint.name, endpoint)

    def get_endpoint(self, request: Any) -> Any:
        return _found(self._file.read(), request.name)

    def list_endpoints(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        prefix = f"{request.parent}/endpoints/"
        content = self._file.read()
        known = [_message(content[name]) for name in content if name.startswith(prefix)]
        found, token = page(known, request, self.page_size)
        return types.ListEndpointsResponse(endpoints=found, next_page_token=token)

    def update_endpoint(self, request: Any) -> Any:
        """Change what the mask names: the traffic is all that this project changes."""
        if list(request.update_mask.paths) != ["traffic_split"]:
            raise invalid("update_mask is not traffic_split, all that is served on this machine")
        with self._changed(request.endpoint.name) as endpoint:
            if request.endpoint.etag not in ("", endpoint.etag):
                raise ApiError("ABORTED", f"{endpoint.name} has changed since etag was read")
            split = dict(request.endpoint.traffic_split)
            endpoint_rules.check_traffic(split, _deployed(endpoint))
            endpoint.traffic_split = split
        return _found(self._file.read(), endpoint.name)

    def delete_endpoint(self, request: Any) -> Any:
        with self._file.change() as content:
            endpoint_rules.check_empty(_found(content, request.name))
            del content[request.name]
        return self._operations.start(request.name)

    def deploy_model(self, request: Any) -> Any:
        """Deploy a model; the operation is done once its server is healthy."""
        from google.cloud.aiplatform_v1 import types

        deployed = types.DeployedModel(request.deployed_model)
        with self._changed(request.endpoint) as endpoint:
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
            before = dict(endpoint.traffic_split)
            if split:
                endpoint.traffic_split = split
            self._models.set_deployed(_version(deployed), endpoint.name, deployed.id)

        def is_done() -> bool:
            try:
                return self._servers is None or self._servers.is_ready(
                    *self._server(endpoint.name, deployed)
                )
            except ApiError:
                with self._changed(request.endpoint) as failed:
                    failed.traffic_split = before
                    self._take_off(failed, deployed)
                raise

        response = types.DeployModelResponse(deployed_model=deployed)
        return self._operations.start(endpoint.name, response, is_done)

    def undeploy_model(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        with self._changed(request.endpoint) as endpoint:
            deployed = _deployed(endpoint).get(request.deployed_model_id)
            if not deployed:
                raise not_found(f"DeployedModel {request.deployed_model_id}")
            if request.traffic_split:
                endpoint_rules.check_traffic(dict(request.traffic_split), _deployed(endpoint))
                endpoint.traffic_split = dict(request.traffic_split)
            endpoint_rules.check_idle(endpoint, deployed.id)
            self._take_off(endpoint, deployed)
        return self._operations.start(endpoint.name, types.UndeployModelResponse())

    def predict(self, request: Any) -> Any:
        """Have one of the deployed models answer, chosen by their shares of the traffic alone."""
        from google.cloud.aiplatform_v1 import types
        from google.protobuf import json_format

        endpoint = _found(self._file.read(), request.endpoint)
        endpoint_rules.check_served(endpoint)
        split = endpoint.traffic_split
        (chosen,) = random.choices(list(split), list(split.values()))  # noqa: S311 - no secret
        deployed = _deployed(endpoint)[chosen]
        if self._servers is None:
            raise invalid("no model answers on this server")
        body = json_format.MessageToDict(request._pb)
        del body["endpoint"]
        answer = self._servers.ask(*self._server(endpoint.name, deployed), body)
        response = types.PredictResponse(
            deployed_model_id=chosen,
            model=deployed.model,
            model_version_id=deployed.model_version_id,
            model_display_name=deployed.display_name,
        )
        json_format.ParseDict({"predictions": answer["predictions"]}, response._pb)
        return response

    def set_monitoring(self, name: str, job: str) -> None:
        """Note the job that monitors an endpoint; empty: none does."""
        with self._changed(name) as endpoint:
            endpoint.model_deployment_monitoring_job = job

    def _server(self, endpoint: str, deployed: Any) -> tuple[str, Any, str]:
        """Return the name of a deployed model's server, the model and its files."""
        from google.cloud.aiplatform_v1 import types

        model = self._models.get_model(types.GetModelRequest(name=_version(deployed)))
        return f"{endpoint}/{deployed.id}", model, self._models.artifacts(_version(deployed))

    def _take_off(self, endpoint: Any, deployed: Any) -> None:
        kept = [one for one in endpoint.deployed_models if one.id != deployed.id]
        endpoint.deployed_models = kept
        self._models.set_deployed(_version(deployed), endpoint.name)
        if self._servers:
            self._servers.stop(f"{endpoint.name}/{deployed.id}")

    @contextlib.contextmanager
    def _changed(self, name: str) -> Iterator[Any]:
        """Yield an endpoint, and keep what becomes of it."""
        with self._file.change() as content:
            endpoint = _found(content, name)
            yield endpoint
            content[name] = _to_json(endpoint)


def _found(content: Content, name: str) -> Any:
    if name not in content:
        raise not_found(name)
    return _message(content[name])


def _deployed(endpoint: Any) -> dict[str, Any]:
    return {one.id: one for one in endpoint.deployed_models}


def _version(deployed: Any) -> str:
    return f"{deployed.model}@{deployed.model_version_id}"


def _message(content: Content) -> Any:
    from google.cloud.aiplatform_v1 import types

    text = json.dumps(content)
    endpoint = types.Endpoint.from_json(text)
    endpoint.etag = hashlib.sha256(text.encode()).hexdigest()[:16]
    return endpoint


def _to_json(endpoint: Any) -> Content:
    endpoint.etag = ""
    return json.loads(type(endpoint).to_json(endpoint))


def _is_endpoint(content: Any) -> bool:
    """Tell an Endpoint message of Google's."""
    from google.protobuf import json_format

    try:
        return bool(_message(content).name)
    except (TypeError, ValueError, json_format.Error):
        return False


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
