"""A model's endpoint on Vertex AI: its deployed versions and their traffic.

A model has one endpoint, named after the model. The ID of a deployed version is the version's
number, so a command that is repeated after a lost answer finds what the first attempt has done.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from components.planning.prediction_options import ServingOptions
from components.registry.model_registry import (
    ModelRegistry,
    Version,
    connect_registry,
)
from components.registry.model_upload import MADE_BY, to_label
from components.vertex.cloud_errors import CONFLICT, NOT_FOUND, tolerated
from components.vertex.vertex_client import connect_vertex, finish
from trainer.errors import InputError

# Google documents minutes; pulling a large image takes longest.
_DEPLOY_SECONDS = 3600.0
_NEW = "0"
_ID_LENGTH = 63


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """The endpoints of a project and region; methods raise the client's exceptions."""

    client: Any  # a `Service` that wraps Vertex AI's EndpointServiceClient
    registry: ModelRegistry  # registry of the deployed versions
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of new endpoints

    def fetch_champion(self, model: str) -> Version:
        """Return the version to deploy; raise InputError if there is none."""
        return self.registry.fetch_champion(model)

    def is_deployed(self, version: Version) -> bool:
        """Return True if the model's endpoint serves a version, with or without traffic."""
        endpoint = self._find(_endpoint_id(version.model), version.model)
        return endpoint is not None and version.version in shares(endpoint)

    def deploy(
        self,
        version: Version,
        serving: ServingOptions,
        traffic: int | None,
        key: str = "",
        endpoint_id: str = "",
    ) -> str:
        """Deploy a version beside the previous one; return the endpoint's resource name.

        The first version of an endpoint gets all of the traffic. A later version gets `traffic`,
        and the version with most of the traffic so far gets the rest. Other versions without
        traffic are undeployed.

        Args:
            traffic: share of the traffic in percent; None: no traffic, unless it is the first
                version.
            key: Cloud KMS key of the endpoint; empty: a Google-managed key.
            endpoint_id: ID of the endpoint; empty: the model's endpoint.
        """
        endpoint_id = endpoint_id or _endpoint_id(version.model)
        model = version.model
        endpoint = self._find(endpoint_id, model) or self._create(endpoint_id, model, key)
        present = shares(endpoint)
        if version.version in present:
            if traffic is not None:
                self._shift_traffic(endpoint, _compute_split(version.version, traffic, present))
            return endpoint.name
        from google.cloud.aiplatform_v1 import types

        main = max(present, key=present.__getitem__, default="")
        for number, share in present.items():
            if number != main and not share:
                self._undeploy(endpoint, number)
        split = {}
        if traffic is not None or not present:
            split = _compute_split(_NEW, 100 if traffic is None else traffic, present)
        request = types.DeployModelRequest(
            endpoint=endpoint.name,
            deployed_model=types.DeployedModel(
                id=version.version,
                model=version.resource,
                display_name=version.name,
                dedicated_resources=types.DedicatedResources(
                    machine_spec=types.MachineSpec(machine_type=serving.machine_type),
                    min_replica_count=serving.min_replicas,
                    max_replica_count=max(serving.min_replicas, serving.max_replicas),
                ),
            ),
            traffic_split=split,
        )
        # Retried after a lost answer, the request conflicts with the version that it deployed.
        self._finish_unless_present(lambda: self.client.deploy_model(request))
        return endpoint.name

    @contextlib.contextmanager
    def temporary_endpoint(
        self, version: Version, serving: ServingOptions, key: str
    ) -> Iterator[str]:
        """Deploy a version to a temporary endpoint; yield the endpoint's name.

        A version without traffic can't be tested at the model's endpoint, because a request
        can't name the deployed version.
        """
        ending = f"-test-{version.version}"
        endpoint_id = _endpoint_id(version.model)[: _ID_LENGTH - len(ending)] + ending
        one_replica = dataclasses.replace(serving, min_replicas=1, max_replicas=1)
        try:
            yield self.deploy(version, one_replica, 100, key, endpoint_id)
        finally:
            endpoint = self._find(endpoint_id, version.model)
            if endpoint:
                self._clear(endpoint)
                with tolerated(NOT_FOUND):
                    self._finish(self.client.delete_endpoint(name=endpoint.name))

    def roll_back(self, model: str) -> str:
        """Give all of the traffic to the version deployed before the last; return its number."""
        endpoint = self.fetch_endpoint(model)
        newest, *older = [*shares(endpoint)] or ["now"]
        if not older:
            raise InputError(
                f"the endpoint of {model} serves no version before {newest}; promote one and "
                "deploy it"
            )
        self._shift_traffic(endpoint, {older[0]: 100})
        return older[0]

    def remove(self, model: str) -> None:
        """Undeploy every version of a model; keep the endpoint, so that its address stays valid."""
        self._clear(self.fetch_endpoint(model))

    def _clear(self, endpoint: Any) -> None:
        if endpoint.traffic_split:
            self._shift_traffic(endpoint, {})
        for version in shares(endpoint):
            self._undeploy(endpoint, version)

    def _find(self, endpoint_id: str, model: str) -> Any:
        """Return an endpoint, or None; raise InputError if it was not made for the model."""
        endpoint = None
        with tolerated(NOT_FOUND):
            name = f"{self.registry.parent}/endpoints/{endpoint_id}"
            endpoint = self.client.get_endpoint(name=name)
        labels = _labels_of(model)
        if endpoint and not labels.items() <= dict(endpoint.labels).items():
            wanted = ", ".join(f"{key}={value}" for key, value in labels.items())
            raise InputError(
                f"the endpoint {endpoint_id} was not made for the model {model}: it lacks the "
                f"labels {wanted}; give the model another model_name"
            )
        return endpoint

    def fetch_endpoint(self, model: str) -> Any:
        """Return a model's types.Endpoint; raise InputError if there is none."""
        endpoint = self._find(_endpoint_id(model), model)
        if endpoint is None:
            raise InputError(f"{model} has no endpoint in {self.registry.parent}; deploy it first")
        return endpoint

    def _create(self, endpoint_id: str, model: str, key: str) -> Any:
        from google.cloud.aiplatform_v1 import types

        labels = {**self.labels, **_labels_of(model)}
        endpoint = types.Endpoint(display_name=endpoint_id, labels=labels)
        if key:
            endpoint.encryption_spec.kms_key_name = key
        # Another command may have created it in the meantime.
        self._finish_unless_present(
            lambda: self.client.create_endpoint(
                parent=self.registry.parent, endpoint=endpoint, endpoint_id=endpoint_id
            )
        )
        return self._find(endpoint_id, model)

    def _finish_unless_present(self, start: Callable[[], Any]) -> None:
        """Start and finish an operation, unless the resource that it would create exists."""
        operation = None
        # Tolerated only at the start: an operation that is aborted has the same status.
        with tolerated(CONFLICT):
            operation = start()
        if operation:
            self._finish(operation)

    def _finish(self, operation: Any) -> None:
        finish(operation, self.client.retry, _DEPLOY_SECONDS)

    def _shift_traffic(self, endpoint: Any, split: dict[str, int]) -> None:
        from google.cloud.aiplatform_v1 import types

        changed = types.Endpoint(name=endpoint.name, traffic_split=split, etag=endpoint.etag)
        # Not retried: a request with an outdated etag stays refused.
        self.client.update_endpoint(
            endpoint=changed, update_mask={"paths": ["traffic_split"]}, retry=None
        )

    def _undeploy(self, endpoint: Any, version: str) -> None:
        with tolerated(NOT_FOUND):
            operation = self.client.undeploy_model(
                endpoint=endpoint.name, deployed_model_id=version, traffic_split={}
            )
            self._finish(operation)


def connect_endpoints(project: str, location: str) -> Endpoints:
    """Return the endpoints of a project and location; see `connect_vertex` for the server used."""
    client = connect_vertex("endpoint", location, os.environ)
    return Endpoints(client, connect_registry(project, location))


def shares(endpoint: Any) -> dict[str, int]:
    """Return the traffic in percent of each version at a types.Endpoint, last deployed first."""
    deployed = [(model.create_time, int(model.id), model.id) for model in endpoint.deployed_models]
    versions = [number for *_, number in sorted(deployed, reverse=True)]
    return {version: endpoint.traffic_split.get(version, 0) for version in versions}


def is_test(endpoint: Any) -> bool:
    """Return True if `Endpoints.temporary_endpoint` created the types.Endpoint."""
    model = endpoint.labels.get("recipe", "")
    return endpoint.name.rpartition("/")[2] != _endpoint_id(model)


def _labels_of(model: str) -> dict[str, str]:
    return {"recipe": to_label(model), **MADE_BY}


def _endpoint_id(model: str) -> str:
    """Return the ID of a model's endpoint, without _ and with a letter or digit at both ends."""
    return model.replace("_", "-").strip("-")


def _compute_split(version: str, traffic: int, present: dict[str, int]) -> dict[str, int]:
    """Return a split in which `version` gets `traffic`, and the largest other version the rest."""
    others = {number: share for number, share in present.items() if number != version}
    if traffic == 100:
        return {version: 100}
    if not others:
        raise InputError(f"--traffic {traffic}: no other version can get the rest; give 100")
    rest = max(others, key=others.__getitem__)
    return {version: traffic, rest: 100 - traffic} if traffic else {rest: 100}
