"""Create the tf.distribute strategy of a replica, and the devices that it spans."""

import json
import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from trainer.engine.cluster import Cluster, check_strategy
from vertex.errors import InputError

LOGICAL_CPUS = "LOGICAL_CPUS"
"""Environment variable with the number of logical devices into which the CPU is divided."""


def resolve(name: str, cluster: Cluster, *, xla: bool = False) -> str:
    """Return `name`, or the strategy that "auto" selects; raise InputError if it does not fit."""
    if name == "auto" and cluster.addresses.get("ps"):
        name = "parameter_server"
    elif name == "auto" and cluster.trainers > 1:
        name = "multi_worker_mirrored"
    elif name == "auto":
        gpus = tf.config.list_physical_devices("GPU")
        (cpu,) = tf.config.list_physical_devices("CPU")
        divided = len(tf.config.get_logical_device_configuration(cpu) or ()) > 1
        name = "mirrored" if gpus or divided else "one_device"
    replicas = {role: len(hosts) for role, hosts in cluster.addresses.items()}
    check_strategy(name, replicas, xla=xla)
    return name


def create_strategy(name: str, cluster: Cluster) -> tf.distribute.Strategy:
    """Create the tf.distribute strategy `name`.

    If the strategy spans several replicas, call this before any other TensorFlow operation in the
    process; it returns when all replicas have been reached.
    """
    name = resolve(name, cluster)
    gpus = tf.config.list_physical_devices("GPU")
    if name == "one_device":
        return tf.distribute.OneDeviceStrategy("/gpu:0" if gpus else "/cpu:0")
    if name == "mirrored":
        devices = tf.config.list_logical_devices("GPU" if gpus else "CPU")
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    if name == "parameter_server":
        return tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(cluster.addresses), task_type="chief", task_id=0
            )
        )
    # TensorFlow reads TF_CONFIG, and would count an evaluator as a worker.
    os.environ.pop("TF_CONFIG", None)
    if cluster.addresses:
        task = {"type": cluster.role, "index": cluster.index}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster.addresses, "task": task})
    # Without this, TensorFlow sums between hosts by a ring over gRPC.
    kinds = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=kinds.NCCL if gpus else kinds.AUTO
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def divide_cpu(environment: Mapping[str, str]) -> None:
    """Divide the CPU into LOGICAL_CPUS devices, if there is no GPU.

    The variable is set for runs on a machine without the job's accelerators, so that
    MirroredStrategy spans as many devices as on Vertex AI. Call this before any other TensorFlow
    operation.
    """
    count = int(environment.get(LOGICAL_CPUS, "0"))
    if not count or tf.config.list_physical_devices("GPU"):
        return
    (cpu,) = tf.config.list_physical_devices("CPU")
    devices = [tf.config.LogicalDeviceConfiguration()] * count
    tf.config.set_logical_device_configuration(cpu, devices)


def check_accelerators(count: int, environment: Mapping[str, str]) -> None:
    """Raise InputError if TensorFlow sees fewer GPUs than are billed, unless CPUs replace them."""
    if environment.get(LOGICAL_CPUS):
        return
    visible = len(tf.config.list_physical_devices("GPU"))
    if visible < count:
        raise InputError(
            f"accelerator_count={count}, but TensorFlow sees {visible} GPUs; set gpu_image_uri to "
            "the image for GPUs, or accelerator_count=0"
        )


def distribute(strategy: tf.distribute.Strategy, batches: tf.data.Dataset) -> Any:
    """Distribute the elements of `batches` to this worker's replicas.

    The number of steps is known, so the dataset is declared infinite. Otherwise, each step of a
    multi-worker job would begin with a collective operation that asks which workers still have
    data. A single CPU uses `batches` directly, because distribution takes as long as half a step of
    a small model.
    """
    devices = strategy.extended.worker_devices
    if len(devices) == 1 and "CPU:" in devices[0]:
        return batches
    infinite = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
    return strategy.distribute_datasets_from_function(lambda _: batches.apply(infinite))
