"""Run servers of trainer.serving as processes, and send them requests."""

import base64
import contextlib
import http.client
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import psutil
from PIL import Image

ROOT = Path(__file__).parents[3]
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


class Server:
    """A ready server.

    Attributes:
        url: of its predictions.
    """

    def __init__(self, process: Any, url: str) -> None:
        self.process, self.url = process, url
        self.port, self.route = urlsplit(url).port or 0, urlsplit(url).path

    def ask(self, instances: list[Any], **others: Any) -> tuple[int, Any]:
        """Send a request; return its status and the content of its answer."""
        return self.send("POST", self.route, json.dumps({"instances": instances, **others}))

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        with self.connection() as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
        kind = response.headers.get("content-type", "")
        return response.status, json.loads(content) if kind.endswith("json") else content

    @contextlib.contextmanager
    def connection(self) -> Iterator[http.client.HTTPConnection]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.timeout = 60
            yield connection

    def resident(self) -> int:
        """Return the bytes of memory that the process has."""
        return psutil.Process(self.process.pid).memory_info().rss


@contextlib.contextmanager
def serve(
    uri: str,
    folder: Path = ROOT,
    environment: Mapping[str, str] = MappingProxyType({}),
    prefix: Sequence[str] = (),
) -> Iterator[Server]:
    """Run `python -m trainer.serving` on the model at `uri` until the block ends.

    Args:
        folder: holds the package trainer.
        environment: beside ENVIRONMENT, or instead of it.
        prefix: of the command.
    """
    own = {"AIP_STORAGE_URI": uri, "PYTHONPATH": str(folder), **environment}
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "trainer.serving"],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT, **own},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith(f"serving {uri} at http://"), line
        yield Server(process, line.split()[-1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
