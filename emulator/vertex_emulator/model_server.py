"""Model servers: processes on this machine in place of a Model's containers."""

import contextlib
import dataclasses
import http.client
import json
import pathlib
from collections.abc import Callable
from typing import Any

from vertex_emulator.api_error import ApiError, invalid
from vertex_emulator.environment import Program, run_server
from vertex_emulator.processes import Guardian, Process, reserve_port
from vertex_facts import UsageError

_HEALTH_ROUTE, _PREDICT_ROUTE = "/health", "/predict"
"""Routes of a server whose container names none; Vertex AI's own contain the endpoint's ID."""
_POLL_SECONDS = 0.05
_STOP_SECONDS = 15.0


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

    @property
    def is_healthy(self) -> bool:
        """Return whether the model is loaded."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self._send("GET", self._health_route)[0] == http.client.OK
        return False

    def ask(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Request predictions; return the response's HTTP status and content."""
        return self._send("POST", self._predict_route, json.dumps(body))

    def _send(self, method: str, path: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())


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
        for name in list(self._servers):
            self.stop(name)

    def is_ready(self, name: str, model: Any, artifacts: str) -> bool:
        """Return whether a deployed model's server is healthy; start it if it isn't running.

        Raise ApiError if the server has ended, or there is no program for it.
        """
        if name not in self._servers:
            log = self.logs / f"{'-'.join(name.split('/')[-2:])}.log"
            try:
                program = self.program(model)
            except UsageError as error:
                raise invalid(str(error)) from None
            self._servers[name] = ModelServer(model, program, artifacts, log, self.guardian)
        process = self._servers[name].process
        if process.finished.is_set():
            del self._servers[name]
            words = process.log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise ApiError(
                "FAILED_PRECONDITION",
                f"Model server terminated: exit code {process.returncode}. {words}",
            )
        return self._servers[name].is_healthy

    def ask(self, name: str, model: Any, artifacts: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request's body to a deployed model's server; return the response."""
        if name in self._servers and self._servers[name].process.finished.is_set():
            del self._servers[name]
        while not self.is_ready(name, model, artifacts):
            self._servers[name].process.finished.wait(_POLL_SECONDS)
        code, content = self._servers[name].ask(body)
        if code != http.client.OK:
            raise invalid(content["error"])
        return content

    def stop(self, name: str) -> None:
        """Stop the server of a deployed model, if it is running."""
        if name in self._servers:
            self._servers.pop(name).process.stop(_STOP_SECONDS)
