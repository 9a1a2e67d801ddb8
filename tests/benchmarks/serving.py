"""The server's answers to 16 clients against TensorFlow's own batched call, on the same cores.

Clients send a photo a request, or 64 rows; the call gets the same instances, decoded from JSON and
base64 before, in batches of 64. Clients are a process of this machine and take their share of it.
"""

import base64
import http.client
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests import tables
from tests.benchmarks.photos import write_photos
from tests.records import write_records
from tests.trainer.serving.servers import Server, serve
from trainer.models import build_model
from trainer.serving.instances import BATCH, BYTES, DEFAULT
from trainer.training.export import export

CLIENTS = 16
SECONDS = 5.0
ROUNDS = 3
SIZE = 224
PHOTOS = 64


def rows() -> list[tuple[str, float, float, str]]:
    """(what, ratio, goal, figures)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            _measured("photos", 0.6, *_photos(folder)),
            _measured("requests of 64 rows", 0.6, *_rows(folder)),
        ]


def _photos(folder: Path) -> tuple[str, list[list[Any]], str, dict[str, tf.Tensor]]:
    """A model's URI, requests, the signature that answers them, and the same as its input."""
    write_photos(folder / "photos", PHOTOS)
    files = [path.read_bytes() for path in sorted((folder / "photos").glob("*/*.jpg"))]
    empty = np.zeros((2, SIZE, SIZE, 3), np.uint8), np.array([0, 1])
    dataset = write_records(folder / "images", {"train": [empty]}, ["cat", "dog"])
    options = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.25}, "weights": "none"}
    uri = str(folder / "photo-model")
    export(build_model("transfer", dataset, options), dataset, uri)
    requests = [[{"b64": base64.b64encode(file).decode()}] for file in files]
    return uri, requests, BYTES, {"image_bytes": tf.constant(files)}


def _rows(folder: Path) -> tuple[str, list[list[Any]], str, dict[str, tf.Tensor]]:
    dataset = tables.records(folder / "table", 2000)
    uri = str(folder / "row-model")
    export(build_model("wide_and_deep", dataset, {}), dataset, uri)
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


def _measured(
    what: str,
    goal: float,
    uri: str,
    requests: list[list[Any]],
    signature: str,
    inputs: dict[str, tf.Tensor],
) -> tuple[str, float, float, str]:
    model = tf.saved_model.load(uri)
    call = model.signatures[signature]
    bodies = [json.dumps({"instances": one}).encode() for one in requests]
    served, called, latencies = [], [], []
    with serve(uri) as server:
        _served(server, bodies, 1.0)
        call(**inputs)
        for _ in range(ROUNDS):
            called.append(_called(call, inputs))
            took, seconds = _served(server, bodies, SECONDS)
            served.append(len(took) * len(requests[0]) / seconds)
            latencies += took
    p50, p99 = np.percentile(latencies, [50, 99]) * 1000
    mine, theirs = statistics.median(served), statistics.median(called)
    return (
        f"serving {what} to {CLIENTS} clients / TensorFlow's batched call",
        statistics.median(a / b for a, b in zip(served, called, strict=True)),
        goal,
        f"{mine:,.0f} / {theirs:,.0f} instances/s; p50 {p50:.0f} ms, p99 {p99:.0f} ms",
    )


def _called(call: Any, inputs: dict[str, tf.Tensor]) -> float:
    """Instances/s of a signature."""
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        count += len(call(**inputs)["label"].numpy())
    return count / (time.perf_counter() - started)


def _served(server: Server, bodies: list[bytes], seconds: float) -> tuple[list[float], float]:
    """Seconds that each answer took, and those that all took together."""
    spawned = multiprocessing.get_context("spawn")
    with spawned.Pool(1) as pool:
        return pool.apply(ask_at_once, (server.port, bodies, seconds))


def ask_at_once(port: int, bodies: list[bytes], seconds: float) -> tuple[list[float], float]:
    """Ask from `CLIENTS` threads, each on a connection of its own, until the time is over."""
    took: list[float] = []
    start = time.perf_counter()

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while (sent := time.perf_counter()) - start < seconds:
            connection.request("POST", "/predict", bodies[number % len(bodies)])
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            took.append(time.perf_counter() - sent)
            number += CLIENTS

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, time.perf_counter() - start
