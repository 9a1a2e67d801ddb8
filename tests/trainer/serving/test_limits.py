"""Test a server's limits of time, size and number with a predictor that waits for the test."""

import asyncio
import contextlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from starlette.testclient import TestClient

from trainer import process_pool
from trainer.serving import prediction_server
from trainer.serving.batching import Batcher, QueueFullError
from trainer.serving.instances import FILES, Request, SignatureInstances, instances_of
from trainer.serving.prediction_server import PredictionServer
from trainer.serving.predictor import Predictor, RequestPredictions


class Waiting(Predictor):
    """Answer once `go` is set.

    `accepted` is the number of requests within the limits so far, `batches` those in each call.
    """

    def __init__(self, waits=True):
        super().__init__("waiting@1")
        self.go, self.entered = threading.Event(), threading.Event()
        self.accepted, self.batches = 0, []
        if not waits:
            self.go.set()

    def decode(self, body):
        return json.loads(body)

    def parse(self, prediction_input):
        self.accepted += 1
        return Request([None] * len(instances_of(prediction_input)), [])

    def predict_together(self, requests):
        self.batches.append(len(requests))
        self.entered.set()
        assert self.go.wait(60)
        return [
            RequestPredictions(
                request.keys, [{"label": "a", "probabilities": [1.0, 1.0]}] * len(request)
            )
            for request in requests
        ]


@contextlib.contextmanager
def running(load):
    """Yield a client of the application, a pool of threads to ask from, and failures."""
    failed = []
    server = PredictionServer(load, failed=failed.append)
    application = server.build_application("/health", "/predict")
    with TestClient(application) as client, ThreadPoolExecutor(20) as pool:
        yield client, pool, failed


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still false after {seconds} s"
        time.sleep(0.01)


def wait_until_ready(client):
    wait_until(lambda: client.get("/health").status_code == 200)


def body(count=1, padding=0):
    return json.dumps({"instances": [1] * count}).encode() + b" " * padding


def ask(client, count=1, padding=0, has_length=True):
    content = body(count, padding)
    return client.post("/predict", content=content if has_length else iter([content]))


@contextlib.contextmanager
def loaded(predictor):
    """Yield a client of a server that has loaded its model, and a pool of threads."""
    with running(lambda: predictor) as (client, pool, _):
        wait_until_ready(client)
        yield client, pool


@contextlib.contextmanager
def busy():
    """Yield a server whose predictor holds a first request until `go` is set."""
    predictor = Waiting()
    with loaded(predictor) as (client, pool):
        first = pool.submit(ask, client)
        assert predictor.entered.wait(60)
        yield client, pool, predictor, first


def test_server_is_unavailable_until_the_model_is_loaded():
    ended = threading.Event()

    def load():
        assert ended.wait(60)
        return Waiting(waits=False)

    with running(load) as (client, _, failed):
        assert client.get("/health").status_code == 503
        assert ask(client).status_code == 503
        assert ask(client).headers["retry-after"] == "1"
        ended.set()
        wait_until_ready(client)
        assert client.get("/health").json() == {"model_version": "waiting@1"}
        assert ask(client).json()["predictions"][0]["label"] == "a"
        assert not failed


def test_waiting_requests_are_answered_together():
    with busy() as (client, pool, predictor, first):
        others = [pool.submit(ask, client) for _ in range(10)]
        wait_until(lambda: predictor.accepted == 11)
        predictor.go.set()
        assert {request.result(60).status_code for request in [first, *others]} == {200}
    assert predictor.batches[0] == 1
    assert len(predictor.batches) < 5


@pytest.mark.parametrize(
    ("limit", "value", "second", "third", "words"),
    [
        ("CAPACITY", 100, (70,), (40,), "too many instances are waiting; try again"),
        ("MAX_REQUESTS", 2, (1,), (1,), "2 requests are being answered; try again"),
        ("MAX_BODIES", 3000, (1, 2000), (1, 2000), "take too much memory; try again"),
    ],
)
def test_requests_over_a_limit_are_refused(monkeypatch, limit, value, second, third, words):
    monkeypatch.setattr(prediction_server, limit, value)
    with busy() as (client, pool, predictor, first):
        waiting = pool.submit(ask, client, *second)
        wait_until(lambda: predictor.accepted == 2)
        refused = ask(client, *third)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert words in refused.json()["error"]
        assert client.get("/health").status_code == 200
        predictor.go.set()
        assert len(waiting.result(60).json()["predictions"]) == second[0]
        assert first.result(60).status_code == 200
        assert ask(client, *third).status_code == 200


def test_deadline_ends_a_wait_and_cancels_the_request(monkeypatch):
    monkeypatch.setattr(prediction_server, "DEADLINE", 1.0)
    with busy() as (client, _, predictor, first):
        late = ask(client)
        assert late.status_code == first.result(60).status_code == 503
        assert "no answer within" in late.json()["error"]
        predictor.go.set()
        assert ask(client).status_code == 200
    assert predictor.batches == [1, 1]


def test_model_that_computes_for_too_long_is_unhealthy(monkeypatch):
    with busy() as (client, _, predictor, first):
        assert client.get("/health").status_code == 200
        monkeypatch.setattr(prediction_server, "DEADLINE", 0.0)
        unhealthy = client.get("/health")
        assert (unhealthy.status_code, unhealthy.json()["error"][:18]) == (
            503,
            "the model computes",
        )
        predictor.go.set()
        first.result(60)
        wait_until_ready(client)


def test_decoder_that_does_not_start_is_status_503(monkeypatch):
    def start(_):
        raise OSError

    monkeypatch.setattr(process_pool, "start_process", start)
    predictor = Waiting(waits=False)
    predictor.decode_files = print
    with running(lambda: predictor) as (client, _, _):
        loading = {"error": "the model is not loaded yet"}
        wait_until(lambda: client.get("/health").json() != loading)
        assert client.get("/health").json() == {"error": "a process that decodes images has ended"}
        part = SignatureInstances(FILES, [0], {FILES: np.array([b"file"], object)})
        predictor.parse = lambda _: Request([None], [part])
        refused = ask(client)
        assert refused.status_code == 503
        assert "no process that decodes images starts" in refused.json()["error"]


def test_body_that_does_not_arrive_times_out(monkeypatch):
    monkeypatch.setattr(prediction_server, "DEADLINE", 0.2)
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}
    with loaded(Waiting()) as (client, _):
        client.portal.call(client.app, scope, receive, send)
    assert sent[0]["status"] == 408
    assert b"to arrive" in sent[1]["body"]


def test_model_that_fails_to_load_is_reported():
    def load():
        raise ValueError("no model")

    with running(load) as (client, _, failed):
        while not failed:
            assert client.get("/health").status_code == 503
    assert str(failed[0]) == "no model"


def test_error_of_the_predictor_is_status_500():
    class Broken(Waiting):
        def predict_together(self, requests):
            raise MemoryError

    with loaded(Broken()) as (client, _):
        assert ask(client).status_code == 500
        assert ask(client).json() == {"error": "the server failed; see its log"}
        assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("max_bytes", "largest", "too_large", "status", "words"),
    [
        (10**6, (1024,), (1025,), 400, "the request has 1,025 instances; send at most 1,024"),
        (2000, (10,), (100,), 400, "send fewer than 100 instances"),
        (9000, (1, 8900), (1, 8990), 413, "the request has more than 9,000 bytes"),
        (9000, (1, 8900), (1, 8990, False), 413, "the request has more than 9,000 bytes"),
    ],
)
def test_too_large_request_is_refused(monkeypatch, max_bytes, largest, too_large, status, words):
    monkeypatch.setattr(prediction_server, "MAX_BYTES", max_bytes)
    with loaded(Waiting(waits=False)) as (client, _):
        assert ask(client, *largest).status_code == 200
        refused = ask(client, *too_large)
        assert refused.status_code == status
        assert words in refused.json()["error"]
        assert ask(client).status_code == 200


def test_full_batch_does_not_wait():
    async def main():
        sizes = []

        def run(items):
            sizes.append(len(items))
            return [item * 2 for item in items]

        batcher = Batcher(run, limit=4, delay=60, capacity=8)
        results = [asyncio.create_task(batcher.submit(number, 1)) for number in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError):
            await batcher.submit(8, 1)
        working = asyncio.create_task(batcher.work())
        assert await asyncio.gather(*results) == [0, 2, 4, 6, 8, 10, 12, 14]
        assert sizes == [4, 4]
        working.cancel()

    asyncio.run(asyncio.wait_for(main(), 30))
