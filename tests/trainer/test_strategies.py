"""A replica trains under the strategy that its replicas call for, and refuses any other."""

import pytest

from trainer.errors import InputError
from trainer.training import strategies
from trainer.training.cluster import Cluster


def cluster_of(**roles: int) -> Cluster:
    addresses = {role: [f"{role}:{n}" for n in range(count)] for role, count in roles.items()}
    return Cluster(addresses=addresses)


@pytest.mark.parametrize(
    ("roles", "strategy"),
    [
        ({}, "one_device"),
        ({"chief": 1, "worker": 1}, "multi_worker_mirrored"),
        ({"worker": 2}, "multi_worker_mirrored"),
        ({"chief": 1, "worker": 2, "ps": 1}, "parameter_server"),
    ],
)
def test_auto_suits_the_replicas(roles, strategy):
    assert strategies.resolve("auto", cluster_of(**roles)) == strategy


@pytest.mark.parametrize(
    ("strategy", "roles"), [("parameter_server", {}), ("mirrored", {"worker": 2})]
)
def test_strategy_that_does_not_fit_the_replicas_is_refused(strategy, roles):
    with pytest.raises(InputError, match=f"strategy='{strategy}' does not fit the replicas "):
        strategies.create_strategy(strategy, cluster_of(**roles))


@pytest.mark.parametrize("name", ["one_device", "mirrored"])
def test_single_replica_waits_for_no_other(name):
    assert strategies.resolve(name, Cluster()) == name
    strategies.barrier(strategies.create_strategy(name, Cluster()))


def test_logical_devices_stand_in_for_gpus():
    strategies.check_accelerators(2, {"LOGICAL_CPUS": "2"})
