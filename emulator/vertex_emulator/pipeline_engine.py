"""Execution of PipelineJobs on this machine, each in its own process and folder."""

import dataclasses
import datetime
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from vertex_emulator import messages
from vertex_emulator.api_error import code_of
from vertex_emulator.clock import Clock
from vertex_emulator.environment import Program
from vertex_emulator.job_service import find_job_folders
from vertex_emulator.messages import id_of, parent_of, state_of
from vertex_emulator.processes import Guardian, Process

_STATES = {"CACHED": "SKIPPED", "SKIPPED": "NOT_TRIGGERED"}
"""Vertex AI's words for two states of tasks on this machine."""
_LAUNCHER_TASK = "custom-training-job"


@dataclasses.dataclass
class PipelineEngine:
    """The engine that executes the emulator's PipelineJobs.

    A job's artifacts are in <folder>/runs/<job>.<location>.<project>/artifacts. A link to it is
    the job's folder in its bucket, <folder>/buckets/<bucket>/<root>/<project>/<job>.
    """

    folder: pathlib.Path  # holds runs and buckets, also of earlier processes
    guardian: Guardian
    clock: Clock
    # Returns the program that executes the job of a folder.
    program: Callable[[pathlib.Path], Program]

    def __post_init__(self) -> None:
        self._processes: dict[str, Process] = {}
        self._uris = {
            str(path.parent / "artifacts"): json.loads(path.read_text())["place"]
            for path in self.folder.glob("runs/*/request.json")
        }

    def start(self, job: Any) -> None:
        """Start a PENDING job."""
        from google.protobuf import json_format

        document = json_format.MessageToDict(job._pb)
        _, project, _, location, _, job_id = job.name.split("/")
        directory = self._folder_of(job.name)
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
        recipe = job.labels.get("recipe", "pipeline")
        (directory / f"{recipe}.yaml").write_text(json.dumps(document["pipelineSpec"]))
        request = {
            "recipe": recipe,
            "parameters": self._localize_parameters(document),
            "project": project,
            "location": location,
            "id": job_id,
            "place": uri,
        }
        (directory / "request.json").write_text(json.dumps(request))
        program = self.program(directory)
        self._processes[job.name] = Process(
            program.command,
            environment={**program.environment, **self.clock.environment},
            log=directory / "output.log",
            guardian=self.guardian,
        )

    def cancel(self, job: Any) -> None:
        """Terminate a job that is CANCELLING."""
        if job.name in self._processes:
            self._processes[job.name].terminate()

    def close(self) -> None:
        """Stop the jobs that are still running."""
        for process in self._processes.values():
            process.stop(5.0)

    def update(self, job: Any) -> None:
        """Update a job's state, times, error and job_detail."""
        from google.protobuf import json_format

        parent = parent_of(job.name)
        context = f"{parent}/metadataStores/default/contexts/{id_of(job.name)}"
        job.job_detail.pipeline_run_context.name = context
        directory = self._folder_of(job.name)
        process = self._processes.get(job.name)
        over = process is None or process.finished.is_set()
        try:
            summary = json.loads((directory / "summary.json").read_text() or "{}")
        except (OSError, ValueError):
            summary = {}
        state = "RUNNING" if state_of(job) == "PENDING" else ""
        if over:
            # A process that is cancelled while it starts leaves no summary.
            killed = "CANCELLED" if state_of(job) == "CANCELLING" else "FAILED"
            state = summary.get("state", killed)
            job.end_time = self._find_end(job, directory)
            if state == "FAILED":
                job.error.code = code_of("FAILED_PRECONDITION")
                job.error.message = summary.get("error", "see its output.log")
        if state:
            job.state = messages.PipelineState[f"PIPELINE_STATE_{state}"]
        tasks = self._list_tasks(job, directory, summary if over else {})
        del job.job_detail.task_details[:]
        json_format.ParseDict({"taskDetails": list(tasks)}, job._pb.job_detail)

    def _find_end(self, job: Any, directory: pathlib.Path) -> datetime.datetime:
        """Return when a job ended: when its process wrote the summary; now if it wrote none."""
        try:
            started, ended = (
                (directory / name).stat().st_mtime for name in ("request.json", "summary.json")
            )
        except OSError:
            return self.clock.now()
        return job.start_time + datetime.timedelta(seconds=ended - started)

    def to_uri(self, path: str) -> str:
        """Return the gs:// URI of a path of a run."""
        for folder, uri in self._uris.items():
            if path.startswith(folder):
                return path.replace(folder, uri, 1)
        return path.replace(f"{self.folder}/buckets/", "gs://", 1)

    def _folder_of(self, name: str) -> pathlib.Path:
        """Return the folder of a job, which pipelines.local treats as a run's folder."""
        _, project, _, location, _, job_id = name.split("/")
        return self.folder / "runs" / f"{job_id}.{location}.{project}"

    def to_local(self, value: Any) -> Any:
        """Return a value, with a URI in one of `folder`'s buckets replaced by a local path."""
        if not isinstance(value, str) or "gs://" not in value:
            return value
        prefix, _, name = value.partition("gs://")
        buckets = self.folder / "buckets"
        return f"{prefix}{buckets / name}" if (buckets / name.split("/")[0]).exists() else value

    def _localize_parameters(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a job's parameters, and the defaults of others that are URIs in buckets."""
        inputs = document["pipelineSpec"]["root"].get("inputDefinitions", {}).get("parameters", {})
        defaults = {name: spec.get("defaultValue") for name, spec in inputs.items()}
        local = {name: self.to_local(value) for name, value in defaults.items()}
        changed = {name: value for name, value in local.items() if value != defaults[name]}
        given = document.get("runtimeConfig", {}).get("parameterValues", {})
        return changed | {name: self.to_local(value) for name, value in given.items()}

    def _list_tasks(
        self, job: Any, directory: pathlib.Path, summary: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the PipelineTaskDetails of the started tasks; of all tasks after the run."""
        listed = summary.get("tasks") or [
            {"name": path.stem, "state": "RUNNING", "seconds": 0.0}
            for path in sorted((directory / "logs").glob("*.log"), key=lambda path: path.name)
            if path.stem not in ("pipeline", "launcher")
        ]
        executions = f"{parent_of(job.name)}/metadataStores/default/executions/{id_of(job.name)}"
        for number, task in enumerate(listed, start=1):
            name, state = task["name"], task["state"]
            detail: dict[str, Any] = {"taskId": number, "taskName": name}
            detail["execution"] = {"name": f"{executions}-{name}"}
            done = directory / ".completed" / f"{name}.json"
            if done.is_file():
                state = "SUCCEEDED" if state == "RUNNING" else state
                end = datetime.datetime.fromtimestamp(done.stat().st_mtime, datetime.timezone.utc)
                start = end - datetime.timedelta(seconds=task["seconds"])
                detail |= {"startTime": start.isoformat(), "endTime": end.isoformat()}
                detail["outputs"] = {
                    output: {"artifacts": [{**value, "uri": self.to_uri(value["uri"])}]}
                    for output, value in _list_artifacts(json.loads(done.read_text())["outputs"])
                }
            if state == "FAILED":
                reason = summary.get("error", "").removeprefix(f"{task['display_name']}: ")
                detail["error"] = {"code": code_of("FAILED_PRECONDITION"), "message": reason}
            if name == _LAUNCHER_TASK:
                jobs = [
                    {"resourceType": "CustomJob", "resourceUri": f"https://x/v1/{name}"}
                    for name in find_job_folders(directory / "logs")
                ]
                text = json.dumps({"resources": jobs})
                detail["execution"]["metadata"] = {"output:gcp_resources": text}
            yield {**detail, "state": _STATES.get(state, state)}


def _list_artifacts(outputs: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the outputs of a task that are artifacts, each with its URI and metadata."""
    for name, value in outputs.items():
        if isinstance(value, dict) and "schema_title" in value:
            yield name, {"uri": value["uri"], "metadata": value["metadata"]}
