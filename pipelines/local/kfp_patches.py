"""All patches of kfp.local, which has no public way in for any of them.

Each door is a module attribute that kfp 2.17.0 looks up when it is called; kfp is pinned,
and tests/pipelines/local/test_kfp_patches.py fails when one has moved.

- orchestrator.task_executor.execute_single_task: a task's name, start, end and outputs; and no
  retries.
- subprocess_task_handler.SubprocessTaskHandler: container components, and a log a task.
- placeholder_utils.resolve_individual_placeholder: {{$.pipeline_google_cloud_*}}, json_escape,
  and whole numbers in lists and structs, which kfp turns into floats.
- executor_input_utils.construct_local_task_root: a folder a task. kfp's is one a component, in
  which two tasks of the same component overwrite each other's outputs.
- executor_input_utils.construct_executor_input: artifacts in Cloud Storage, beside output
  parameters here. kfp.local reads these as files, and takes a gs:// root for a folder.
- cache.LocalCache: an entry counts while its files are whole and the code is the same.
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
"""Placeholders of Vertex AI Pipelines that kfp.local does not know, and their values here."""

_ESCAPE = re.compile(r"\{\{\$(?:\.([^{}]*?))?\.json_escape\[(\d+)\]\}\}")
_current: contextvars.ContextVar[str] = contextvars.ContextVar("task")


@contextlib.contextmanager
def opened(tasks: ProcessTasks, *, cache: type, run_name: str, root: str = "") -> Iterator[None]:
    """Lets kfp.local run its tasks through `tasks`, and cache them in a `cache`.

    Args:
        run_name: stands for `{{$.pipeline_job_name}}`, as a PipelineJob's id does on Vertex AI.
        root: URI of the folder for artifacts; empty: that of kfp.local's pipeline root.
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
    """Return kfp's execution of a task, told to `tasks` and not retried."""
    from kfp.local import status
    from kfp.local.orchestrator import task_executor

    execute_single_task = task_executor.execute_single_task

    def execute(*, task_name: str, **others: Any) -> Any:
        _current.set(task_name)
        completed = tasks.begin(task_name)
        if completed is not None:
            tasks.end(task_name, completed, succeeded=True)
            return dict(completed), status.Status.SUCCESS
        # Nothing on this machine comes and goes: what failed once fails again, and a user's
        # mistake is shown once.
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
        """Stands in for SubprocessTaskHandler."""

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
    """Return `resolve`, kfp's own, with the placeholders that it does not know."""
    constants = {**CONSTANTS, "{{$.pipeline_job_name}}": run_name}

    def resolve_placeholder(
        element: str, executor_input_dict: dict[str, Any], **others: Any
    ) -> Any:
        whole = whole_numbers(executor_input_dict)

        def plain(text: str) -> Any:
            return resolve(element=text, executor_input_dict=whole, **others)

        for placeholder, value in constants.items():
            element = element.replace(placeholder, value)
        # What was escaped may hold placeholders of its own: none of kfp's business.
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
    # After the first part come the iterations of a ParallelFor.
    iterations = pathlib.PurePath(pipeline_resource_name).parts[1:]
    return str(pathlib.Path(pipeline_root, *iterations, _current.get()))


def _constructing_input(root: str) -> Callable[..., Any]:
    """Return kfp's construction of a task's input, with artifacts below `root` if it is set."""
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

    KFP passes all numbers of lists and structs as doubles. A proto's integer field would
    refuse 2.0, and JSON has only one kind of number.
    """
    if isinstance(value, Mapping):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return copy.copy(value)
