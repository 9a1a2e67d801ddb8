"""Checks of Vertex AI on an endpoint and the models deployed to it: a function a rule."""

import re
from collections.abc import Mapping
from typing import Any

from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.field_rules import check_key, check_name
from pipelines.emulator.labels import check_labels

_ENDPOINT_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?|[1-9][0-9]{0,8}|0")
_DEPLOYED_ID = re.compile(r"[0-9]{1,10}")
NEW = "0"
"""Name, in a traffic split, of the model that the request deploys."""


def check(endpoint: Any, endpoint_id: str, parent: str) -> None:
    """Refuse an endpoint without a name, with an ID of another form or a key of another region.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints/create
    """
    check_name(endpoint, "endpoint")
    check_labels(endpoint.labels)
    check_key(endpoint, parent)
    if endpoint_id and not _ENDPOINT_ID.fullmatch(endpoint_id):
        raise invalid(f"endpoint_id {endpoint_id!r} is not up to 63 of a-z, 0-9 and -")


def check_deployed_model(deployed: Any, known: Mapping[str, Any]) -> None:
    """Refuse a model without a machine, and an ID that is taken or of another form.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints
    """
    if deployed.id and not _DEPLOYED_ID.fullmatch(deployed.id):
        raise invalid(f"deployed_model.id {deployed.id!r} is not up to 10 digits")
    if deployed.id in known:
        raise ApiError("ALREADY_EXISTS", f"DeployedModel {deployed.id} exists already")
    resources = deployed.dedicated_resources
    if not resources.machine_spec.machine_type:
        raise invalid("deployed_model.dedicated_resources.machine_spec.machine_type is required")
    least, most = resources.min_replica_count, resources.max_replica_count
    if least < 1:
        raise invalid("min_replica_count must be at least 1")
    if most and most < least:
        raise invalid(f"max_replica_count {most} is less than min_replica_count {least}")


def check_traffic(split: Mapping[str, int], known: Mapping[str, Any]) -> None:
    """Refuse a split that does not add up to 100, or names a model that is not deployed.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints
    """
    for name in split:
        if name not in known:
            raise invalid(f"traffic_split names {name}, which is not deployed")
    if split and sum(split.values()) != 100:
        raise invalid(f"traffic_split adds up to {sum(split.values())}, not 100")


def check_idle(endpoint: Any, deployed_id: str) -> None:
    """Refuse to undeploy a model that has traffic.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints/undeployModel
    """
    if endpoint.traffic_split.get(deployed_id):
        raise ApiError("FAILED_PRECONDITION", f"DeployedModel {deployed_id} has traffic")


def check_served(endpoint: Any) -> None:
    """Refuse to predict by an endpoint none of whose models has traffic.

    A request names no deployed model: one without traffic can't be asked.
    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.endpoints/predict
    """
    if not endpoint.traffic_split:
        raise ApiError("FAILED_PRECONDITION", f"{endpoint.name} has no model with traffic")


def check_empty(endpoint: Any) -> None:
    """Refuse to delete an endpoint to which models are deployed.

    https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/undeploy-model
    """
    if endpoint.deployed_models:
        raise ApiError("FAILED_PRECONDITION", f"{endpoint.name} has deployed models")
