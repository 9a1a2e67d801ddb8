"""A launcher from the package of Google's components that calls a JobService on this machine.

    python -m vertex.emulator.engine.launcher MODULE < request.json

The request is one line:
`{"endpoint": "unix:PATH", "labels": the job's, "log": path, "arguments": [...]}`.
It may come long after the start: importing Google's SDK takes seconds, so the process starts
with the pipeline's first tasks. When the input ends, because the run has, the process exits.

Three parts of the launcher are replaced: the client's endpoint, which is hard-coded; the
cancel request, a REST call; and the polling interval of 20 seconds. Of Google's SDK, whose import
takes two seconds, launchers use two classes, which are imported from where they are defined.
"""

import importlib
import json
import os
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

from vertex.emulator.messages import to_snake_case
from vertex.facts import lazy_services

_POLLING_SECONDS = 0.2


def main() -> None:
    """Wait for a request, and run Google's launcher with its arguments."""
    lazy_services.install()
    import grpc
    from google.cloud.aiplatform_v1.services.job_service import JobServiceClient
    from google.cloud.aiplatform_v1.services.job_service.transports import JobServiceGrpcTransport
    from google.cloud.aiplatform_v1.types import ExplanationMetadata

    sdk = ModuleType("google.cloud.aiplatform")
    vars(sdk)["gapic"] = SimpleNamespace(JobServiceClient=JobServiceClient)
    vars(sdk)["explain"] = SimpleNamespace(ExplanationMetadata=ExplanationMetadata)
    sys.modules[sdk.__name__] = sdk
    from google_cloud_pipeline_components.container.v1.gcp_launcher import job_remote_runner

    launcher = importlib.import_module(sys.argv[1])
    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_end_with_input, daemon=True).start()
    request = json.loads(line)
    _write_to(request["log"])
    # Vertex AI Pipelines sets this variable, too: the launcher copies the labels to the job.
    os.environ["VERTEX_AI_PIPELINES_RUN_LABELS"] = json.dumps(request["labels"])

    class LoopbackClient(JobServiceClient):
        """The official client, over an insecure channel to this machine."""

        def __init__(self, *_: Any, **__: Any) -> None:
            channel = grpc.insecure_channel(request["endpoint"])
            super().__init__(transport=JobServiceGrpcTransport(channel=channel))

    def cancel(runner: Any, job_name: str) -> None:
        if job_name:
            kind = to_snake_case(job_name.split("/")[-2].removesuffix("s"))
            getattr(runner.job_client, f"cancel_{kind}")(name=job_name)

    job_remote_runner.aiplatform.gapic.JobServiceClient = LoopbackClient
    job_remote_runner.JobRemoteRunner.send_cancel_request = cancel
    job_remote_runner._POLLING_INTERVAL_IN_SECONDS = _POLLING_SECONDS
    launcher.main(request["arguments"])
    # A regular exit would spend most of a second on tearing down the SDK's thousand modules.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)


def _write_to(log: str) -> None:
    """Redirect stdout and stderr to the log of the task that this process runs."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)


if __name__ == "__main__":
    main()
