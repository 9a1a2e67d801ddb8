"""The tf.distribute strategy of a replica, and the devices that it spans."""

import json
import os
from collections.abc import Mapping

import tensorflow as tf

from trainer.errors import InputError
from trainer.training.cluster import Cluster

LOGICAL_CPUS = "LOGICAL_CPUS"
"""Environment variable with the number of devices that the CPU stands in for."""


def resolve(name: str, cluster: Cluster) -> str:
    """Return the strategy that `name` (a value of config.STRATEGIES) means for the cluster.

    Raises:
        InputError: it does not fit the replicas that there are.
    """
    if name == "auto":
        name = _automatic(cluster)
    servers = len(cluster.addresses.get("ps", []))
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


def _automatic(cluster: Cluster) -> str:
    """Return the strategy that suits the replicas, and the devices of a single one."""
    if cluster.addresses.get("ps"):
        return "parameter_server"
    if cluster.trainers > 1:
        return "multi_worker_mirrored"
    gpus = tf.config.list_physical_devices("GPU")
    (cpu,) = tf.config.list_physical_devices("CPU")
    divided = len(tf.config.get_logical_device_configuration(cpu) or ()) > 1
    return "mirrored" if gpus or divided else "one_device"


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


def check_accelerators(count: int, environment: Mapping[str, str]) -> None:
    """Checks that TensorFlow sees at least `count` GPUs, which are billed, used or not.

    Args:
        environment: LOGICAL_CPUS in it stands in for GPUs, on a machine that bills none.

    Raises:
        InputError: it sees fewer.
    """
    if environment.get(LOGICAL_CPUS):
        return
    seen = len(tf.config.list_physical_devices("GPU"))
    if seen < count:
        raise InputError(
            f"accelerator_count={count}, but TensorFlow sees {seen} GPUs; set gpu_image_uri to "
            "the image for GPUs, or accelerator_count=0"
        )


def barrier(strategy: tf.distribute.Strategy) -> None:
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
    """Return the value of config.STRATEGIES for `strategy`, whose class has an older name."""
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
    """Return all GPUs (None lets TensorFlow find them), or else all logical CPUs."""
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
