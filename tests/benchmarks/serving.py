"""Compare the server's answers to 16 clients with TensorFlow's own batched call, on the same cores.

Clients send a photo a request, or 64 rows; the call gets the same instances, decoded from JSON and
base64 before, in batches of 64. Clients are a process of this machine and take their share of it.
"""

import json
import multiprocessing
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

from tests import tables
from tests.benchmarks.measuring import Row
from tests.benchmarks.photos import write_photos
from tests.small_records import write_records
from tests.trainer.serving.serving_processes import b64, serve
from trainer.data.schema import Dataset
from trainer.exported.export import export
from trainer.models import open_model_for
from trainer.serving.instances import BATCH, BYTES, DEFAULT

CLIENTS = 16
SECONDS = 2.0
ROUNDS = 5
SIZE = 224
PHOTOS = 64
Case = tuple[str, list[list[Any]], str, dict[str, tf.Tensor]]
"""A model's URI, requests, the signature that answers them, and the same as its input."""


def rows() -> list[Row]:
    """Compare instances a second, and a core second, of three kinds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *_measured("photos", *_photos(folder)),
            *_measured("requests of 64 rows", *_rows(folder)),
            *_measured("requests of 64 digits as lists", *_digits(folder)),
        ]


def _exported(dataset: Dataset, model: str, **options: Any) -> str:
    uri = f"{dataset.uri}-model"
    export(open_model_for(model, dataset, options).build(dataset), dataset, uri)
    return uri


def _photos(folder: Path) -> Case:
    write_photos(folder / "photos", PHOTOS)
    files = [path.read_bytes() for path in sorted((folder / "photos").glob("*/*.jpg"))]
    empty = np.zeros((2, SIZE, SIZE, 3), np.uint8), np.array([0, 1])
    dataset = write_records(folder / "images", {"train": [empty]}, ["cat", "dog"])
    options = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.25}, "weights": "none"}
    uri = _exported(dataset, "transfer", **options)
    return uri, [[b64(file)] for file in files], BYTES, {"image_bytes": tf.constant(files)}


def _digits(folder: Path) -> Case:
    pixels = np.random.default_rng(0).integers(0, 256, (BATCH, 28, 28, 1), np.uint8)
    shard = pixels, np.arange(BATCH) % 10
    dataset = write_records(folder / "digits", {"train": [shard]}, [str(n) for n in range(10)])
    uri = _exported(dataset, "small_cnn")
    _, inputs = tf.saved_model.load(uri).signatures[DEFAULT].structured_input_signature
    return uri, [pixels.tolist()], DEFAULT, {name: tf.constant(pixels) for name in inputs}


def _rows(folder: Path) -> Case:
    uri = _exported(tables.records(folder / "table", 2000), "wide_and_deep")
    instances = [
        {"miles": number / 7, "hour": number % 24, "payment": "card", "Zone Id": str(number % 17)}
        for number in range(BATCH)
    ]
    inputs = {
        "miles": tf.constant([one["miles"] for one in instances], tf.float32),
        "hour": tf.constant([one["hour"] for one in instances], tf.int64),
        "payment": tf.constant(["card"] * BATCH),
        "company": tf.constant([""] * BATCH),
        "Zone_Id": tf.constant([one["Zone Id"] for one in instances]),
    }
    return uri, [instances], DEFAULT, inputs


def _measured(what: str, uri: str, requests: list, signature: str, inputs: dict) -> list[Row]:
    call = tf.saved_model.load(uri).signatures[signature]
    bodies = [json.dumps({"instances": one}).encode() for one in requests]
    served, called, latencies = [], [], []
    spawned = multiprocessing.get_context("spawn")
    with serve(uri) as server, spawned.Pool(1) as clients:
        process = psutil.Process(server.process.pid)
        processes = [process, *process.children()]
        for turn in range(1 + ROUNDS):  # The first warms up.
            called.append(_called(call, inputs))
            before = _core_seconds(processes)
            took, seconds = clients.apply(ask_at_once, (server.port, bodies, SECONDS))
            cores = _core_seconds(processes) - before
            count = len(took) * len(requests[0])
            served.append((count / seconds, count / cores))
            latencies += took if turn else []
    mine, theirs = np.array(served[1:]), np.array(called[1:])
    ratio, work_ratio = np.median(mine / theirs, axis=0)
    (speed, work), (called_speed, called_work) = np.median(mine, 0), np.median(theirs, 0)
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    figures = f"{speed:,.0f} / {called_speed:,.0f} instances/s; p50 {p50:.0f} ms, p99 {p99:.0f} ms"
    work_figures = f"{work:,.0f} / {called_work:,.0f} instances a core second"
    name = f"serving {what} to {CLIENTS} clients / TensorFlow's batched call"
    return [
        (name, ratio, 0.6, figures),
        (f"the same by core seconds of server and call, {what}", work_ratio, 0.6, work_figures),
    ]


def _core_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _called(call: Any, inputs: dict[str, tf.Tensor]) -> tuple[float, float]:
    """Return the instances of a signature a second, and a core second."""
    count, started, before = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - started < SECONDS:
        count += len(call(**inputs)["label"].numpy())
    return count / (time.perf_counter() - started), count / (time.process_time() - before)


def ask_at_once(port: int, bodies: list[bytes], seconds: float) -> tuple[list[float], float]:
    """Ask from `CLIENTS` threads, each on a connection of its own, until the time is over.

    Returns:
        Seconds that each answer took, and those that all took together.
    """
    took: list[float] = []
    head = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    requests = [(head % len(body)).encode() + body for body in bodies]
    start = time.perf_counter()

    def client(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            answers = connection.makefile("rb")
            while (sent := time.perf_counter()) - start < seconds:
                connection.sendall(requests[number % len(requests)])
                assert answers.readline().split()[1] == b"200"
                while (line := answers.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                answers.read(length)
                took.append(time.perf_counter() - sent)
                number += CLIENTS

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    return took, time.perf_counter() - start
