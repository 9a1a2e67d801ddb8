"""A Model Registry on this machine: Vertex AI's REST API, whose models lie in a folder.

    with ModelRegistry(runs_directory / ".registry") as registry:
        os.environ.update(registry.environment)   # leads components and commands here

Requests are parsed and answered with Google's own protos.
"""

import http.server
import json
import pathlib
import re
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

from pipelines.emulator.model_store import ModelStore, RefusedError

FOLDER_NAME = ".registry"
_MODEL = r"(projects/[^/]+/locations/[^/]+/models/[^/:]+)"


class ModelRegistry:
    """Serves a folder's models on a port of 127.0.0.1; a context manager.

    Attributes:
        endpoint: http://127.0.0.1:port.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        store = ModelStore(directory)

        class Handler(_Handler):
            models = store

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.daemon = True

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead clients here."""
        return {"VERTEX_AI_ENDPOINT": self.endpoint, "VERTEX_AI_TRANSPORT": "rest"}

    def __enter__(self) -> "ModelRegistry":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request."""

    models: ModelStore
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def log_message(self, *_: Any) -> None:
        """Nothing: the clients tell what they ask for."""

    def _serve(self, verb: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) or b"{}"
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        try:
            self._check_sender()
            code, content = 200, answer(self.models, verb, path, body)
        except RefusedError as error:
            code = error.code
            content = {"error": {"code": code, "status": error.status, "message": str(error)}}
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _check_sender(self) -> None:
        """Refuses a page in this machine's browser, which can reach every port of it."""
        host = f"127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        if self.headers.get("Origin") or self.headers.get("Host") != host:
            raise RefusedError(403, "PERMISSION_DENIED", "this server is for processes alone")


def answer(models: ModelStore, verb: str, path: str, body: bytes) -> dict[str, Any]:
    """The JSON that answers a request; raises RefusedError."""
    for expected, pattern, method in _ROUTES:
        match = re.fullmatch(f"/v1/{pattern}", path)
        if match and verb == expected:
            return method(models, match[1], body)
    raise RefusedError(501, "UNIMPLEMENTED", f"{verb} {path} is not served on this machine")


def _upload(models: ModelStore, parent: str, body: bytes) -> dict[str, Any]:
    from google.cloud.aiplatform_v1 import types

    request = _parsed(types.UploadModelRequest, body)
    request.parent = parent
    response = models.upload(request)
    return _operation(f"{response.model}/operations/{response.model_version_id}", response)


def _get(models: ModelStore, name: str, _: bytes) -> dict[str, Any]:
    return _json(models.get(name))


def _list(models: ModelStore, parent: str, _: bytes) -> dict[str, Any]:
    return {"models": [_json(one) for one in models.models(parent)]}


def _list_versions(models: ModelStore, name: str, _: bytes) -> dict[str, Any]:
    return {"models": [_json(one) for one in models.versions(name)]}


def _merge_aliases(models: ModelStore, name: str, body: bytes) -> dict[str, Any]:
    from google.cloud.aiplatform_v1 import types

    request = _parsed(types.MergeVersionAliasesRequest, body)
    return _json(models.merge_aliases(name, list(request.version_aliases)))


def _delete_version(models: ModelStore, name: str, _: bytes) -> dict[str, Any]:
    models.delete_version(name)
    return _operation(f"{name.partition('@')[0]}/operations/0")


def _delete(models: ModelStore, name: str, _: bytes) -> dict[str, Any]:
    models.delete(name)
    return _operation(f"{name}/operations/0")


def _import_evaluation(models: ModelStore, parent: str, body: bytes) -> dict[str, Any]:
    from google.cloud.aiplatform_v1 import types

    request = _parsed(types.ImportModelEvaluationRequest, body)
    return _json(models.import_evaluation(parent, request.model_evaluation))


def _list_evaluations(models: ModelStore, parent: str, _: bytes) -> dict[str, Any]:
    return {"modelEvaluations": [_json(one) for one in models.evaluations(parent)]}


_ROUTES: tuple[tuple[str, str, Callable[[ModelStore, str, bytes], dict[str, Any]]], ...] = (
    ("POST", r"(projects/[^/]+/locations/[^/]+)/models:upload", _upload),
    ("GET", r"(projects/[^/]+/locations/[^/]+)/models", _list),
    ("GET", _MODEL, _get),
    ("DELETE", _MODEL, _delete),
    ("GET", f"{_MODEL}:listVersions", _list_versions),
    ("POST", f"{_MODEL}:mergeVersionAliases", _merge_aliases),
    ("DELETE", f"{_MODEL}:deleteVersion", _delete_version),
    ("POST", f"{_MODEL}/evaluations:import", _import_evaluation),
    ("GET", f"{_MODEL}/evaluations", _list_evaluations),
)


def _operation(name: str, response: Any = None) -> dict[str, Any]:
    """A long-running operation that is done."""
    kind = "google.cloud.aiplatform.v1.UploadModelResponse" if response else "google.protobuf.Empty"
    content = _json(response) if response else {"value": {}}
    return {
        "name": name,
        "done": True,
        "response": {"@type": f"type.googleapis.com/{kind}", **content},
    }


def _parsed(kind: Any, body: bytes) -> Any:
    from google.protobuf import json_format

    try:
        return kind.from_json(body.decode())
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise RefusedError(400, "INVALID_ARGUMENT", str(error)) from None


def _json(message: Any) -> dict[str, Any]:
    return json.loads(type(message).to_json(message, always_print_fields_with_no_presence=False))
