"""The tasks of a run as Vertex AI reports them: PipelineTaskDetails, in the REST API's JSON."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from vertex.emulator.api_error import code_of
from vertex.emulator.clock import Clock
from vertex.emulator.engine.pipeline_run import PipelineRun, Task
from vertex.emulator.engine.task_inputs import list_artifacts
from vertex.facts.restart_rules import error_message

_STATES = {"CACHED": "SKIPPED", "SKIPPED": "NOT_TRIGGERED"}
"""Vertex AI's words for two states of tasks."""


def describe_tasks(
    run: PipelineRun,
    executions: str,
    *,
    is_over: bool,
    explain: Callable[[PipelineRun], str],
    to_uri: Callable[[str], str] = str,
    clock: Clock | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the PipelineTaskDetails of the started tasks; of all tasks after the run.

    The first is the pipeline itself, whose outputs are the run's.

    Args:
        executions: prefix of the names of their executions in the metadata store.
        is_over: whether the run has ended.
        explain: returns why the run failed.
        to_uri: returns the URI of an artifact's path.
        clock: tells the times; None: the machine's.
    """
    clock = clock or Clock()
    for task in [run.root, *run.tasks]:
        if task.state == "PENDING" and not is_over:
            continue
        detail: dict[str, Any] = {
            "taskId": str(task.number),
            "taskName": task.name or executions.rpartition("/")[2],
            "state": _STATES.get(task.state, task.state),
        }
        if task is not run.root:
            detail["parentTaskId"] = str((task.parent or run.root).number)
        for name, moment in (("startTime", task.started), ("endTime", task.ended)):
            if moment:
                detail[name] = clock.at(moment).isoformat()
        kind = "DagExecution" if task.is_group else "ContainerExecution"
        detail["execution"] = {
            "name": f"{executions}-{task.path.replace('/', '-') or 'run'}",
            "schemaTitle": f"system.{'Run' if task is run.root else kind}",
            "metadata": _describe_parameters(run, task),
        }
        if task.state == "FAILED" and (task.error or not task.is_group):
            message = explain_task(task)
            if task is run.failed and is_over:
                message = explain(run).removeprefix(f"{task.display_name}: ")
            detail["error"] = {"code": code_of("FAILED_PRECONDITION"), "message": message}
        outputs = {name: list_artifacts(value) for name, value in task.outputs.items()}
        detail["outputs"] = {
            name: {
                "artifacts": [
                    {
                        "displayName": artifact.name,
                        "uri": to_uri(artifact.uri),
                        "schemaTitle": artifact.schema_title,
                        "metadata": artifact.metadata,
                    }
                    for artifact in artifacts
                ]
            }
            for name, artifacts in outputs.items()
            if artifacts
        }
        yield detail


def explain_task(task: Task) -> str:
    """Return why a task failed, in Vertex AI's words."""
    if task.error or task.returncode is None:
        return task.error
    status = task.returncode if task.returncode >= 0 else 128 - task.returncode
    return error_message("workerpool0-0", status)


def _describe_parameters(run: PipelineRun, task: Task) -> dict[str, Any]:
    """Return the output parameters that Vertex ML Metadata has of a task's execution."""
    values = {
        f"output:{name}": value if isinstance(value, str) else json.dumps(value)
        for name, value in task.outputs.items()
        if not list_artifacts(value)
    }
    jobs = [] if task.is_group else run.processes.jobs_of(task.path)
    if jobs and "output:gcp_resources" not in values:
        resources = [{"resourceUri": f"https://localhost/v1/{job.message.name}"} for job in jobs]
        values["output:gcp_resources"] = json.dumps({"resources": resources})
    return values
