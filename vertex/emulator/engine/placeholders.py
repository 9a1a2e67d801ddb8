"""Resolve the placeholders of a PipelineSpec, such as {{$.inputs.parameters['epochs']}}.

https://www.kubeflow.org/docs/components/pipelines/user-guides/components/container-components
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from vertex.facts.json_numbers import Json

_PLACEHOLDER = re.compile(r"\{\{\$(?:\.(?P<path>[^{}]*?))?(?:\.json_escape\[(?P<times>\d+)\])?\}\}")
_PATH = re.compile(
    r"(?P<side>inputs|outputs)\.(?P<kind>parameters|artifacts)\['(?P<name>[^']+)'\]"
    r"(?:\.(?P<field>uri|path|output_file)|\.metadata(?:\['(?P<key>[^']+)'\])?)?"
)
_STRUCTURES = ('{"Concat": ', '{"IfPresent": ')


def make_constants(run_name: str, project: str, location: str) -> dict[str, str]:
    """Return the placeholders that are equal for all tasks of a run, by path."""
    return {
        "pipeline_job_name": run_name,
        "pipeline_job_uuid": run_name,
        "pipeline_job_resource_name": f"projects/{project}/locations/{location}/pipelineJobs/"
        f"{run_name}",
        "pipeline_google_cloud_project_id": project,
        "pipeline_google_cloud_location": location,
        "pipeline_service_account": "",
        "pipeline_persistent_resource_id": "",
    }


def resolve(text: str, executor_input: Json, constants: Json) -> str:
    """Return text with its placeholders replaced; raise ValueError for one that is not supported.

    Args:
        executor_input: the task's ExecutorInput as JSON.
        constants: values of placeholders that are not in it, by path: {"pipeline_job_name": "x"}.
    """

    def replace(match: re.Match[str]) -> str:
        path = match["path"] or ""
        # {{$.json_escape[1]}} is the whole ExecutorInput.
        times = int(match["times"] or 0)
        if escape := re.fullmatch(r"json_escape\[(\d+)\]", path):
            path, times = "", int(escape[1])
        value = _look_up(path, executor_input, constants)
        result = value if isinstance(value, str) else json.dumps(value)
        for _ in range(times):
            result = json.dumps(result)[1:-1]
        return result

    return _PLACEHOLDER.sub(replace, text)


def resolve_command(words: Sequence[str], executor_input: Json, constants: Json) -> list[str]:
    """Return a container's command and arguments with all placeholders replaced."""
    inputs = executor_input["inputs"]
    present = {*inputs.get("parameterValues", {}), *inputs.get("artifacts", {})}
    # A word may be a Concat or IfPresent structure.
    parts = [json.loads(word) if word.startswith(_STRUCTURES) else word for word in words]
    expanded = [word for part in parts for word in _expand(part, present)]
    return [resolve(word, executor_input, constants) for word in expanded]


def _look_up(path: str, executor_input: Json, constants: Json) -> Any:
    """Return the value that a placeholder's path names; None if the input was not given."""
    if not path:
        return executor_input
    if path in constants:
        return constants[path]
    if path in ("outputs.output_file", "outputMetadataUri"):
        return executor_input["outputs"]["outputFile"]
    match = _PATH.fullmatch(path)
    if not match:
        raise ValueError(f"the placeholder {{{{$.{path}}}}} is not supported")
    side = executor_input[match["side"]]
    if match["kind"] == "parameters":
        if match["side"] == "inputs":
            return side.get("parameterValues", {}).get(match["name"])
        return side["parameters"][match["name"]]["outputFile"]
    artifacts = side.get("artifacts", {}).get(match["name"], {}).get("artifacts")
    if not artifacts:
        return None
    if match["field"]:
        return artifacts[0]["uri"]
    metadata = artifacts[0].get("metadata", {})
    return metadata.get(match["key"]) if match["key"] else metadata


def _expand(part: Any, present: set[str]) -> Iterator[str]:
    """Yield the words that a structure stands for, given the names of the inputs present."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for element in part:
            yield from _expand(element, present)
    elif "Concat" in part:
        yield "".join(word for element in part["Concat"] for word in _expand(element, present))
    else:
        choice = part["IfPresent"]
        chosen = choice["Then"] if choice["InputName"] in present else choice.get("Else")
        if chosen is not None:
            yield from _expand(chosen, present)
