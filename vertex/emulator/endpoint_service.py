"""EndpointService and PredictionService: endpoints, deployed models, traffic and predictions."""

import dataclasses
import json
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

from google.protobuf import json_format

from vertex.emulator import messages
from vertex.emulator.api_error import ApiError, not_found
from vertex.emulator.field_rules import check_id, check_machine, refuse, refuse_state
from vertex.emulator.http_rules import to_json
from vertex.emulator.messages import parent_of
from vertex.emulator.model_server import ModelServer, ModelServers
from vertex.emulator.model_service import ModelService
from vertex.emulator.proto_rules import check_required
from vertex.emulator.resources import Resources, set_etag
from vertex.facts import resource_names
from vertex.machines.quotas import MAX_REPLICAS

_LARGEST_BODY = 3 * 2**19
"""1.5 MB, for requests to a shared public endpoint and for their responses."""
_OTHER_TYPES = ("dedicated_endpoint_enabled", "network", "private_service_connect_config")
"""Fields of endpoints that have an address of their own, and answer at no other."""
_NEW = "0"
"""The ID in a traffic split that stands for the model that the request deploys."""


@dataclasses.dataclass(eq=False, kw_only=True)
class EndpointService(Resources):
    """A store of endpoints."""

    kind = "Endpoint"
    updatable = ("display_name", "description", "labels", "traffic_split")
    models: ModelService  # holds the models that are deployed
    servers: ModelServers  # run the deployed models
    # The deployments that are under way: (endpoint, ID of the deployed model).
    deploying: set[tuple[str, str]] = dataclasses.field(default_factory=set, init=False)

    def create(self, request: Any) -> Any:
        endpoint = super().create(request)
        return self.operations.start(endpoint.name, endpoint, parent=endpoint.name)

    def find(self, name: str) -> Any:
        self.operations.advance()
        return super().find(name)

    def list_all(self) -> list[Any]:
        self.operations.advance()
        return super().list_all()

    def refresh(self, endpoint: Any) -> Any:
        return set_etag(endpoint)

    def check(self, endpoint: Any, parent: str) -> None:
        super().check(endpoint, parent)
        check_traffic(dict(endpoint.traffic_split), _deployed_by_id(endpoint))
        for name in _OTHER_TYPES:
            other = getattr(endpoint, name)
            refuse(other, f"{name} is not supported here: endpoints are public and shared")

    def check_deletable(self, endpoint: Any) -> None:
        refuse_state(endpoint.deployed_models, f"{endpoint.name} has deployed models")
        busy = any(name == endpoint.name for name, _ in self.deploying)
        refuse_state(busy, f"{endpoint.name} has operations that are running")

    def deploy_model(self, request: Any) -> Any:
        """Deploy a model; return an operation that is done once the server is healthy.

        The endpoint lists the model, and has the traffic split, only then.
        """
        check_required(request)
        deployed = messages.DeployedModel(request.deployed_model)
        endpoint = self.find(request.endpoint)
        known = _deployed_by_id(endpoint)
        taken = {*known, *(number for name, number in self.deploying if name == endpoint.name)}
        check_deployed_model(deployed, taken, parent_of(endpoint.name))
        self._check_replicas(deployed, parent_of(endpoint.name))
        model = self.models.find_servable(deployed.model)
        deployed.id = deployed.id or str(max(map(int, taken), default=0) + 1)
        deployed.model, deployed.model_version_id = model.name, model.version_id
        deployed.display_name = deployed.display_name or model.display_name
        deployed.create_time = self.clock.now()
        split = {
            deployed.id if name == _NEW else name: share
            for name, share in request.traffic_split.items()
        }
        check_traffic(split, {**known, deployed.id: deployed})
        deployment = (endpoint.name, deployed.id)
        self.deploying.add(deployment)

        def is_done() -> bool:
            try:
                ready = self.servers.is_ready(*self._server_of(endpoint.name, deployed))
            except ApiError:
                self.deploying.remove(deployment)
                raise
            if ready:
                self.deploying.remove(deployment)
                self._add(endpoint.name, deployed, split)
            return ready

        response = messages.DeployModelResponse(deployed_model=deployed)
        return self.operations.start(endpoint.name, response, is_done, parent=endpoint.name)

    def undeploy_model(self, request: Any) -> Any:
        check_required(request)
        with self.changing(request.endpoint) as endpoint:
            deployed = _deployed_by_id(endpoint).get(request.deployed_model_id)
            if not deployed:
                raise not_found(f"DeployedModel {request.deployed_model_id}")
            if request.traffic_split:
                check_traffic(dict(request.traffic_split), _deployed_by_id(endpoint))
                endpoint.traffic_split = dict(request.traffic_split)
            if len(endpoint.deployed_models) == 1:
                # "If last DeployedModel is being undeployed …, the [Endpoint.traffic_split] will
                # always end up empty".
                endpoint.traffic_split = {}
            busy = endpoint.traffic_split.get(deployed.id)
            refuse_state(busy, f"DeployedModel {deployed.id} has traffic")
            endpoint.deployed_models = [
                model for model in endpoint.deployed_models if model.id != deployed.id
            ]
            self.models.set_deployed(_version_name(deployed), endpoint.name)
            has_ended = self.servers.stop(f"{endpoint.name}/{deployed.id}")
        response = messages.UndeployModelResponse()
        return self.operations.start(endpoint.name, response, has_ended, parent=endpoint.name)

    def predict(self, request: Any) -> Callable[[], Any]:
        """Return a function that asks a deployed model, chosen at random by share of the traffic.

        Its server may take a minute to answer.
        """
        check_required(request)
        body = to_json(request)
        del body["endpoint"]
        check_size("request", body)
        deployed, server = self._choose_server(request.endpoint)
        response = messages.PredictResponse(
            deployed_model_id=deployed.id,
            model=deployed.model,
            model_version_id=deployed.model_version_id,
            model_display_name=self.models.find(_version_name(deployed)).display_name,
        )

        def ask() -> Any:
            answer = server.predict(body)
            check_size("response", answer)
            json_format.ParseDict({"predictions": answer["predictions"]}, response._pb)
            return response

        return ask

    def raw_predict(self, request: Any) -> Callable[[], Any]:
        """Return a function that asks a deployed model with any body."""
        from google.api import httpbody_pb2

        _, server = self._choose_server(request.endpoint)
        body, kind = request.http_body.data.decode(), request.http_body.content_type

        def ask() -> Any:
            return httpbody_pb2.HttpBody(content_type=kind, data=server.predict_raw(body))

        return ask

    def _choose_server(self, name: str) -> tuple[Any, ModelServer]:
        """Return a deployed model, at random by share of the traffic, and its server."""
        endpoint = self.find(name)
        split = endpoint.traffic_split
        # A request names no deployed model, so a model without traffic can't be reached.
        refuse_state(not split, f"{endpoint.name} has no model with traffic")
        (chosen,) = random.choices(list(split), list(split.values()))  # noqa: S311 - no secret
        deployed = _deployed_by_id(endpoint)[chosen]
        return deployed, self.servers.start(*self._server_of(endpoint.name, deployed))

    def set_monitoring(self, name: str, job: str) -> None:
        """Set the job that monitors an endpoint; empty: no job does."""
        with self.changing(name) as endpoint:
            endpoint.model_deployment_monitoring_job = job

    def _check_replicas(self, deployed: Any, parent: str) -> None:
        """Refuse a model with whose replicas the project's region would exceed the limit."""
        here = [endpoint for endpoint in self.list_all() if parent_of(endpoint.name) == parent]
        models = [model for endpoint in here for model in endpoint.deployed_models]
        count = sum(model.dedicated_resources.min_replica_count for model in [*models, deployed])
        beyond = count > MAX_REPLICAS
        refuse_state(beyond, f"{count} replicas would be deployed; at most {MAX_REPLICAS}")

    def _server_of(self, endpoint: str, deployed: Any) -> tuple[str, Any, str]:
        """Return the name of a deployed model's server, the model and the folder of its files."""
        version = _version_name(deployed)
        model, artifacts = self.models.find(version), self.models.artifacts(version)
        return f"{endpoint}/{deployed.id}", model, artifacts

    def _add(self, name: str, deployed: Any, split: Mapping[str, int]) -> None:
        with self.changing(name) as endpoint:
            endpoint.deployed_models.append(deployed)
            if split:
                endpoint.traffic_split = split
            self.models.set_deployed(_version_name(deployed), name, deployed.id)


def _deployed_by_id(endpoint: Any) -> dict[str, Any]:
    return {model.id: model for model in endpoint.deployed_models}


def _version_name(deployed: Any) -> str:
    return f"{deployed.model}@{deployed.model_version_id}"


def check_size(what: str, body: Mapping[str, Any]) -> None:
    """Refuse a body that is too large for a shared public endpoint."""
    size = len(json.dumps(body))
    refuse(size > _LARGEST_BODY, f"the {what} has {size} bytes, more than 1.5 MB")


def check_deployed_model(deployed: Any, taken: Collection[str], parent: str) -> None:
    """Refuse a model without a machine or with wrong replicas, or a malformed or taken ID."""
    if deployed.id:
        check_id("deployed_model.id", deployed.id)
    if deployed.id in taken:
        raise ApiError("ALREADY_EXISTS", f"DeployedModel {deployed.id} exists already")
    resources = deployed.dedicated_resources
    check_machine(resources, "deployed_model", parent)
    resource_names.check("service_account", deployed.service_account)
    least, most = resources.min_replica_count, resources.max_replica_count
    refuse(least < 1, "min_replica_count must be at least 1")
    too_few = most and most < least
    refuse(too_few, f"max_replica_count {most} is less than min_replica_count {least}")
    required = resources.required_replica_count
    refuse(required > least, f"required_replica_count {required} is more than {least}, the minimum")
    names = [metric.metric_name for metric in resources.autoscaling_metric_specs]
    refuse(len(names) > len({*names}), f"a metric is more than once in {names}")


def check_traffic(split: Mapping[str, int], deployed: Mapping[str, Any]) -> None:
    """Refuse a split that does not add up to 100, or names a model that is not deployed."""
    for name in split:
        refuse(name not in deployed, f"traffic_split names {name}, which is not deployed")
    total = sum(split.values())
    refuse(split and total != 100, f"traffic_split adds up to {total}, not 100")
