"""The only patch of kfp.local: `TaskExecutor` replaces kfp's function that runs a task.

kfp.local orders a pipeline's tasks and calls task_executor.execute_single_task for each. That
function is not a public API; kfp is pinned, and tests/pipelines/local/test_kfp_patches.py fails if
it has moved. Unlike kfp's function, a TaskExecutor

- reports a task's name, start, end and outputs, writes one log per task, and retries nothing;
- makes one folder per task. kfp makes one per component, in which two tasks of the same
  component overwrite each other's outputs;
- runs container components;
- supports {{$.pipeline_google_cloud_*}} and json_escape, and keeps whole numbers in lists and
  structs, which kfp turns into floats;
- puts artifacts in Cloud Storage, but leaves output parameters on this machine;
- reuses an earlier run's outputs only while their files and the code are unchanged.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.json_files import to_whole_numbers
from pipelines.local import cache
from pipelines.local.tasks import ProcessTasks
from vertex_facts.emulation import LOCATION, PROJECT

_JOB_NAME = "{{$.pipeline_job_name}}"
_ESCAPE = re.compile(r"\{\{\$(?:\.([^{}]*?))?\.json_escape\[(\d+)\]\}\}")


@dataclasses.dataclass(frozen=True)
class TaskExecutor:
    """The replacement of kfp.local's function that runs a task."""

    tasks: ProcessTasks
    constants: Mapping[str, str]  # placeholders and their values, from `make_constants`
    artifacts: str  # path or URI of the folder for artifacts
    cache: pathlib.Path | None  # folder of the outputs that runs share; None: reuse no outputs

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Patch kfp.local to run its tasks with `execute`."""
        from kfp.local.orchestrator import task_executor

        before = task_executor.execute_single_task
        task_executor.execute_single_task = self.execute
        try:
            yield
        finally:
            task_executor.execute_single_task = before

    def execute(self, *, task_name: str, pipeline_resource_name: str, **others: Any) -> Any:
        """Return a task's outputs and its state, like kfp's function."""
        from kfp.local import status

        # The parts after the first are the iterations of a ParallelFor.
        task_path = "/".join([*pipeline_resource_name.split("/")[1:], task_name])
        outputs: Mapping[str, Any] | None = self.tasks.journal.get(task_path)
        try:
            if outputs is None:
                outputs = self._run(task_path, **others)
        except BaseException:
            self.tasks.end(task_path, None)
            raise
        succeeded = self.tasks.end(task_path, outputs)
        return dict(outputs or {}), status.Status.SUCCESS if succeeded else status.Status.FAILURE

    def _run(
        self,
        task_path: str,
        *,
        task_spec: Any,
        components: Mapping[str, Any],
        executors: Mapping[str, Any],
        io_store: Any,
        pipeline_root: str,
        unique_pipeline_id: str,
        **_: Any,
    ) -> Mapping[str, Any] | None:
        """Return a task's outputs, from the cache or its process; None if it failed."""
        from google.protobuf import json_format
        from kfp.local import executor_input_utils, executor_output_utils
        from kfp.local.orchestrator.orchestrator_utils import OrchestratorUtils

        component = components[task_spec.component_ref.name]
        container = executors[component.executor_label].container
        arguments = OrchestratorUtils.make_task_arguments(task_spec.inputs, io_store)
        task = task_path.rpartition("/")[2]
        request = executor_input_utils.construct_executor_input(
            component,
            arguments,
            task_root=f"{pipeline_root}/{task_path}",
            block_input_artifact=False,
        )
        for artifacts in request.outputs.artifacts.values():
            for artifact in artifacts.artifacts:
                artifact.uri = f"{self.artifacts}/{task_path}/{artifact.name}"
        command = [*container.command, *container.args]
        variables = {variable.name: variable.value for variable in container.env}
        entry = None
        if self.cache and task_spec.caching_options.enable_cache:
            inputs = json_format.MessageToDict(request.inputs)
            image = self.tasks.image_of(container.image)
            entry = self.cache / cache.entry_name(image, command, variables, inputs)
            if (outputs := cache.read_entry(entry)) is not None:
                return outputs
        values = to_whole_numbers(executor_input_utils.executor_input_to_dict(request, component))
        command = resolve_placeholders(
            command,
            values,
            constants=self.constants,
            task_resource_name=task,
            pipeline_root=pipeline_root,
            pipeline_job_id=unique_pipeline_id,
        )
        if not self.tasks.execute(task, command, variables):
            return None
        outputs = executor_output_utils.get_outputs_for_task(request, component)
        if entry:
            cache.write_entry(entry, outputs)
        return outputs


def make_constants(
    run_name: str, project: str = PROJECT, location: str = LOCATION
) -> dict[str, str]:
    """Return Vertex AI's placeholders that kfp.local does not support, with a run's values."""
    return {
        _JOB_NAME: run_name,
        "{{$.pipeline_google_cloud_project_id}}": project,
        "{{$.pipeline_google_cloud_location}}": location,
        "{{$.pipeline_service_account}}": "",
        "{{$.pipeline_persistent_resource_id}}": "",
    }


def resolve_placeholders(
    command: list[str], values: dict[str, Any], *, constants: Mapping[str, str], **others: str
) -> list[str]:
    """Resolve the placeholders in a container's command, and in the string parameters in `values`.

    `values` is the ExecutorInput as JSON, `others` the constants that kfp.local supports.
    """
    from kfp.local import placeholder_utils

    others["pipeline_task_id"] = placeholder_utils.make_random_id()

    def resolve_unescaped(text: str) -> str:
        return placeholder_utils.resolve_individual_placeholder(
            text, values, pipeline_resource_name=constants[_JOB_NAME], **others
        )

    def resolve(element: str) -> str:
        for placeholder, value in constants.items():
            element = element.replace(placeholder, value)
        # Escaped text may contain placeholders, which kfp must not resolve.
        parts, end = [], 0
        for match in _ESCAPE.finditer(element):
            text = resolve_unescaped(f"{{{{$.{match[1]}}}}}" if match[1] else "{{$}}")
            for _ in range(int(match[2])):
                text = json.dumps(text)[1:-1]
            parts += [resolve_unescaped(element[end : match.start()]), text]
            end = match.end()
        return "".join([*parts, resolve_unescaped(element[end:])])

    parameters = values.get("inputs", {}).get("parameterValues", {})
    for name, value in parameters.items():
        if isinstance(value, str):
            parameters[name] = resolve(value)
    provided = placeholder_utils.get_provided_inputs(values)
    words = [placeholder_utils.resolve_struct_placeholders(word, provided) for word in command]
    return [resolve(word) for word in placeholder_utils.flatten_list(words)]
