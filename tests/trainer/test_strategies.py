"""A replica trains under the strategy that its replicas call for, and refuses any other."""

import pytest
import tensorflow as tf

from trainer.errors import InputError
from trainer.training.cluster import Cluster
from trainer.training.strategies import (
    barrier,
    check_accelerators,
    create_strategy,
    divide_cpu,
    resolve,
)


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
def test_auto_takes_what_suits_the_replicas(roles, strategy):
    assert resolve("auto", cluster_of(**roles)) == strategy


@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("parameter_server", {"chief": 1, "ps": 1}),
        ("parameter_server", {}),
        ("mirrored", {"worker": 2}),
    ],
)
def test_a_strategy_that_does_not_fit_the_cluster_is_refused(strategy, roles):
    with pytest.raises(InputError, match=f"strategy='{strategy}' does not fit the replicas "):
        create_strategy(strategy, cluster_of(**roles))


@pytest.mark.parametrize("name", ["one_device", "mirrored"])
def test_a_single_replica_is_called_as_its_strategy_was_asked_for(name):
    strategy = create_strategy(name, Cluster())
    assert resolve(name, Cluster()) == name
    barrier(strategy)  # Nobody else is waited for.


@pytest.mark.parametrize("text", ["two", "0", "-1", "1.5"])
def test_a_cpu_is_divided_into_a_number_of_devices_alone(text):
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("with a GPU the CPU stands in for nothing")
    with pytest.raises(InputError, match=f"LOGICAL_CPUS='{text}' is not a number of devices"):
        divide_cpu({"LOGICAL_CPUS": text})


def test_devices_of_the_cpu_stand_in_for_gpus_where_none_are_billed():
    check_accelerators(2, {"LOGICAL_CPUS": "2"})
