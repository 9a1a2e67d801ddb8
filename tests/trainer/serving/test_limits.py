"""Limits of a server in time, size and number, seen with a predictor that waits for the test."""

import asyncio
import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from trainer.serving import MAX_INSTANCES, prediction_server
from trainer.serving.batching import Batcher, QueueFullError
from trainer.serving.instances import Request, instances_of
from trainer.serving.prediction_server import PredictionServer
from trainer.serving.predictor import Answers, Predictor


class Waiting(Predictor):
    """Answers once `go` is set; `batches` are the numbers of requests in each call."""

    def __init__(self):
        super().__init__("waiting@1")
        self.go, self.entered, self.batches = threading.Event(), threading.Event(), []

    def decode(self, body):
        return json.loads(body)

    def preprocess(self, prediction_input):
        return Request([None] * len(instances_of(prediction_input)), [])

    def predict_together(self, requests):
        self.batches.append(len(requests))
        self.entered.set()
        assert self.go.wait(60)
        return [Answers(one.keys, [(b"a", [1.0, 1.0])] * len(one)) for one in requests]


@contextlib.contextmanager
def running(load):
    """A client of the application, with a pool of threads to ask from."""
    failed = []
    server = PredictionServer(load, failed=failed.append)
    application = server.application("/health", "/predict")
    with TestClient(application) as client, ThreadPoolExecutor(20) as pool:
        yield client, pool, failed


def wait_until_ready(client):
    while client.get("/health").status_code != 200:
        pass


def wait_until_it_has(requests, client):
    while client.app.routes[1].endpoint.__self__._requests < requests:
        pass


def ask(client, count=1):
    return client.post("/predict", json={"instances": [1] * count})


@contextlib.contextmanager
def busy():
    """A server whose predictor holds a first request until the test lets it go."""
    predictor = Waiting()
    with running(lambda: predictor) as (client, pool, _):
        wait_until_ready(client)
        first = pool.submit(ask, client)
        assert predictor.entered.wait(60)
        yield client, pool, predictor, first


@contextlib.contextmanager
def ready():
    """A client of a server that answers at once."""
    predictor = Waiting()
    predictor.go.set()
    with running(lambda: predictor) as (client, _, _):
        wait_until_ready(client)
        yield client


def test_health_and_predictions_are_refused_until_the_model_is_loaded():
    loaded, predictor = threading.Event(), Waiting()
    predictor.go.set()

    def load():
        assert loaded.wait(60)
        return predictor

    with running(load) as (client, _, failed):
        assert client.get("/health").status_code == 503
        assert ask(client).status_code == 503
        assert ask(client).headers["retry-after"] == "1"
        loaded.set()
        wait_until_ready(client)
        assert client.get("/health").json() == {"model_version": "waiting@1"}
        assert ask(client).json()["predictions"][0]["label"] == "a"
        assert not failed


def test_requests_that_wait_are_answered_together():
    with busy() as (client, pool, predictor, first):
        others = [pool.submit(ask, client) for _ in range(10)]
        wait_until_it_has(11, client)
        predictor.go.set()
        assert {one.result(60).status_code for one in [first, *others]} == {200}
    assert predictor.batches[0] == 1
    assert len(predictor.batches) < 5


def test_a_full_queue_refuses_what_comes_next(monkeypatch):
    monkeypatch.setattr(prediction_server, "CAPACITY", 100)
    with busy() as (client, pool, predictor, first):
        second = pool.submit(ask, client, 70)
        wait_until_it_has(2, client)
        refused = ask(client, 40)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "try again" in refused.json()["error"]
        predictor.go.set()
        assert len(second.result(60).json()["predictions"]) == 70
        assert first.result(60).status_code == 200
        assert ask(client, 40).status_code == 200


def test_more_requests_than_there_is_memory_for_are_refused_unread(monkeypatch):
    monkeypatch.setattr(prediction_server, "MAX_REQUESTS", 1)
    with busy() as (client, _, predictor, first):
        assert ask(client).status_code == 429
        assert client.get("/health").status_code == 200
        predictor.go.set()
        assert first.result(60).status_code == 200


def test_the_deadline_ends_a_wait_and_what_nobody_waits_for_is_not_run(monkeypatch):
    monkeypatch.setattr(prediction_server, "DEADLINE", 1.0)
    with busy() as (client, _, predictor, first):
        late = ask(client)
        assert late.status_code == first.result(60).status_code == 503
        assert "no answer within" in late.json()["error"]
        predictor.go.set()
        assert ask(client).status_code == 200
    assert predictor.batches == [1, 1]


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(prediction_server, "DEADLINE", 0.2)
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/predict", "headers": []}
    with running(Waiting) as (client, _, _):
        wait_until_ready(client)
        client.portal.call(client.app, scope, receive, send)
    assert sent[0]["status"] == 408
    assert b"to arrive" in sent[1]["body"]


def test_a_model_that_can_not_be_loaded_is_reported():
    def load():
        raise ValueError("no model")

    with running(load) as (client, _, failed):
        while not failed:
            assert client.get("/health").status_code == 503
    assert str(failed[0]) == "no model"


def test_an_error_of_the_server_is_no_fault_of_the_instances():
    class Broken(Waiting):
        def predict_together(self, requests):
            raise MemoryError

    with running(Broken) as (client, _, _):
        wait_until_ready(client)
        assert ask(client).status_code == 500
        assert ask(client).json() == {"error": "the server failed; its log says why"}
        assert client.get("/health").status_code == 200


def test_a_request_of_too_many_instances_names_the_bound():
    with ready() as client:
        most = MAX_INSTANCES
        assert ask(client, most).status_code == 200
        refused = ask(client, most + 1)
        assert (refused.status_code, refused.json()["error"]) == (
            400,
            "the request has 1,025 instances; send at most 1,024",
        )


def test_an_answer_over_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(prediction_server, "MAX_BYTES", 2000)
    with ready() as client:
        assert ask(client, 10).status_code == 200
        refused = ask(client, 100)
        assert refused.status_code == 400
        assert "send fewer than 100 instances" in refused.json()["error"]


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_limit_is_refused(declared, monkeypatch):
    monkeypatch.setattr(prediction_server, "MAX_BYTES", 100_000)
    body = b'{"instances": [%s]}' % (b" " * prediction_server.MAX_BYTES)
    with ready() as client:
        content = body if declared else iter([body[:1000], body[1000:]])
        refused = client.post("/predict", content=content)
        assert refused.status_code == 413
        assert client.post("/predict", content=b'{"instances": [1]}').status_code == 200


def test_bodies_at_a_time_have_a_limit_of_their_own(monkeypatch):
    monkeypatch.setattr(prediction_server, "MAX_BODIES", 3000)
    padded = b'{"instances": [1%s]}' % (b" " * 2000)
    with busy() as (client, pool, predictor, first):
        second = pool.submit(client.post, "/predict", content=padded)
        wait_until_it_has(2, client)
        while client.app.routes[1].endpoint.__self__._bytes < len(padded):
            pass
        refused = client.post("/predict", content=padded)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        predictor.go.set()
        assert {first.result(60).status_code, second.result(60).status_code} == {200}
        assert client.post("/predict", content=padded).status_code == 200


def test_a_batch_does_not_wait_once_it_is_full():
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
