"""pipeline_job.json: the PipelineJob of a run on this machine, which other commands read."""

import contextlib
import dataclasses
import json
import pathlib
from typing import Any

from pipelines.runs import failures
from pipelines.runs.run_folders import JOB_FILE_NAME, RunRecord
from trainer.data import storage
from vertex import checked_json
from vertex.emulator.clock import Clock
from vertex.emulator.engine.pipeline_run import PipelineRun
from vertex.emulator.engine.task_details import describe_tasks
from vertex.emulator.environment import LOCAL_PARENT

_RESERVED_BYTES = 131072


@dataclasses.dataclass(eq=False)
class PipelineJobFile:
    """The file of a run, in the REST API's JSON; of the pipeline, only its tasks' names."""

    record: RunRecord
    run: PipelineRun
    _written: Any = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        """Reserve disk space, so that the final state can be written when the disk is full."""
        with contextlib.suppress(OSError):
            self._reserved.write_bytes(bytes(_RESERVED_BYTES))

    @property
    def _reserved(self) -> pathlib.Path:
        return self.run.folder / ".reserved"

    def update(self) -> None:
        """Write the file if a task or its jobs have started or ended since it was written."""
        processes = self.run.processes
        states = [
            (task.path, task.state, len(processes.jobs_of(task.path))) for task in self.run.steps
        ]
        if states != self._written:
            self._written = states
            self.write("RUNNING")

    def write(self, state: str, error: str = "") -> dict[str, Any]:
        """Write the file; return its content. `error` says why a run failed."""
        job = self._describe(state, error)
        if state != "RUNNING":
            self._reserved.unlink(missing_ok=True)
        content = json.dumps(checked_json.with_checksum(job), indent=1).encode() + b"\n"
        path = self.run.folder / JOB_FILE_NAME
        try:
            storage.write_atomically(str(path), content)
        except OSError:
            # The disk is full. An old state would be wrong; without the file, the run is KILLED.
            path.unlink(missing_ok=True)
        return job

    def _describe(self, state: str, error: str) -> dict[str, Any]:
        run, name = self.run, self.run.folder.name
        is_over = state != "RUNNING"
        tasks = describe_tasks(
            run,
            f"{LOCAL_PARENT}/metadataStores/default/executions/{name}",
            is_over=is_over,
            explain=lambda run: error or failures.explain(run),
        )
        shown = {task.name: {"taskInfo": {"name": task.display_name}} for task in run.tasks}
        job: dict[str, Any] = {
            "name": f"{LOCAL_PARENT}/pipelineJobs/{name}",
            "displayName": self.record.recipe,
            "state": f"PIPELINE_STATE_{state}",
            "createTime": self.record.started,
            "startTime": Clock().at(run.started).isoformat(),
            "runtimeConfig": {
                "gcsOutputDirectory": run.artifacts,
                "parameterValues": self.record.parameters,
            },
            "labels": {"recipe": self.record.recipe},
            "pipelineSpec": {"root": {"dag": {"tasks": shown}}},
            "jobDetail": {"taskDetails": list(tasks)},
        }
        if is_over:
            job["endTime"] = Clock().now().isoformat()
        return {**job, "error": {"message": error}} if error else job
