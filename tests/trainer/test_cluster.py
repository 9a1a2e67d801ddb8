"""Which replica a process is, by TF_CONFIG as Vertex AI sets it."""

import json

import pytest

from trainer.errors import InputError
from trainer.training.cluster import from_environment


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
def test_a_tf_config_that_makes_no_sense_is_refused(text):
    with pytest.raises(InputError, match="TF_CONFIG can't be parsed"):
        from_environment({"TF_CONFIG": text})
