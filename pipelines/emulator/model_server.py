"""The serving image's own server of a model, as a process of this machine."""

import contextlib
import http.client
import json
import pathlib
import sys
from typing import Any

from pipelines.emulator import environment
from pipelines.emulator.processes import Guardian, Process, reserve_port
from trainer import serving


class ModelServer:
    """Starts a server as Vertex AI starts a model's container.

    Args:
        model: types.Model of a version.
        artifacts: folder of its SavedModel.

    Attributes:
        process: which whoever made it ends.
    """

    def __init__(self, model: Any, artifacts: str, log: pathlib.Path, guardian: Guardian) -> None:
        self._port = reserve_port()
        variables = {
            **environment.of_component(),
            serving.VERSION_VARIABLE: f"{model.display_name}@{model.version_id}",
            **{variable.name: variable.value for variable in model.container_spec.env},
            "AIP_STORAGE_URI": artifacts,
            "AIP_HTTP_PORT": str(self._port),
            "AIP_HEALTH_ROUTE": serving.HEALTH_ROUTE,
            "AIP_PREDICT_ROUTE": serving.PREDICT_ROUTE,
        }
        command = [sys.executable, "-m", "trainer.serving"]
        self.process = Process(command, environment=variables, log=log, guardian=guardian)

    @property
    def is_healthy(self) -> bool:
        """Return whether the model is loaded."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self._send("GET", serving.HEALTH_ROUTE)[0] == http.client.OK
        return False

    def ask(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of the answer to a request for predictions."""
        return self._send("POST", serving.PREDICT_ROUTE, json.dumps(body))

    def _send(self, method: str, path: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self._port)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
