"""Read TF_CONFIG: the roles of this replica and of the others; check that a strategy fits them.

Vertex AI sets TF_CONFIG on each replica of a job with several replicas, with the keys chief, worker
and ps (older images use master for chief), but not on a single replica. Outside Vertex AI it often
has no chief: then worker 0 is the chief.
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/training/distributed-training
"""

import dataclasses
import json
from collections.abc import Mapping

from vertex.errors import InputError

ROLES = ("chief", "worker", "ps", "evaluator")
"""Role of each worker pool, by position in worker_pool_specs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """This replica, and the others."""

    role: str = "chief"  # one of ROLES
    index: int = 0  # index of this replica in its role, from 0
    # "host:port" of each replica, by role, without evaluators; empty for a single replica.
    addresses: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    has_evaluator: bool = False

    @property
    def trainers(self) -> int:
        """Return the number of replicas that compute gradients: the chief and the workers."""
        hosts = [*self.addresses.get("chief", []), *self.addresses.get("worker", [])]
        return max(1, len(hosts))

    @property
    def is_chief(self) -> bool:
        """Return whether this is the replica that writes the model, checkpoints and logs."""
        if self.role == "worker":
            return "chief" not in self.addresses and self.index == 0
        return self.role == "chief"

    @property
    def trainer_index(self) -> int:
        """Return the position among the replicas that compute gradients; the chief is first."""
        chiefs = self.addresses.get("chief", [])
        return len(chiefs) + self.index if self.role == "worker" else self.index

    @property
    def name(self) -> str:
        return f"{self.role} {self.index}"


def from_environment(environment: Mapping[str, str], evaluator_pool: int = 0) -> Cluster:
    """Read TF_CONFIG; if it is not set, return a cluster of a single replica.

    `evaluator_pool` is the position of the evaluator's worker pool; 0: there is no evaluator.
    Without parameter servers, TF_CONFIG calls the evaluator a worker or a ps, by this position.
    """
    text = environment.get("TF_CONFIG", "")
    try:
        cluster = _parse(text) if text else Cluster()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"TF_CONFIG can't be parsed ({error!r}): {text[:200]}; it must be JSON with "
            "the keys cluster and task"
        ) from None
    if not evaluator_pool:
        return cluster
    pool_role = ROLES[evaluator_pool]
    addresses = {role: hosts for role, hosts in cluster.addresses.items() if role != pool_role}
    return dataclasses.replace(
        cluster,
        role="evaluator" if cluster.role == pool_role else cluster.role,
        addresses=addresses if sum(map(len, addresses.values())) > 1 else {},
        has_evaluator=True,
    )


def _parse(text: str) -> Cluster:
    config = json.loads(text)
    addresses = {
        "chief" if role == "master" else role: list(hosts)
        for role, hosts in config.get("cluster", {}).items()
    }
    task = config.get("task", {})
    role = "chief" if task.get("type") in (None, "master") else task["type"]
    index = int(task.get("index", 0))
    if role not in ROLES:
        raise ValueError(f"task type {role!r} is not one of {', '.join(ROLES)}")
    if addresses and role != "evaluator" and index >= len(addresses[role]):
        raise ValueError(f"task index {index}, but {len(addresses[role])} replicas of {role!r}")
    if len(addresses.get("chief", [])) > 1:
        raise ValueError(f"{len(addresses['chief'])} chiefs")
    return Cluster(role=role, index=index, addresses=addresses)


def check_strategy(
    strategy: str, replicas: Mapping[str, int], accelerator_count: int = 0, *, xla: bool = False
) -> None:
    """Raise InputError if a strategy does not fit the replicas, whose numbers are by role."""
    servers = replicas.get("ps", 0)
    trainers = replicas.get("chief", 0) + replicas.get("worker", 0)
    fits = not servers and (trainers < 2 or strategy not in ("one_device", "mirrored"))
    if strategy in ("auto", "parameter_server"):
        fits = all(replicas.get(role) for role in ("chief", "worker", "ps"))
        fits = fits or (strategy == "auto" and not servers)
    if not fits:
        listed = ", ".join(f"{count} {role}" for role, count in replicas.items() if count)
        raise InputError(
            f"strategy={strategy!r} does not fit the replicas ({listed or 'a single one'}): "
            "parameter_server needs a chief, workers and parameter servers, which no other "
            "strategy uses, and one_device and mirrored train on one replica; set strategy='auto', "
            "or change worker_count or ps_count"
        )
    if servers and accelerator_count > 1:
        raise InputError(
            f"strategy={strategy!r} with ps_count={servers} and accelerator_count="
            f"{accelerator_count}: with parameter servers, a worker uses only one accelerator; set "
            "accelerator_count=1 and a larger worker_count"
        )
    if xla and servers:
        raise InputError("xla=true can't be used with parameter servers; set xla=false")
