"""Read TF_CONFIG or CLUSTER_SPEC: this replica's role, and the others'.

Vertex AI sets TF_CONFIG on each replica of a job with several, with the keys chief, worker
and ps (in older images master stands for chief); on a single replica it sets none. It sets
CLUSTER_SPEC, by worker pool, on every replica. Elsewhere TF_CONFIG often has no chief: then
worker 0 is the chief.
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from trainer.errors import InputError
from trainer.machines.worker_pools import ROLES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """This replica, and the others.

    Attributes:
        role: "chief", "worker", "ps" or "evaluator".
        index: of this replica among those of its role, from 0.
        addresses: by role, "host:port" of each replica; empty for a single one, and never
            an evaluator's.
        has_evaluator: whether an evaluator scores the checkpoints.
    """

    role: str = "chief"
    index: int = 0
    addresses: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    has_evaluator: bool = False

    @property
    def trainers(self) -> int:
        """Replicas that compute gradients: the chief and the workers."""
        return max(1, len(self.addresses.get("chief", [])) + len(self.addresses.get("worker", [])))

    @property
    def is_chief(self) -> bool:
        """True for the one replica that writes model, checkpoints and logs."""
        if self.role == "worker":
            return "chief" not in self.addresses and self.index == 0
        return self.role == "chief"

    @property
    def trainer_index(self) -> int:
        """Position among the replicas that compute gradients, the chief first."""
        return self.index + (self.role == "worker") * len(self.addresses.get("chief", []))

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"


def from_environment(environment: Mapping[str, str], evaluator_pool: int = 0) -> Cluster:
    """Reads TF_CONFIG, else CLUSTER_SPEC, else takes this process for a single replica.

    Args:
        environment: of the process.
        evaluator_pool: position of the evaluator's worker pool; 0: there is none. Without
            parameter servers it is not the place where Vertex AI knows evaluators: it then
            calls the evaluator a worker or a ps.

    Raises:
        InputError: either is not what Vertex AI or TensorFlow would set.
    """
    for variable, read in (("TF_CONFIG", _from_tf_config), ("CLUSTER_SPEC", _from_cluster_spec)):
        text = environment.get(variable, "")
        if not text:
            continue
        try:
            return _set_apart(read(json.loads(text)), evaluator_pool)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise InputError(
                f"{variable} can't be understood ({error!r}): {text[:200]}; it must be JSON with "
                "the keys cluster and task"
            ) from None
    return Cluster()


def _set_apart(cluster: Cluster, evaluator_pool: int) -> Cluster:
    """`cluster` without the evaluator among its addresses."""
    if not evaluator_pool:
        return cluster
    there = ROLES[evaluator_pool]
    addresses = {role: hosts for role, hosts in cluster.addresses.items() if role != there}
    return Cluster(
        role="evaluator" if cluster.role == there else cluster.role,
        index=cluster.index,
        addresses=addresses if sum(map(len, addresses.values())) > 1 else {},
        has_evaluator=True,
    )


def _from_tf_config(config: dict[str, Any]) -> Cluster:
    addresses = {
        "chief" if role == "master" else role: list(hosts)
        for role, hosts in config.get("cluster", {}).items()
    }
    task = config.get("task", {})
    role = "chief" if task.get("type") in (None, "master") else task["type"]
    return _checked(role, int(task.get("index", 0)), addresses)


def _from_cluster_spec(spec: dict[str, Any]) -> Cluster:
    addresses = {
        ROLES[int(pool.removeprefix("workerpool"))]: list(hosts)
        for pool, hosts in spec["cluster"].items()
    }
    addresses.pop("evaluator", None)
    role = ROLES[int(spec["task"]["type"].removeprefix("workerpool"))]
    if sum(map(len, addresses.values())) == 1:
        addresses = {}
    return _checked(role, int(spec["task"]["index"]), addresses)


def _checked(role: str, index: int, addresses: dict[str, list[str]]) -> Cluster:
    if role not in ROLES:
        raise ValueError(f"task type {role!r} is none of {', '.join(ROLES)}")
    if addresses and role != "evaluator" and index >= len(addresses[role]):
        raise ValueError(f"task index {index}, but {len(addresses[role])} replicas of {role!r}")
    if len(addresses.get("chief", [])) > 1:
        raise ValueError(f"{len(addresses['chief'])} chiefs")
    return Cluster(role=role, index=index, addresses=addresses)
