"""The emulator's server, which serves resources by REST and gRPC on a port and a socket.

    with Emulator(ModelService(operations, folder), operations) as emulator:
        os.environ.update(emulator.environment)   # components and commands now use this server

The port accepts REST and gRPC, the socket only gRPC. A port of 127.0.0.1 is open to every user of
the machine, so each request must carry this server's secret as its access token. The socket is in
a folder that only its user can open.
"""

import concurrent.futures
import contextlib
import contextvars
import dataclasses
import hmac
import http.server
import json
import logging
import re
import secrets
import shutil
import socket
import tempfile
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.api import httpbody_pb2
from google.protobuf import json_format

from vertex.emulator.api_error import ApiError, invalid
from vertex.emulator.http_rules import Method, load_methods, to_json
from vertex.emulator.messages import to_snake_case
from vertex.emulator.processes import Guardian
from vertex.errors import InputError
from vertex.facts.emulation import ENDPOINT_VARIABLE, TOKEN_VARIABLE, TRANSPORT_VARIABLE

by_task = contextvars.ContextVar("by_task", default=False)
"""True if a run's task sent the request: it reads files here where others read gs:// URIs."""

_LONG_PATH = 80
_PREFACE = b"PRI"
"""The first bytes of an HTTP/2 connection, which gRPC uses; no HTTP/1.1 method has this name."""
_CHUNK = 65536
_MALFORMED = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of requests without protos that have another content than their API's."""
_TASK = ".task"
"""The end of the token of tasks."""


@dataclasses.dataclass(frozen=True)
class HttpRequest:
    """A request to an API that has no protos."""

    match: re.Match[str]
    query: Mapping[str, str]  # of a repeated parameter, the last value
    headers: Mapping[str, str]
    body: bytes
    values: Mapping[str, list[str]]  # all values of each parameter


@dataclasses.dataclass(frozen=True)
class HttpAnswer:
    """An answer whose HTTP code or headers matter."""

    code: int
    content: bytes = b""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Emulator:
    """A server of resources; a context manager.

    Args:
        resources: objects with a method for each API method that they serve. The method gets
            the request and returns the response, or raises ApiError. For APIs without protos,
            `routes` lists (verb, pattern of the path, name), and the method gets an HttpRequest
            (from anybody, if `without_token` has its name) and returns bytes, text, JSON or an
            HttpAnswer.
        background: import Google's protos, which takes a second, in a thread that requests wait
            for. Not for a process that also imports a client of them.
        guardian: removes `folder` if this process is killed.
        port: port of the API; 0: one that is free.
    """

    def __init__(
        self,
        *resources: Any,
        background: bool = False,
        guardian: Guardian | None = None,
        port: int = 0,
    ) -> None:
        self.resources = resources
        self._background = background
        self.secret = secrets.token_urlsafe(32)  # the access token
        # Further variables of tasks, such as those that lead Google's clients here.
        self.task_variables: Mapping[str, str] = {}
        self._lock = threading.RLock()
        parent = tempfile.gettempdir()
        # A socket's path has at most 103 characters.
        short = parent if len(parent) < _LONG_PATH else "/tmp"  # noqa: S108 - a new folder in it
        make = guardian.make_folder if guardian else tempfile.mkdtemp
        self.folder = make(prefix="emulator-", dir=short)  # private, removed on exit
        self._socket = f"unix:{self.folder}/grpc"

        class Handler(RequestHandler):
            emulator = self

        self._http = RelayingServer(Handler, lambda: self._started.result()[2], port)
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._routes = [
            (verb, re.compile(pattern), name, getattr(resource, to_snake_case(name)))
            for resource in resources
            for verb, pattern, name in getattr(resource, "routes", ())
        ]
        self._without_token = {
            (verb, pattern)
            for resource in resources
            for verb, pattern, name in getattr(resource, "routes", ())
            if name in getattr(resource, "without_token", ())
        }
        self._starting = concurrent.futures.ThreadPoolExecutor(1, "emulator")

    def __enter__(self) -> "Emulator":
        self._started = self._starting.submit(self._start)
        if not self._background:
            self._started.result()
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        try:
            self._started.result()[1].stop(grace=None)
        finally:
            self._starting.shutdown()
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that direct clients to this server."""
        return {
            ENDPOINT_VARIABLE: self.endpoint,
            TRANSPORT_VARIABLE: "rest",
            TOKEN_VARIABLE: self.secret,
        }

    @property
    def task_environment(self) -> dict[str, str]:
        """Return the variables that direct a run's task to this server: `by_task` is then true."""
        return {**self.environment, TOKEN_VARIABLE: self.task_token, **self.task_variables}

    @property
    def task_token(self) -> str:
        """Return the access token of tasks."""
        return f"{self.secret}{_TASK}"

    @property
    def socket(self) -> str:
        """Wait until the gRPC server listens; return its address, unix:PATH."""
        self._started.result()
        return self._socket

    def call(self, name: str, function: Callable[[Any], Any], request: Any) -> Any:
        """Call a resource's method with a request, one call at a time.

        A method that takes long returns a function, which is called without the lock.
        """
        with self._lock:
            result = function(request)
        return result() if callable(result) else result

    def answer(self, verb: str, url: str, headers: Any, body: bytes) -> HttpAnswer:
        """Answer a REST request."""
        code, result = 200, None
        try:
            if (verb, url) not in self._without_token:
                self._check_token(headers.get("Authorization", ""))
            result = self._dispatch(verb, url, headers, body)
        except Exception as error:
            failure = to_api_error(error, f"{verb} {url}")
            code, result = failure.code, failure.json
        if isinstance(result, HttpAnswer):
            return result
        if isinstance(result, bytes):
            kind, content = "application/octet-stream", result
        elif isinstance(result, str):
            kind, content = "text/plain", result.encode()
        else:
            kind, content = "application/json", json.dumps(result).encode()
        return HttpAnswer(code, content, {"Content-Type": kind})

    def _check_token(self, given: str) -> None:
        """Refuse other users of this machine, and pages in its browser; set `by_task`."""
        token = given.removesuffix(_TASK)
        by_task.set(token != given)
        if not hmac.compare_digest(token.encode(), f"Bearer {self.secret}".encode()):
            raise ApiError(
                "UNAUTHENTICATED",
                f"Invalid credentials. Expected the access token printed as {TOKEN_VARIABLE}.",
            )

    def _dispatch(self, verb: str, url: str, headers: Any, body: bytes) -> Any:
        for method, function in self._started.result()[0]:
            request = method.parse(verb, url, body)
            if request is not None:
                check_values(request)
                response = self.call(method.name, function, request)
                if isinstance(response, httpbody_pb2.HttpBody):
                    kind = {"Content-Type": response.content_type}
                    return HttpAnswer(200, response.data, kind)
                return to_json(response)
        parts = urllib.parse.urlsplit(url)
        values = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
        query = {key: given[-1] for key, given in values.items()}
        for wanted, pattern, name, function in self._routes:
            match = pattern.fullmatch(parts.path) if verb == wanted else None
            if match:
                try:
                    given = HttpRequest(match, query, headers, body, values)
                    return self.call(name, function, given)
                except _MALFORMED as error:
                    raise invalid(f"Invalid request to {parts.path}: {error!r}") from None
        host = headers.get("Host", "")
        raise ApiError("UNIMPLEMENTED", f"{verb} {host}{parts.path} is not emulated")

    def _start(self) -> tuple[list[tuple[Method, Callable[[Any], Any]]], grpc.Server, int]:
        """Start the gRPC server; return the methods served, the server and its port."""
        served = [
            (method, function)
            for method in load_methods()
            for resource in self.resources
            if (function := find_handler(resource, method.name))
        ]
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4, "emulator-rpc"))
        for method, function in served:
            handlers = {method.name: self._make_handler(method, function)}
            generic = grpc.method_handlers_generic_handler(method.service, handlers)
            server.add_generic_rpc_handlers((generic,))
        server.add_insecure_port(self._socket)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        return served, server, port

    def _make_handler(
        self, method: Method, function: Callable[[Any], Any]
    ) -> grpc.RpcMethodHandler:
        def handle(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                if not context.peer().startswith("unix:"):
                    metadata = dict(context.invocation_metadata())
                    self._check_token(metadata.get("authorization", ""))
                check_values(request)
                return self.call(method.name, function, request)
            except Exception as error:
                failure = to_api_error(error, method.name)
            context.abort(grpc.StatusCode[failure.status], str(failure))

        kind = method.request
        parse = kind.deserialize if hasattr(kind, "deserialize") else kind.FromString
        return grpc.unary_unary_rpc_method_handler(handle, parse, _serialize)


class RequestHandler(http.server.BaseHTTPRequestHandler):
    """A handler that sends the response of `emulator.answer`: code, content type and body."""

    emulator: Emulator
    protocol_version = "HTTP/1.1"
    # Send head and body in one packet: a second one would wait 40 ms for an acknowledgement.
    wbufsize = -1

    def log_message(self, *_: Any) -> None:
        """Print nothing: the clients report their requests."""

    def _serve(self) -> None:
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        except (ValueError, OverflowError, MemoryError):
            self.send_error(http.HTTPStatus.BAD_REQUEST, "Invalid Content-Length")
            return
        answer = self.emulator.answer(self.command, self.path, self.headers, body)
        self.send_response(answer.code)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815


class RelayingServer(http.server.ThreadingHTTPServer):
    """A server that handles HTTP/1.1 and relays HTTP/2 to the port of a gRPC server."""

    daemon_threads = True
    request_queue_size = 1024  # With 5, the default, parallel connections are reset.

    def __init__(self, handler: type, grpc_port: Callable[[], int], port: int) -> None:
        try:
            super().__init__(("127.0.0.1", port), handler)
        except OSError as error:
            raise InputError(f"port {port} can't be used ({error.strerror})") from None
        self._grpc_port = grpc_port  # waits until the gRPC server listens

    def shutdown(self) -> None:
        # Without a connection, serve_forever looks for a shutdown only every poll_interval.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        super().shutdown()

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The client may have closed the connection.
        with contextlib.suppress(ConnectionError):
            if request.recv(len(_PREFACE), socket.MSG_PEEK) != _PREFACE:
                super().finish_request(request, client_address)
                return
            with socket.create_connection(("127.0.0.1", self._grpc_port())) as server:
                back = threading.Thread(target=forward, args=(server, request), daemon=True)
                back.start()
                forward(request, server)
                back.join()


def forward(source: socket.socket, target: socket.socket) -> None:
    """Forward what one socket receives to another, until either is closed."""
    with contextlib.suppress(OSError):
        while content := source.recv(_CHUNK):
            target.sendall(content)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def find_handler(resource: Any, name: str) -> Any:
    """Return the function of a resource that answers an API method; None if it has none.

    GetModel is answered by `standard_methods["GetModel"]` or, without it, by `get_model`.
    """
    standard = getattr(resource, "standard_methods", {})
    return standard.get(name) or getattr(resource, to_snake_case(name), None)


def to_api_error(error: Exception, request: str) -> ApiError:
    """Return the error that a request ends with; log one that is no refusal."""
    if isinstance(error, ApiError):
        return error
    # Raised by checks that clients share.
    if isinstance(error, InputError):
        return invalid(str(error))
    logging.getLogger(__name__).error("%.200s failed", request, exc_info=error)
    return ApiError("INTERNAL", "Internal error encountered.")


def check_values(message: Any) -> None:
    """Refuse values that JSON can't express, such as a time after the year 9999 or a NaN."""
    try:
        json_format.MessageToDict(getattr(message, "_pb", message))
    except (json_format.Error, ValueError) as error:
        raise invalid(str(error)) from None


def _serialize(message: Any) -> bytes:
    """Return a message's bytes; for None, those of google.protobuf.Empty."""
    if message is None:
        return b""
    return getattr(message, "_pb", message).SerializeToString()
