"""A model's endpoint on Vertex AI: its deployed versions and their traffic.

A model has one endpoint, named after the model. The ID of a deployed version is the version's
number, so a command that is repeated after a lost answer finds what the first attempt has done.
"""

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vertex.client.cloud_errors import Change, translated
from vertex.errors import InputError
from vertex.registry.endpoint_changes import EndpointChanges, id_of, shares
from vertex.registry.model_registry import ModelRegistry, Version
from vertex.registry.model_upload import MADE_BY, to_label

_NEW = "0"
_ID_LENGTH = 63


@dataclasses.dataclass(frozen=True)
class Endpoints:
    """The endpoints of a project and region; methods raise the client's exceptions."""

    client: Any  # a `Service` that wraps Vertex AI's EndpointServiceClient
    registry: ModelRegistry  # registry of the deployed versions
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of new endpoints
    say: Callable[[str], None] = print  # called with a line a minute while an operation runs

    @functools.cached_property
    def changes(self) -> EndpointChanges:
        """Return the changes of these endpoints."""
        return EndpointChanges(self.client, self.say)

    def is_deployed(self, version: Version) -> bool:
        """Return True if the model's endpoint serves a version, with or without traffic."""
        endpoint = self._find(_endpoint_id(version.model), version.model)
        return endpoint is not None and version.version in shares(endpoint)

    def deploy(
        self,
        version: Version,
        machines: Any,
        traffic: int | None,
        key: str = "",
        endpoint_id: str = "",
    ) -> str:
        """Deploy a version beside the previous one; return the endpoint's resource name.

        The first version of an endpoint, and one at an endpoint without traffic, gets all of the
        traffic. A later version gets `traffic`, and the version with most of the traffic so far
        gets the rest. Other versions without traffic are undeployed.

        Args:
            machines: types.DedicatedResources of the version.
            traffic: share of the traffic in percent; None: no traffic, unless it is the first
                version.
            key: Cloud KMS key of the endpoint; empty: a Google-managed key.
            endpoint_id: ID of the endpoint; empty: the model's endpoint.
        """
        endpoint_id = endpoint_id or _endpoint_id(version.model)
        endpoint = self._find(endpoint_id, version.model)
        if not endpoint:
            _compute_split(version.version, 100 if traffic is None else traffic, {})
            endpoint = self._create(endpoint_id, version.model, key)
        # An earlier command, which was killed, or another one may have begun a deployment.
        endpoint = self.changes.settle_others(endpoint.name)
        present = shares(endpoint)
        first = traffic is None and not any(present.values())
        share = 100 if first else traffic
        if share is not None:
            _compute_split(version.version, share, present)
        with Change() as change:
            if version.version not in present:
                endpoint = self._deploy_new(endpoint, version, machines, share, change)
            # Another command may have deployed a version in the meantime, with traffic.
            if share is not None and not (first and endpoint.traffic_split):
                split = _compute_split(version.version, share, shares(endpoint))
                self.changes.shift_traffic(endpoint, split)
        return str(endpoint.name)

    def _deploy_new(
        self,
        endpoint: Any,
        version: Version,
        machines: Any,
        traffic: int | None,
        change: Change,
    ) -> Any:
        """Deploy a version that an endpoint does not have; return the endpoint."""
        from google.cloud.aiplatform_v1 import types

        present = shares(endpoint)
        main = max(present, key=present.__getitem__, default="")
        for number, share in present.items():
            if number != main and not share:
                self.changes.undeploy(endpoint, number)
                change.begun = True
        request = types.DeployModelRequest(
            endpoint=endpoint.name,
            deployed_model=types.DeployedModel(
                id=version.version,
                model=version.resource,
                display_name=version.name,
                dedicated_resources=machines,
            ),
            traffic_split={} if traffic is None else _compute_split(_NEW, traffic, present),
        )
        return self.changes.deploy(request, version.name, change)

    @contextlib.contextmanager
    def temporary_endpoint(self, version: Version, machines: Any, key: str) -> Iterator[str]:
        """Deploy a version to a temporary endpoint; yield the endpoint's name.

        A version without traffic can't be tested at the model's endpoint, because a request
        can't name the deployed version.
        """
        ending = f"-test-{version.version}"
        endpoint_id = _endpoint_id(version.model)[: _ID_LENGTH - len(ending)] + ending
        one = copy.deepcopy(machines)
        one.min_replica_count = one.max_replica_count = 1
        try:
            yield self.deploy(version, one, 100, key, endpoint_id)
        finally:
            left = f"deleting the endpoint {endpoint_id}, which is billed until `clean` deletes it"
            with translated(left):
                if endpoint := self._find(endpoint_id, version.model):
                    self.changes.delete(endpoint.name)

    def roll_back(self, model: str) -> str:
        """Give all of the traffic to the version deployed before the last; return its number."""
        # A deployment that has begun sets the traffic at its end.
        endpoint = self.changes.settle_others(self.fetch_endpoint(model).name)
        newest, *older = [*shares(endpoint)] or ["now"]
        if not older:
            raise InputError(
                f"the endpoint of {model} serves no version older than {newest}; promote one and "
                "deploy it"
            )
        self.changes.shift_traffic(endpoint, {older[0]: 100})
        return older[0]

    def remove(self, model: str) -> bool:
        """Undeploy every version of a model; keep the endpoint, so that its address stays valid.

        Return False if a deployment may be under way that the server does not show.
        """
        return self.changes.clear(self.fetch_endpoint(model).name)

    def _find(self, endpoint_id: str, model: str) -> Any:
        """Return an endpoint, or None; raise InputError if it was not made for the model."""
        endpoint = self.changes.find(f"{self.registry.parent}/endpoints/{endpoint_id}")
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
        return self.changes.create(self.registry.parent, endpoint, endpoint_id)


def is_test(endpoint: Any) -> bool:
    """Return True if `Endpoints.temporary_endpoint` created the types.Endpoint."""
    model = endpoint.labels.get("recipe", "")
    return id_of(endpoint.name) != _endpoint_id(model)


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
        raise InputError(f"--traffic {traffic}: no other version can take the rest; give 100")
    rest = max(others, key=others.__getitem__)
    return {version: traffic, rest: 100 - traffic} if traffic else {rest: 100}
