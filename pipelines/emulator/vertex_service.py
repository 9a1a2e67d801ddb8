"""A Vertex AI JobService on this machine: the official protos, replicas as processes.

with VertexService(directory, guardian) as service:
    channel = grpc.insecure_channel(service.address)
    client = JobServiceClient(transport=JobServiceGrpcTransport(channel=channel))
"""

import concurrent.futures
import pathlib
import tempfile
import threading
from typing import Any

import grpc

from pipelines.emulator import job_rules
from pipelines.emulator.containers import Containers
from pipelines.emulator.custom_job import TASK_LABEL, CustomJob
from pipelines.emulator.processes import Guardian

_SERVICE = "google.cloud.aiplatform.v1.JobService"
_DEADLINE_EXCEEDED = 4
_INTERNAL = 13
_LONG_PATH = 80


class VertexService:
    """Serves create, get, list and cancel of CustomJobs on a socket that its user alone may open.

    Whoever reached it could run any command as this user: a port is open to all users.

    A context manager; leaving it cancels what still runs. Importing Google's protos takes
    a second: the server comes up in the background, and `address` waits for it.

    Attributes:
        jobs: every job that was taken, in order of creation.
        refusals: the reason for each job that was not.
    """

    def __init__(
        self, directory: pathlib.Path, guardian: Guardian, containers: Containers | None = None
    ) -> None:
        self._containers = containers
        self.jobs: list[CustomJob] = []
        self.refusals: list[str] = []
        self._directory = directory
        self._guardian = guardian
        self._lock = threading.Lock()
        self._resources: dict[str, Any] = {}
        place = tempfile.gettempdir()
        # A socket's path has at most 103 characters.
        short = place if len(place) < _LONG_PATH else "/tmp"  # noqa: S108 - a new folder in it
        self._folder = tempfile.TemporaryDirectory(prefix="jobs-", dir=short)
        guardian.after_death(["rm", "-rf", self._folder.name])
        self._starting = concurrent.futures.ThreadPoolExecutor(1, "vertex-service")
        self._started = self._starting.submit(self._start)

    def __enter__(self) -> "VertexService":
        return self

    def __exit__(self, *_: Any) -> None:
        self.cancel()
        self.join()
        self._started.result()[0].stop(grace=None)
        self._starting.shutdown()
        self._folder.cleanup()

    @property
    def address(self) -> str:
        """As gRPC has it, unix:PATH, once the server listens there."""
        return self._started.result()[1]

    def cancel(self) -> None:
        """Cancels every job, as a user would in the console."""
        for job in self.jobs:
            job.cancel()

    def kill(self) -> None:
        """Ends every replica at once."""
        for job in self.jobs:
            for replica in job.replicas:
                if replica.process:
                    replica.process.kill()

    def join(self) -> None:
        """Waits until every job is in a final state."""
        for job in self.jobs:
            job.join()

    def _start(self) -> tuple[grpc.Server, str]:
        from google.cloud.aiplatform_v1 import types

        self._types = types
        methods = {
            "CreateCustomJob": (self._create, types.CreateCustomJobRequest, types.CustomJob),
            "GetCustomJob": (self._get, types.GetCustomJobRequest, types.CustomJob),
            "ListCustomJobs": (
                self._list,
                types.ListCustomJobsRequest,
                types.ListCustomJobsResponse,
            ),
            "CancelCustomJob": (self._cancel, types.CancelCustomJobRequest, _Empty),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                method, request.deserialize, response.serialize
            )
            for name, (method, request, response) in methods.items()
        }
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4, "vertex-rpc"))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        address = f"unix:{self._folder.name}/service"
        server.add_insecure_port(address)
        server.start()
        return server, address

    def _create(self, request: Any, context: grpc.ServicerContext) -> Any:
        job = request.custom_job
        try:
            job_rules.check(job)
        except job_rules.InvalidArgument as error:
            self.refusals.append(str(error))
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        with self._lock:
            job_id = str(len(self.jobs) + 1)
            job.name = f"{request.parent}/customJobs/{job_id}"
            name = job.labels.get(TASK_LABEL) or job.display_name
            directory = self._free_directory(name)
            run = CustomJob(job_id, job, directory, self._guardian, self._containers)
            self._resources[job.name] = run
            self.jobs.append(run)
        run.start()
        return self._message(run)

    def _get(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._message(self._find(request.name, context))

    def _list(self, request: Any, _: grpc.ServicerContext) -> Any:
        prefix = f"{request.parent}/customJobs/"
        found = [job for name, job in self._resources.items() if name.startswith(prefix)]
        return self._types.ListCustomJobsResponse(custom_jobs=[*map(self._message, found)])

    def _cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._find(request.name, context).cancel()
        return b""

    def _find(self, name: str, context: grpc.ServicerContext) -> CustomJob:
        if name not in self._resources:
            context.abort(grpc.StatusCode.NOT_FOUND, f"{name} does not exist")
        return self._resources[name]

    def _message(self, run: CustomJob) -> Any:
        """The CustomJob as the API shows it now."""
        job = self._types.CustomJob(run.request)
        job.state = self._types.JobState[f"JOB_STATE_{run.state}"]
        if run.error:
            job.error.code = _INTERNAL if run.failed_replica else _DEADLINE_EXCEEDED
            job.error.message = run.error
        return job

    def _free_directory(self, name: str) -> pathlib.Path:
        """A job's folder of logs: its task's name or its own, numbered where that is taken."""
        taken = {job.directory.name for job in self.jobs}
        clean = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
        numbered = (f"{clean}-{n}" for n in range(2, len(taken) + 3))
        return self._directory / next(n for n in (clean, *numbered) if n not in taken)


class _Empty:
    """Serializer of google.protobuf.Empty."""

    @staticmethod
    def serialize(_: Any) -> bytes:
        return b""
