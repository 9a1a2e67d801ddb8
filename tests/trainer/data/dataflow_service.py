"""Dataflow on 127.0.0.1: takes jobs in its REST API, and runs them with Beam's own runner.

What it is sent is parsed with the official protos; the pipeline that it runs is the one that
was staged, in a process of its own instead of the container image that it names.
"""

import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.utils import retry
from google.cloud import dataflow
from google.protobuf import json_format

from tests.json_server import JsonServer
from trainer.data import storage

WORKER = f"{sys.executable} -m apache_beam.runners.worker.sdk_worker_main 2>/dev/null".encode()
_PATH = re.compile(r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs(?:/([^/?]+))?(/messages)?")


class DataflowService:
    """A service with its jobs.

    Args:
        fails: the message with which every job fails.
        hangs: jobs do nothing until they are cancelled.
        refuses: HTTP status and message that every new job gets.

    Attributes:
        jobs: as they were sent, as JSON, with project, location and state.
    """

    def __init__(
        self, fails: str = "", hangs: bool = False, refuses: tuple[int, str] | None = None
    ) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.endpoint = ""
        self._fails, self._hangs, self._refuses = fails, hangs, refuses

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        # Beam tries again after pauses of up to twelve seconds.
        with mock.patch.object(retry.Clock, "sleep"), JsonServer(self._answer) as server:
            # Beam speaks REST without credentials to this name alone.
            self.endpoint = f"http://localhost:{server.server_port}"
            yield

    def _answer(self, method: str, path: str, _: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        if method == "POST" and self._refuses:
            status, message = self._refuses
            return status, {"error": {"code": status, "message": message}}
        match = _PATH.match(path)
        assert match, path
        project, location, identity, messages = match.groups()
        if messages:
            time = {"time": "2026-01-01T00:00:00Z", "messageImportance": "JOB_MESSAGE_ERROR"}
            texts = [self._fails] if self._fails else []
            return 200, {"jobMessages": [{**time, "messageText": text} for text in texts]}
        sent = dataflow.Job()
        json_format.Parse(body or "{}", sent._pb)
        if method == "POST":
            job = {
                **json_format.MessageToDict(sent._pb),
                "id": f"job-{len(self.jobs)}",
                "currentState": "JOB_STATE_RUNNING",
                "project": project,
                "location": location,
            }
            self.jobs.append(job)
            threading.Thread(target=self._work, args=(job,), daemon=True).start()
        else:
            job = self.jobs[int(identity.removeprefix("job-"))]
        if method == "PUT":
            job["currentState"] = sent.requested_state.name
        return 200, {name: job[name] for name in ("id", "name", "currentState", "clientRequestId")}

    def _work(self, job: dict[str, Any]) -> None:
        if self._hangs:
            return
        state = "JOB_STATE_FAILED"
        try:
            if not self._fails:
                options = job["environment"]["sdkPipelineOptions"]["options"]
                _run(storage.read(options["pipelineUrl"]))
                state = "JOB_STATE_DONE"
        finally:
            job["currentState"] = state


def _run(staged: bytes) -> None:
    pipeline = beam_runner_api_pb2.Pipeline.FromString(staged)
    for environment in pipeline.components.environments.values():
        environment.urn, environment.payload = python_urns.SUBPROCESS_SDK, WORKER
    FnApiRunner().run_via_runner_api(pipeline, PipelineOptions(flags=[]))
