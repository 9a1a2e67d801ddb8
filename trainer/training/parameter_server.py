"""Workers and parameter servers: what serves the chief of an asynchronous run.

They serve until they are shut down, as Vertex AI does once the chief is done. What the chief
has them do: trainer/training/asynchronous.py.
"""

import multiprocessing
from typing import NoReturn

import tensorflow as tf

from trainer.training.cluster import Cluster


def serve(cluster: Cluster) -> NoReturn:
    """Serves as a worker or as a parameter server, until the process is ended."""
    # One accelerator is what a worker's step computes on.
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[:1] if cluster.role == "worker" else [], "GPU")
    options = tf.compat.v1.ConfigProto()
    # Each worker may hold a thread in a blocking call; fewer threads than that never end.
    threads = len(cluster.addresses["worker"]) + 1
    options.inter_op_parallelism_threads = max(threads, multiprocessing.cpu_count())
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster.addresses),
        job_name=cluster.role,
        task_index=cluster.index,
        protocol="grpc",
        config=options,
    )
    print(f"{cluster.name} serves at {cluster.addresses[cluster.role][cluster.index]}", flush=True)
    server.join()
    raise AssertionError("a server never returns")
