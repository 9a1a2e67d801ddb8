"""Model servers: processes on this machine in place of a Model's containers."""

import contextlib
import dataclasses
import functools
import http.client
import json
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any

from vertex.emulator.api_error import ApiError, invalid
from vertex.emulator.environment import Program, run_server
from vertex.emulator.processes import Guardian, Process, reserve_port
from vertex.errors import InputError

_HEALTH_ROUTE, _PREDICT_ROUTE = "/health", "/predict"
"""Routes of a server whose container names none; Vertex AI's own contain the endpoint's ID."""
_POLL_SECONDS = 0.05
_STOP_SECONDS = 15.0
HEALTH_SECONDS = 1.0
"""Time limit for the answer of a server whose model is being loaded."""
_PREDICT_SECONDS = 60.0
"""Time limit of a shared public endpoint for a prediction."""


class ModelServer:
    """A server of a types.Model and its SavedModel, started as Vertex AI starts its container."""

    def __init__(
        self, model: Any, program: Program, artifacts: str, log: pathlib.Path, guardian: Guardian
    ) -> None:
        container = model.container_spec
        self._port = reserve_port()
        self._health_route = container.health_route or _HEALTH_ROUTE
        self._predict_route = container.predict_route or _PREDICT_ROUTE
        variables = {
            **program.environment,
            **{variable.name: variable.value for variable in container.env},
            "AIP_STORAGE_URI": artifacts,
            "AIP_HTTP_PORT": str(self._port),
            "AIP_HEALTH_ROUTE": self._health_route,
            "AIP_PREDICT_ROUTE": self._predict_route,
        }
        self.process = Process(program.command, environment=variables, log=log, guardian=guardian)

    def is_healthy(self, seconds: float) -> bool:
        """Return whether the model is loaded; False without an answer in time."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self._send("GET", self._health_route, seconds)[0] == http.client.OK
        return False

    def ask(self, body: dict[str, Any], seconds: float | None = None) -> tuple[int, dict[str, Any]]:
        """Request predictions; return the response's HTTP status and content."""
        code, content = self._send("POST", self._predict_route, seconds, json.dumps(body))
        try:
            answer = json.loads(content)
        except ValueError:
            answer = {"error": f"The model server's response is not JSON: {content[:200]!r}"}
            return max(code, http.client.BAD_REQUEST), answer
        return code, answer if isinstance(answer, dict) else {"error": f"not an object: {answer}"}

    def predict(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the content of the response to a request, once the model is loaded."""
        code, content = self._ask_loaded(lambda seconds: self.ask(body, seconds))
        if code != http.client.OK:
            raise invalid(str(content.get("error", content)))
        return content

    def predict_raw(self, body: str) -> bytes:
        """Return the response to a request as the server gives it, once the model is loaded."""
        code, content = self._ask_loaded(
            lambda seconds: self._send("POST", self._predict_route, seconds, body)
        )
        if code != http.client.OK:
            raise invalid(content.decode(errors="replace"))
        return content

    def _ask_loaded(self, ask: Callable[[float], tuple[int, Any]]) -> tuple[int, Any]:
        end = time.monotonic() + _PREDICT_SECONDS
        try:
            while not self.is_healthy(max(_POLL_SECONDS, end - time.monotonic())):
                if self.process.finished.wait(_POLL_SECONDS):
                    raise self.failure
                if time.monotonic() > end:
                    raise TimeoutError
            return ask(max(_POLL_SECONDS, end - time.monotonic()))
        except TimeoutError:
            slow = f"The model server has not answered within {_PREDICT_SECONDS:g} s."
            raise ApiError("DEADLINE_EXCEEDED", slow) from None

    @property
    def failure(self) -> ApiError:
        """Return the error of requests to a server that has ended."""
        words = self.process.log.read_text(errors="replace").strip().rpartition("\n")[2]
        return ApiError(
            "FAILED_PRECONDITION",
            f"Model server terminated: exit code {self.process.returncode}. {words}",
        )

    def _send(
        self, method: str, path: str, seconds: float | None, body: str | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=seconds)
        with contextlib.closing(connection):
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()


@dataclasses.dataclass
class ModelServers:
    """The servers of deployed models; a context manager that stops them on exit.

    The next request to a model restarts its server if it has ended, or if it belonged to an
    earlier process.
    """

    logs: pathlib.Path  # gets one log file per server
    guardian: Guardian
    program: Callable[[Any], Program] = run_server  # returns the program that serves a Model
    _servers: dict[str, ModelServer] = dataclasses.field(default_factory=dict)

    def __enter__(self) -> "ModelServers":
        return self

    def __exit__(self, *_: Any) -> None:
        for server in self._servers.values():
            server.process.stop(_STOP_SECONDS)

    def start(self, name: str, model: Any, artifacts: str) -> ModelServer:
        """Return the server of a deployed model; start it if it is not running."""
        if name not in self._servers or self._servers[name].process.finished.is_set():
            log = self.logs / f"{'-'.join(name.split('/')[-2:])}.log"
            try:
                program = self.program(model)
            except InputError as error:
                raise invalid(str(error)) from None
            self._servers[name] = ModelServer(model, program, artifacts, log, self.guardian)
        return self._servers[name]

    def is_ready(self, name: str, model: Any, artifacts: str) -> bool:
        """Return whether a deployed model's server is healthy; start it if there is none.

        Raise ApiError if the server has ended, or there is no program for it.
        """
        server = self._servers.get(name) or self.start(name, model, artifacts)
        if server.process.finished.is_set():
            del self._servers[name]
            raise server.failure
        return server.is_healthy(HEALTH_SECONDS)

    def stop(self, name: str) -> Callable[[], bool]:
        """Stop the server of a deployed model, if it is running; return whether it has ended."""
        server = self._servers.pop(name, None)
        if not server:
            return lambda: True
        stop = functools.partial(server.process.stop, _STOP_SECONDS)
        threading.Thread(target=stop, name=f"stop-{name}", daemon=True).start()
        return server.process.finished.is_set
