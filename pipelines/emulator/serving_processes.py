"""Servers of the models deployed to endpoints."""

import http.client
import pathlib
from typing import Any

from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.model_server import ModelServer
from pipelines.emulator.processes import Guardian

_POLL_SECONDS = 0.05
_STOP_SECONDS = 15.0


class ServingProcesses:
    """Starts a server for each deployed model; a context manager, which ends them.

    A server that has ended, or that an earlier process of this machine had started, is started
    again by what is asked of it.

    Args:
        logs: folder of a log file for each.
    """

    def __init__(self, logs: pathlib.Path, guardian: Guardian) -> None:
        self._logs, self._guardian = logs, guardian
        self._servers: dict[str, ModelServer] = {}

    def __enter__(self) -> "ServingProcesses":
        return self

    def __exit__(self, *_: Any) -> None:
        for name in list(self._servers):
            self.stop(name)

    def is_ready(self, name: str, model: Any, artifacts: str) -> bool:
        """Return whether the server of a deployed model is healthy; start it where there is none.

        Args:
            name: of the deployed model.
            model: its types.Model.
            artifacts: folder of its SavedModel.

        Raises:
            ApiError: it has ended.
        """
        if name not in self._servers:
            log = self._logs / f"{'-'.join(name.split('/')[-2:])}.log"
            self._servers[name] = ModelServer(model, artifacts, log, self._guardian)
        server = self._servers[name]
        process = server.process
        if process.finished.is_set():
            del self._servers[name]
            words = process.log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise ApiError(
                "FAILED_PRECONDITION",
                f"Model server terminated: exit code {process.returncode}. {words}",
            )
        return server.is_healthy

    def ask(self, name: str, model: Any, artifacts: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of a deployed model's server to a request's body."""
        if name in self._servers and self._servers[name].process.finished.is_set():
            del self._servers[name]
        while not self.is_ready(name, model, artifacts):
            self._servers[name].process.finished.wait(_POLL_SECONDS)
        code, content = self._servers[name].ask(body)
        if code != http.client.OK:
            raise invalid(content["error"])
        return content

    def stop(self, name: str) -> None:
        """End the server of a deployed model, where one runs."""
        if name in self._servers:
            self._servers.pop(name).process.stop(_STOP_SECONDS)
