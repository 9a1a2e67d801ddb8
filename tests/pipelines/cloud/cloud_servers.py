"""Servers on this machine beside the emulator's; commands that call a server."""

import contextlib
import json
import socketserver
import tempfile
import threading
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.faulty_emulator import OpenEmulator
from vertex.emulator.api_error import ApiError
from vertex.emulator.artifact_registry import (
    REPOSITORY,
    ArtifactRegistry,
    parse_form,
    parse_multipart,
)
from vertex.emulator.buckets import FolderBuckets
from vertex.emulator.cloud_storage import CloudStorage

COMMANDS = [
    *("status", "status one", "logs one", "cancel one", "run digits --detach", "promote digits"),
    *("schedule list", "schedule apply digits", "schedule pause digits", "clean --older-than 1d"),
]


class RegistryServer(OpenEmulator):
    """Artifact Registry; `requests` holds tags and versions."""

    def __init__(self):
        registry = ArtifactRegistry()
        self.packages = registry.packages
        super().__init__(registry)

    @property
    def repository(self):
        return f"{self.url}{REPOSITORY}"

    def noted(self, name, request):
        if name == "Upload":
            return parse_form(request)["tags"].decode().split(",")
        named = request.match.groupdict()
        return named.get("version") or named.get("tag") or request.query["tagId"]


class StorageServer(OpenEmulator):
    """Cloud Storage; `requests` holds names of objects."""

    def __init__(self):
        self.fields_of_a_bucket = {}
        self._temporary = tempfile.TemporaryDirectory()
        self.buckets = FolderBuckets(Path(self._temporary.name, "buckets"))
        self.buckets.make("bucket")
        self.service = CloudStorage(self.buckets)
        super().__init__(self.service)

    def __exit__(self, *error):
        super().__exit__(*error)
        self._temporary.cleanup()

    def call(self, name, function, request):
        answer = super().call(name, function, request)
        return {**answer, **self.fields_of_a_bucket} if name == "GetBucket" else answer

    def noted(self, name, request):
        if name == "InsertObject" and request.query.get("uploadType") == "multipart":
            return json.loads(parse_multipart(request)[0].get_payload(decode=True))["name"]
        named = request.match.groupdict()
        return named.get("name") or request.query.get("prefix", named.get("bucket"))


class TokenServer(OpenEmulator):
    """OAuth's token endpoint, which refuses every account."""

    routes = (("POST", "/token", "Refresh"),)

    def __init__(self):
        super().__init__(self)

    def noted(self, name, request):
        return None

    def refresh(self, request):
        raise ApiError("invalid_grant", "Token has been expired or revoked.", 400)


def write_key(path, token_uri):
    """Write the key of a service account, whose tokens are from `token_uri`; return its path."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = {
        "type": "service_account",
        "client_email": "trainer@my-project.iam.gserviceaccount.com",
        "private_key": key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ).decode(),
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(account))
    return str(path)


@contextlib.contextmanager
def expired_sign_in(folder):
    """Yield the path of a service account's key, which is refused while the block lasts."""
    with TokenServer() as server:
        yield write_key(folder / "expired.json", f"{server.url}/token")


@contextlib.contextmanager
def tcp_server(handle):
    """Call handle(socket) for each connection while the block lasts; yield HOST:PORT."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            handle(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
