"""The engine of the emulator's PipelineJobs: each is a `PipelineRun` in a folder of its own."""

import concurrent.futures
import dataclasses
import datetime
import json
import pathlib
import re
import shutil
import time
from collections.abc import Callable
from typing import Any

from google.protobuf import json_format

from vertex.emulator import messages
from vertex.emulator.api_error import code_of
from vertex.emulator.clock import Clock
from vertex.emulator.engine.pipeline_run import PipelineRun, run_in_thread
from vertex.emulator.engine.placeholders import make_constants
from vertex.emulator.engine.task_details import describe_tasks
from vertex.emulator.engine.task_inputs import defaults_of
from vertex.emulator.engine.task_processes import Services, TaskProcesses
from vertex.emulator.http_rules import to_json
from vertex.emulator.messages import id_of, parent_of, state_of
from vertex.facts.json_numbers import to_whole_numbers

_LOCATION_FILE = "location.json"
"""File of a run's folder with the URI of its artifacts."""
_CLOSE_SECONDS = 5.0


@dataclasses.dataclass(eq=False)
class PipelineEngine:
    """The engine that executes the emulator's PipelineJobs, in threads of this process.

    A job's artifacts are in <folder>/runs/<job>.<location>.<project>/artifacts. A link to it is
    the job's folder in its bucket, <folder>/buckets/<bucket>/<root>/<project>/<job>.
    """

    folder: pathlib.Path  # holds runs and buckets, also of earlier processes
    clock: Clock
    # Returns a digest of the code that a command runs, on which cached outputs depend.
    code_of: Callable[[list[str]], str]
    explain: Callable[[PipelineRun], str]  # returns why a run failed
    services: Services = dataclasses.field(init=False)  # set before the first job is started

    def __post_init__(self) -> None:
        self._runs: dict[str, tuple[PipelineRun, concurrent.futures.Future[str]]] = {}
        self._uris = {
            str(path.parent / "artifacts"): json.loads(path.read_text())["uri"]
            for path in self.folder.glob(f"runs/*/{_LOCATION_FILE}")
        }

    def start(self, job: Any) -> None:
        """Start a PENDING job; name its contexts, which clients look for while it runs."""
        contexts = f"{parent_of(job.name)}/metadataStores/default/contexts"
        job.job_detail.pipeline_run_context.name = f"{contexts}/{id_of(job.name)}"
        if name := job.pipeline_spec.get("pipelineInfo", {}).get("name"):
            job.job_detail.pipeline_context.name = f"{contexts}/{name}"
        document = to_json(job)
        _, project, _, location, _, job_id = job.name.split("/")
        directory = self.folder / "runs" / f"{job_id}.{location}.{project}"
        artifacts = directory / "artifacts"
        # A deleted job of the same name may have left files.
        shutil.rmtree(directory, ignore_errors=True)
        artifacts.mkdir(parents=True)
        root = job.runtime_config.gcs_output_directory.rstrip("/")
        link = self.folder / "buckets" / root.removeprefix("gs://") / project / job_id
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(artifacts)
        uri = self._uris[str(artifacts)] = f"{root}/{project}/{job_id}"
        (directory / _LOCATION_FILE).write_text(json.dumps({"uri": uri}))
        spec = document["pipelineSpec"]
        given = document.get("runtimeConfig", {}).get("parameterValues", {})
        values = {**defaults_of(spec["root"]), **given}
        logs = directory / "logs"
        logs.mkdir()
        number = str(time.time_ns())
        # The ID of a schedule's job has the time for which it was scheduled.
        due = re.search(r"-(\d{14})-s\d+$", job_id)
        scheduled = datetime.datetime.strptime(due[1], "%Y%m%d%H%M%S") if due else job.create_time
        run = PipelineRun(
            spec=spec,
            parameters={
                name: to_whole_numbers(self.to_local(value)) for name, value in values.items()
            },
            folder=directory,
            artifacts=str(artifacts),
            constants=make_constants(job_id, project, location, job.create_time, scheduled),
            processes=TaskProcesses(self.services, number, spec, logs, in_bucket=False),
            cache=self.folder / "runs" / ".cache",
            code_of=self.code_of,
            fails_fast=job.runtime_config.failure_policy.name.endswith("FAIL_FAST"),
            to_local=self.to_local,
        )

        def execute() -> str:
            try:
                return run.execute()
            finally:
                run.processes.close()

        self._runs[job.name] = (run, run_in_thread(job_id, execute))

    def cancel(self, job: Any) -> None:
        """Cancel a job that is CANCELLING."""
        if job.name in self._runs:
            run, _ = self._runs[job.name]
            run_in_thread("cancel", run.processes.cancel)

    def close(self) -> None:
        """Stop the jobs that are still running."""
        running = [(run, future) for run, future in self._runs.values() if not future.done()]
        for run, _ in running:
            run_in_thread("cancel", run.processes.cancel)
        concurrent.futures.wait([future for _, future in running], _CLOSE_SECONDS)
        for run, _ in running:
            run.processes.kill()
        concurrent.futures.wait([future for _, future in running])

    def update(self, job: Any) -> None:
        """Update a job's state, times, error and job_detail."""
        parent = parent_of(job.name)
        run, future = self._runs.get(job.name, (None, None))
        if run is None or future is None:
            # The emulator was killed while the job ran.
            state = "CANCELLED" if state_of(job) == "CANCELLING" else "FAILED"
            self._end(job, state, "The emulator was stopped while the run was not finished.")
            return
        if not future.done():
            if state_of(job) == "PENDING":
                job.state = messages.PipelineState.PIPELINE_STATE_RUNNING
        elif error := future.exception():
            run.close("FAILED")
            self._end(job, "FAILED", f"{type(error).__name__}: {error}")
        else:
            state = "CANCELLED" if run.processes.cancelled.is_set() else future.result()
            self._end(job, state, self.explain(run) if state == "FAILED" else "")
        executions = f"{parent}/metadataStores/default/executions/{id_of(job.name)}"
        details = list(
            describe_tasks(
                run,
                executions,
                is_over=future.done(),
                explain=self.explain,
                to_uri=self.to_uri,
                clock=self.clock,
            )
        )
        del job.job_detail.task_details[:]
        json_format.ParseDict({"taskDetails": details}, job._pb.job_detail)

    def _end(self, job: Any, state: str, error: str) -> None:
        job.state = messages.PipelineState[f"PIPELINE_STATE_{state}"]
        run, _ = self._runs.get(job.name, (None, None))
        ended = max((task.ended for task in run.tasks), default=0.0) if run else 0.0
        job.end_time = self.clock.at(ended) if ended else self.clock.now()
        if state == "FAILED":
            job.error.code = code_of("FAILED_PRECONDITION")
            job.error.message = error

    def to_uri(self, path: str) -> str:
        """Return the gs:// URI of a path of a run."""
        for folder, uri in self._uris.items():
            if path.startswith(folder):
                return path.replace(folder, uri, 1)
        return path.replace(f"{self.folder}/buckets/", "gs://", 1)

    def to_local(self, value: Any) -> Any:
        """Return a value, with a URI in one of `folder`'s buckets replaced by a local path."""
        if not isinstance(value, str) or "gs://" not in value:
            return value
        prefix, _, name = value.partition("gs://")
        buckets = self.folder / "buckets"
        return f"{prefix}{buckets / name}" if (buckets / name.split("/")[0]).exists() else value
