"""Which replica this process is: TF_CONFIG or CLUSTER_SPEC to role, chief and strategy.

Vertex AI sets TF_CONFIG on each replica of a job with several, with the keys chief, worker
and ps (in older images master stands for chief); on a single replica it sets none. It sets
CLUSTER_SPEC, by worker pool, on every replica. Elsewhere TF_CONFIG often has no chief: then
worker 0 is the chief.
https://cloud.google.com/vertex-ai/docs/training/distributed-training
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.errors import InputError

LOGICAL_CPUS = "LOGICAL_CPUS"
"""Environment variable with the number of devices that the CPU stands in for."""

_POOL_ROLES = ("chief", "worker", "ps", "evaluator")


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
    there = _POOL_ROLES[evaluator_pool]
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
        _POOL_ROLES[int(pool.removeprefix("workerpool"))]: list(hosts)
        for pool, hosts in spec["cluster"].items()
    }
    addresses.pop("evaluator", None)
    role = _POOL_ROLES[int(spec["task"]["type"].removeprefix("workerpool"))]
    if sum(map(len, addresses.values())) == 1:
        addresses = {}
    return _checked(role, int(spec["task"]["index"]), addresses)


def _checked(role: str, index: int, addresses: dict[str, list[str]]) -> Cluster:
    if role not in _POOL_ROLES:
        raise ValueError(f"task type {role!r} is none of {', '.join(_POOL_ROLES)}")
    if addresses and role != "evaluator" and index >= len(addresses[role]):
        raise ValueError(f"task index {index}, but {len(addresses[role])} replicas of {role!r}")
    if len(addresses.get("chief", [])) > 1:
        raise ValueError(f"{len(addresses['chief'])} chiefs")
    return Cluster(role=role, index=index, addresses=addresses)


def resolve(name: str, cluster: Cluster) -> str:
    """The strategy that `name` (a value of config.STRATEGIES) means for the cluster.

    Raises:
        InputError: it does not fit the replicas that there are.
    """
    servers = len(cluster.addresses.get("ps", []))
    if name == "auto":
        if servers:
            name = "parameter_server"
        elif cluster.trainers > 1:
            name = "multi_worker_mirrored"
        else:
            gpus = tf.config.list_physical_devices("GPU")
            (cpu,) = tf.config.list_physical_devices("CPU")
            divided = len(tf.config.get_logical_device_configuration(cpu) or ()) > 1
            name = "mirrored" if gpus or divided else "one_device"
    if name == "parameter_server":
        for role, words in (
            ("chief", "a chief"),
            ("worker", "worker_count of at least 1"),
            ("ps", "ps_count of at least 1"),
        ):
            if not cluster.addresses.get(role):
                raise InputError(
                    f"strategy='parameter_server' needs {words}, but the cluster has no {role}"
                )
    elif servers:
        raise InputError(
            f"strategy={name!r} has no use for parameter servers, but the job has {servers}; "
            "use parameter_server, or ps_count=0"
        )
    elif name != "multi_worker_mirrored" and cluster.trainers > 1:
        raise InputError(
            f"strategy={name!r} trains on one replica, but the job has {cluster.trainers}; use "
            "multi_worker_mirrored, or worker_count=0"
        )
    return name


def create_strategy(name: str, cluster: Cluster) -> tf.distribute.Strategy:
    """Creates the tf.distribute strategy `name` (a value of config.STRATEGIES).

    Must run before any other TensorFlow operation of the process where the strategy spans
    several replicas, and returns only when all of them have been reached.

    Raises:
        InputError: the strategy does not fit the replicas that there are.
    """
    name = resolve(name, cluster)
    if name == "one_device":
        gpus = tf.config.list_physical_devices("GPU")
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    if name == "mirrored":
        return tf.distribute.MirroredStrategy(_local_devices())
    if name == "parameter_server":
        return tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(cluster.addresses), task_type="chief", task_id=0
            )
        )
    return _multi_worker_mirrored(cluster)


def divide_cpu(environment: Mapping[str, str]) -> None:
    """Makes as many devices of the CPU as LOGICAL_CPUS says, where there is no GPU.

    Not Vertex AI sets it, but a run on a machine without the accelerators that it asks for:
    MirroredStrategy then spans as many devices as it would there. Must run before any
    other TensorFlow operation of the process.

    Raises:
        InputError: it is not a number above 0.
    """
    text = environment.get(LOGICAL_CPUS, "")
    if not text or tf.config.list_physical_devices("GPU"):
        return
    if not text.isdecimal() or not int(text):
        raise InputError(f"{LOGICAL_CPUS}={text!r} is not a number of devices, such as 2")
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * int(text)
    )


def meet(strategy: tf.distribute.Strategy) -> None:
    """Returns when every worker of a multi-worker job has called this; else at once."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return

    @tf.function
    def sum_up() -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones([]))

    total = strategy.run(sum_up)
    strategy.experimental_local_results(total)[0].numpy()


def name_of(strategy: tf.distribute.Strategy) -> str:
    """The value of config.STRATEGIES that stands for `strategy`; its classes go by older names."""
    for name, cls in (
        ("one_device", tf.distribute.OneDeviceStrategy),
        ("mirrored", tf.distribute.MirroredStrategy),
        ("multi_worker_mirrored", tf.distribute.MultiWorkerMirroredStrategy),
        ("parameter_server", tf.distribute.ParameterServerStrategy),
    ):
        if isinstance(strategy, cls):
            return name
    return type(strategy).__name__


def _local_devices() -> list[str] | None:
    """All GPUs (None lets TensorFlow find them), or else all logical CPUs."""
    if tf.config.list_physical_devices("GPU"):
        return None
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def _multi_worker_mirrored(cluster: Cluster) -> tf.distribute.Strategy:
    # TensorFlow reads the variable by itself, and would count an evaluator among the workers.
    os.environ.pop("TF_CONFIG", None)
    if cluster.addresses:
        os.environ["TF_CONFIG"] = json.dumps(
            {
                "cluster": cluster.addresses,
                "task": {"type": cluster.role, "index": cluster.index},
            }
        )
    return tf.distribute.MultiWorkerMirroredStrategy()
