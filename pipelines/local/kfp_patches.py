"""All patches of kfp.local, which has no public API for any of them.

Each patch point is a module attribute that kfp 2.17.0 looks up on each call. kfp is pinned,
and tests/pipelines/local/test_kfp_patches.py fails when one has moved.

- orchestrator.task_executor.execute_single_task: reports a task's name, start, end and outputs;
  disables retries.
- subprocess_task_handler.SubprocessTaskHandler: runs container components; writes one log per
  task.
- placeholder_utils.resolve_individual_placeholder: supports {{$.pipeline_google_cloud_*}} and
  json_escape, and keeps whole numbers in lists and structs, which kfp turns into floats.
- executor_input_utils.construct_local_task_root: makes one folder per task. kfp makes one per
  component, in which two tasks of the same component overwrite each other's outputs.
- executor_input_utils.construct_executor_input: puts artifacts in Cloud Storage, but leaves output
  parameters on this machine. kfp.local reads these as files, and takes a gs:// root for a folder.
- cache.LocalCache: accepts an entry only while its files and the code are unchanged.
"""

import contextlib
import contextvars
import copy
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pipelines.emulator.environment import LOCATION, PROJECT
from pipelines.local.tasks import ProcessTasks

CONSTANTS = {
    "{{$.pipeline_google_cloud_project_id}}": PROJECT,
    "{{$.pipeline_google_cloud_location}}": LOCATION,
    "{{$.pipeline_service_account}}": "",
    "{{$.pipeline_persistent_resource_id}}": "",
}
"""Placeholders of Vertex AI Pipelines that kfp.local does not support, and their values here."""

_ESCAPE = re.compile(r"\{\{\$(?:\.([^{}]*?))?\.json_escape\[(\d+)\]\}\}")
_current: contextvars.ContextVar[str] = contextvars.ContextVar("task")


@contextlib.contextmanager
def applied(tasks: ProcessTasks, *, cache: type, run_name: str, root: str = "") -> Iterator[None]:
    """Patch kfp.local to run its tasks with `tasks` and cache them in a `cache`.

    Args:
        run_name: value of `{{$.pipeline_job_name}}`, which is a PipelineJob's ID on Vertex AI.
        root: URI of the folder for artifacts; empty: kfp.local's pipeline root.
    """
    from kfp.local import cache as cache_module
    from kfp.local import executor_input_utils, placeholder_utils, subprocess_task_handler
    from kfp.local.orchestrator import task_executor

    inputs, placeholders = executor_input_utils, placeholder_utils
    resolve = placeholders.resolve_individual_placeholder
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (task_executor, "execute_single_task", _executing(tasks)),
            (subprocess_task_handler, "SubprocessTaskHandler", _task_handler(tasks)),
            (placeholders, "resolve_individual_placeholder", _resolving(resolve, run_name)),
            (inputs, "construct_local_task_root", _task_root),
            (inputs, "construct_executor_input", _constructing_input(root)),
            (cache_module, "LocalCache", cache),
        ):
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


def _executing(tasks: ProcessTasks) -> Callable[..., Any]:
    """Return kfp's execution of a task, reported to `tasks` and without retries."""
    from kfp.local import status
    from kfp.local.orchestrator import task_executor

    execute_single_task = task_executor.execute_single_task

    def execute(*, task_name: str, **others: Any) -> Any:
        _current.set(task_name)
        completed = tasks.begin(task_name)
        if completed is not None:
            tasks.end(task_name, completed, succeeded=True)
            return dict(completed), status.Status.SUCCESS
        # Failures on this machine are not transient: a retry would only repeat the error.
        others["task_spec"].ClearField("retry_policy")
        try:
            outputs, result = execute_single_task(task_name=task_name, **others)
        except BaseException:
            tasks.end(task_name, {}, succeeded=False)
            raise
        if not tasks.end(task_name, outputs, succeeded=result is status.Status.SUCCESS):
            result = status.Status.FAILURE
        return outputs, result

    return execute


def _task_handler(tasks: ProcessTasks) -> type:
    from kfp.local import status

    class TaskHandler:
        """The replacement of SubprocessTaskHandler."""

        def __init__(
            self, *, full_command: list[str], env_vars: dict[str, str] | None = None, **_: Any
        ) -> None:
            self._command = full_command
            self._environment = env_vars or {}

        def run(self) -> Any:
            succeeded = tasks.execute(_current.get(), self._command, self._environment)
            return status.Status.SUCCESS if succeeded else status.Status.FAILURE

    return TaskHandler


def _resolving(resolve: Callable[..., Any], run_name: str) -> Callable[..., Any]:
    """Return kfp's `resolve` with support for the placeholders that it lacks."""
    constants = {"{{$.pipeline_job_name}}": run_name, **CONSTANTS}

    def resolve_placeholder(
        element: str, executor_input_dict: dict[str, Any], **others: Any
    ) -> Any:
        whole = whole_numbers(executor_input_dict)

        def plain(text: str) -> Any:
            return resolve(element=text, executor_input_dict=whole, **others)

        for placeholder, value in constants.items():
            element = element.replace(placeholder, value)
        # Escaped text may contain placeholders, which kfp must not resolve.
        parts, end = [], 0
        for match in _ESCAPE.finditer(element):
            text = plain(f"{{{{$.{match[1]}}}}}" if match[1] else "{{$}}")
            for _ in range(int(match[2])):
                text = json.dumps(text)[1:-1]
            parts += [plain(element[end : match.start()]), text]
            end = match.end()
        return "".join([*parts, plain(element[end:])]) if parts else plain(element)

    return resolve_placeholder


def _task_root(pipeline_root: str, pipeline_resource_name: str, **_: Any) -> str:
    # The parts after the first are the iterations of a ParallelFor.
    iterations = pathlib.PurePath(pipeline_resource_name).parts[1:]
    return str(pathlib.Path(pipeline_root, *iterations, _current.get()))


def _constructing_input(root: str) -> Callable[..., Any]:
    """Return kfp's construction of a task's input, with artifacts below `root` if set."""
    from kfp.local import executor_input_utils
    from kfp.local.config import LocalExecutionConfig

    construct_executor_input = executor_input_utils.construct_executor_input

    def executor_input(*, task_root: str, **others: Any) -> Any:
        made = construct_executor_input(task_root=task_root, **others)
        if root:
            here = LocalExecutionConfig.instance.pipeline_root
            base = f"{root}/{pathlib.Path(task_root).relative_to(here).as_posix()}"
            for artifacts in made.outputs.artifacts.values():
                for artifact in artifacts.artifacts:
                    artifact.uri = f"{base}/{artifact.name}"
        return made

    return executor_input


def whole_numbers(value: Any) -> Any:
    """Return a copy of JSON-like `value` with every integral float as an int.

    KFP passes all numbers in lists and structs as doubles, but a proto's integer field refuses
    2.0. JSON does not distinguish the two.
    """
    if isinstance(value, Mapping):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return copy.copy(value)
