"""Dataflow on 127.0.0.1: takes jobs in its REST API, and runs them with Beam's own runner.

What it is sent is parsed with the official protos; the pipeline that it runs is the one that
was staged, in a process of its own instead of the container image that it names.
"""

import contextlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.utils import retry
from google.cloud import dataflow
from google.protobuf import json_format

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
    def running(self) -> Iterator["DataflowService"]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def do_PUT(self) -> None:
                self._answer()

            def log_message(self, *_: Any) -> None:
                pass

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, answer = service.answer(self.path, self.command, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        # Beam tries again after pauses of up to twelve seconds.
        pause, retry.Clock.sleep = retry.Clock.sleep, lambda *_: None
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Beam speaks REST without credentials to this name alone.
        self.endpoint = f"http://localhost:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            retry.Clock.sleep = pause
            server.shutdown()
            server.server_close()

    def answer(self, path: str, method: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if method == "POST" and self._refuses:
            status, message = self._refuses
            return status, {"error": {"code": status, "message": message}}
        return 200, self._found(path, method, body)

    def _found(self, path: str, method: str, body: bytes) -> dict[str, Any]:
        match = _PATH.match(path)
        assert match, path
        project, location, identity, messages = match.groups()
        if messages:
            time = {"time": "2026-01-01T00:00:00Z", "messageImportance": "JOB_MESSAGE_ERROR"}
            text = [{**time, "messageText": self._fails}] if self._fails else []
            return {"jobMessages": text}
        job = dataflow.Job()
        json_format.Parse(body or "{}", job._pb)
        if method == "POST":
            sent = json_format.MessageToDict(job._pb)
            self.jobs.append({**sent, "project": project, "location": location})
            self._set(len(self.jobs) - 1, "JOB_STATE_RUNNING")
            threading.Thread(target=self._work, args=(len(self.jobs) - 1,), daemon=True).start()
            return self._job(len(self.jobs) - 1)
        number = int(identity.removeprefix("job-"))
        if method == "PUT":
            self._set(number, job.requested_state.name)
        return self._job(number)

    def _job(self, number: int) -> dict[str, Any]:
        kept = ("name", "currentState", "clientRequestId")
        return {"id": f"job-{number}", **{name: self.jobs[number][name] for name in kept}}

    def _set(self, number: int, state: str) -> None:
        self.jobs[number]["currentState"] = state

    def _work(self, number: int) -> None:
        if self._fails:
            self._set(number, "JOB_STATE_FAILED")
            return
        if self._hangs:
            return
        options = self.jobs[number]["environment"]["sdkPipelineOptions"]["options"]
        staged = storage.read(options["pipelineUrl"])
        pipeline = beam_runner_api_pb2.Pipeline.FromString(staged)
        for environment in pipeline.components.environments.values():
            environment.urn, environment.payload = python_urns.SUBPROCESS_SDK, WORKER
        try:
            FnApiRunner().run_via_runner_api(pipeline, PipelineOptions(flags=[]))
        except Exception:
            self._set(number, "JOB_STATE_FAILED")
            raise
        self._set(number, "JOB_STATE_DONE")
