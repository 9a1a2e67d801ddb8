"""The role of a replica, read from TF_CONFIG as Vertex AI sets it."""

import json

import pytest

from tests.refusals import refused
from trainer.engine.cluster import Cluster, from_environment

TRAINERS = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
MEMBERS = {**TRAINERS, "ps": ["d:1"]}


def read(addresses: dict, role: str, index: int = 0, evaluator_pool: int = 0) -> Cluster:
    config = {"cluster": addresses, "task": {"type": role, "index": index}}
    return from_environment({"TF_CONFIG": json.dumps(config)}, evaluator_pool)


def test_process_without_tf_config_is_its_own_chief():
    cluster = from_environment({})
    assert cluster.is_chief
    assert cluster.trainers == 1


def test_chief_comes_before_the_workers():
    trainers = [read(MEMBERS, *task) for task in (("chief", 0), ("worker", 0), ("worker", 1))]
    assert [replica.is_chief for replica in trainers] == [True, False, False]
    assert [replica.trainer_index for replica in trainers] == [0, 1, 2]
    assert trainers[0].trainers == 3


def test_worker_0_is_chief_where_there_is_no_other():
    members = {"worker": ["a:1", "b:1"]}
    assert [read(members, "worker", index).is_chief for index in (0, 1)] == [True, False]


def test_master_is_a_chief():
    cluster = read({"master": ["a:1"], "worker": ["b:1"]}, "master")
    assert cluster.is_chief
    assert cluster.addresses == {"chief": ["a:1"], "worker": ["b:1"]}


@pytest.mark.parametrize(
    ("role", "pool", "expected"),
    [
        ("evaluator", 3, Cluster(role="evaluator", addresses=MEMBERS, has_evaluator=True)),
        ("chief", 3, Cluster(addresses=MEMBERS, has_evaluator=True)),
        ("ps", 0, Cluster(role="ps", addresses=MEMBERS)),
        ("ps", 2, Cluster(role="evaluator", addresses=TRAINERS, has_evaluator=True)),
    ],
)
def test_evaluator_is_the_pool_of_the_flag(role, pool, expected):
    assert read(MEMBERS, role, evaluator_pool=pool) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief"}}',
        '{"cluster": {}, "task": {"type": "boss"}}',
        '{"cluster": ["a:1"]}',
    ],
)
def test_senseless_tf_config_is_refused(text):
    assert "TF_CONFIG can't be parsed" in refused(from_environment, {"TF_CONFIG": text})
