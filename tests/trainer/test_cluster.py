"""Which replica a process is, by either variable that Vertex AI sets."""

import json

import pytest

from trainer.errors import InputError
from trainer.training.cluster import Cluster, from_environment

CLUSTER_SPEC = {
    "cluster": {
        "workerpool0": ["cmle-training-workerpool0-ab-0:2222"],
        "workerpool1": [
            "cmle-training-workerpool1-ab-0:2222",
            "cmle-training-workerpool1-ab-1:2222",
        ],
        "workerpool2": ["cmle-training-workerpool2-ab-0:2222"],
        "workerpool3": ["cmle-training-workerpool3-ab-0:2222"],
    },
    "environment": "cloud",
    "task": {"type": "workerpool1", "index": 1},
    "job": "{}",
}


def tf_config(cluster: dict, role: str, index: int = 0) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})}


def test_a_process_without_a_cluster_is_its_own_chief():
    cluster = from_environment({})
    assert cluster.is_chief
    assert cluster.trainers == 1


def test_with_a_chief_no_worker_is_one():
    members = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    chief = from_environment(tf_config(members, "chief"))
    worker = from_environment(tf_config(members, "worker"))
    last = from_environment(tf_config(members, "worker", 1))
    assert [replica.is_chief for replica in (chief, worker, last)] == [True, False, False]
    assert [replica.trainer_index for replica in (chief, worker, last)] == [0, 1, 2]
    assert chief.trainers == 3


def test_without_a_chief_worker_0_is_it():
    members = {"worker": ["a:1", "b:1"]}
    assert from_environment(tf_config(members, "worker", 0)).is_chief
    assert not from_environment(tf_config(members, "worker", 1)).is_chief


def test_a_master_is_a_chief():
    cluster = from_environment(tf_config({"master": ["a:1"], "worker": ["b:1"]}, "master"))
    assert cluster.is_chief
    assert cluster.addresses == {"chief": ["a:1"], "worker": ["b:1"]}


def test_cluster_spec_names_pools_by_position():
    cluster = from_environment({"CLUSTER_SPEC": json.dumps(CLUSTER_SPEC)})
    assert (cluster.role, cluster.index, cluster.trainers) == ("worker", 1, 3)
    assert "evaluator" not in cluster.addresses
    evaluator = {**CLUSTER_SPEC, "task": {"type": "workerpool3", "index": 0}}
    assert from_environment({"CLUSTER_SPEC": json.dumps(evaluator)}).role == "evaluator"


def test_a_single_replica_of_a_job_needs_no_peers():
    spec = {
        "cluster": {"workerpool0": ["only:2222"]},
        "task": {"type": "workerpool0", "index": 0},
    }
    assert from_environment({"CLUSTER_SPEC": json.dumps(spec)}) == Cluster()


def test_tf_config_goes_before_cluster_spec():
    both = {
        "CLUSTER_SPEC": json.dumps(CLUSTER_SPEC),
        **tf_config({"chief": ["a:1"], "worker": ["b:1"]}, "chief"),
    }
    assert from_environment(both).role == "chief"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("TF_CONFIG", "{"),
        ("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}'),
        ("TF_CONFIG", '{"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief"}}'),
        ("TF_CONFIG", '{"cluster": {}, "task": {"type": "boss"}}'),
        ("CLUSTER_SPEC", '{"cluster": {"workerpool0": ["a:1"]}}'),
    ],
)
def test_nonsense_is_named_with_its_variable(variable, text):
    with pytest.raises(InputError, match=f"{variable} can't be understood"):
        from_environment({variable: text})
