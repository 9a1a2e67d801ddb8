"""Vertex AI's checks of endpoints and the models deployed to them."""

from collections.abc import Mapping
from typing import Any

from pipelines.emulator.api_error import ApiError
from pipelines.emulator.field_rules import check_id, refuse, refuse_state
from trainer.machines.prediction_machines import check_prediction_machine

NEW = "0"
"""The ID in a traffic split that stands for the model that the request deploys."""


def check_deployed_model(deployed: Any, known: Mapping[str, Any]) -> None:
    """Refuse a model without a machine, or with an ID that is malformed or taken."""
    if deployed.id:
        check_id("deployed_model.id", deployed.id)
    if deployed.id in known:
        raise ApiError("ALREADY_EXISTS", f"DeployedModel {deployed.id} exists already")
    resources = deployed.dedicated_resources
    check_machine(resources, "deployed_model")
    least, most = resources.min_replica_count, resources.max_replica_count
    refuse(least < 1, "min_replica_count must be at least 1")
    too_few = most and most < least
    refuse(too_few, f"max_replica_count {most} is less than min_replica_count {least}")


def check_machine(resources: Any, where: str) -> None:
    """Refuse resources without a machine type that supports prediction."""
    machine, where = resources.machine_spec, f"{where}.dedicated_resources.machine_spec."
    refuse(not machine.machine_type, f"{where}machine_type is required")
    check_prediction_machine(f"{where}machine_type", machine.machine_type)


def check_traffic(split: Mapping[str, int], known: Mapping[str, Any]) -> None:
    """Refuse a split that does not add up to 100, or names a model that is not deployed."""
    for name in split:
        refuse(name not in known, f"traffic_split names {name}, which is not deployed")
    total = sum(split.values())
    refuse(split and total != 100, f"traffic_split adds up to {total}, not 100")


def check_idle(endpoint: Any, deployed_id: str) -> None:
    """Refuse to undeploy a model that has traffic."""
    busy = endpoint.traffic_split.get(deployed_id)
    refuse_state(busy, f"DeployedModel {deployed_id} has traffic")


def check_served(endpoint: Any) -> None:
    """Refuse to predict with an endpoint that has no model with traffic.

    A request names no deployed model, so a model without traffic can't be reached.
    """
    refuse_state(not endpoint.traffic_split, f"{endpoint.name} has no model with traffic")


def check_empty(endpoint: Any) -> None:
    """Refuse to delete an endpoint that has deployed models."""
    refuse_state(endpoint.deployed_models, f"{endpoint.name} has deployed models")
