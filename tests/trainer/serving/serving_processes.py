"""Run servers of trainer.serving as processes, and send them requests."""

import base64
import contextlib
import functools
import http.client
import io
import json
import os
import sys
from types import MappingProxyType
from urllib.parse import urlsplit

import numpy as np
import psutil
from PIL import Image

from tests.child_processes import ROOT, started
from trainer.serving.predictor import Predictor

ENVIRONMENT = {
    "AIP_HTTP_PORT": "0",
    "AIP_HEALTH_ROUTE": "/health",
    "AIP_PREDICT_ROUTE": "/predict",
    "MODEL_VERSION": "model@7",
}


def b64(content: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(content).decode()}


def png(pixels: np.ndarray) -> bytes:
    """Return the file of an image [height, width, 1 or 3]."""
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(buffer, "PNG")
    return buffer.getvalue()


@functools.lru_cache(4)
def loaded(uri) -> Predictor:
    predictor = Predictor()
    predictor.load(uri)
    return predictor


def predicted(uri, instances) -> np.ndarray:
    """Return the probabilities of instances by a predictor in this process, [n, classes]."""
    predictor = loaded(uri)
    answers = predictor.predict(predictor.preprocess({"instances": instances}))
    predictions = predictor.postprocess(answers)["predictions"]
    return np.array([prediction["probabilities"] for prediction in predictions])


class Server:
    """A ready server; `url` is that of its predictions."""

    def __init__(self, process, url, errors=None):
        self.process, self.url, self.errors = process, url, errors
        self.port, self.route = urlsplit(url).port, urlsplit(url).path

    def ask(self, instances, **others):
        """Send a prediction request; return the status and the content of its answer."""
        return self.send("POST", self.route, json.dumps({"instances": instances, **others}))

    def send(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            response = connection.getresponse()
            content = response.read()
        kind = response.headers.get("content-type", "")
        return response.status, json.loads(content) if kind.endswith("json") else content

    def resident_bytes(self):
        return psutil.Process(self.process.pid).memory_info().rss


@contextlib.contextmanager
def serve(uri, folder=ROOT, environment=MappingProxyType({}), prefix=(), errors=None):
    """Run `python -m trainer.serving` on the model at `uri` until the block ends.

    `folder` holds the package trainer, `environment` overrides ENVIRONMENT, `prefix` is put
    before the command, and the file `errors` takes what the process writes to stderr.
    """
    variables = {"AIP_STORAGE_URI": uri, "PYTHONPATH": str(folder), **environment}
    command = [*prefix, sys.executable, "-m", "trainer.serving"]
    values = {**os.environ, **ENVIRONMENT, **variables}
    with contextlib.ExitStack() as stack:
        stderr = stack.enter_context(errors.open("w")) if errors else None
        process = stack.enter_context(started(command, cwd=folder, env=values, stderr=stderr))
        line = process.stdout.readline()
        assert line.startswith(f"serving {uri} at http://"), line
        yield Server(process, line.split()[-1], errors)
