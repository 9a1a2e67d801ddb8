"""Resolve the placeholders of a PipelineSpec, such as {{$.inputs.parameters['epochs']}}.

https://www.kubeflow.org/docs/components/pipelines/user-guides/components/container-components
"""

import datetime
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from vertex.facts.json_numbers import Json

_PLACEHOLDER = re.compile(r"\{\{\$(?:\.(?P<path>[^{}]*?))?(?:\.json_escape\[(?P<times>\d+)\])?\}\}")
_PATH = re.compile(
    r"(?P<side>inputs|outputs)\.(?P<kind>parameters|artifacts)\['(?P<name>[^']+)'\]"
    r"(?:\.(?P<field>uri|path|output_file)|\.(?P<metadata>metadata)(?:\['(?P<key>[^']+)'\])?)?"
)
_PARAMETER = re.compile(
    r"\{\{\$\.(?P<path>inputs\.parameters\['[^']+'\])(?:\.json_escape\[(?P<times>\d+)\])?\}\}"
)
_WHOLE = re.compile(r"json_escape\[(\d+)\]")
_CHANNEL = re.compile(r"\{\{channel:[^{}]*\}\}")
"""Placeholders of KFP's compiler that it leaves where it does not look for them."""
_STRUCTURES = ('{"Concat": ', '{"IfPresent": ')
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_OF_TASK = ("pipeline_task_name", "pipeline_task_uuid", "pipeline_root")
_OF_OUTPUT = ("outputs.output_file", "outputMetadataUri")


def make_constants(
    run_name: str,
    project: str,
    location: str,
    created: datetime.datetime | None = None,
    scheduled: datetime.datetime | None = None,
) -> dict[str, str]:
    """Return the placeholders that are equal for all tasks of a run, by path.

    `created` is the time of the run's creation, by default now, and `scheduled` that for which a
    schedule created it, by default `created`. Both are in UTC.
    """
    created = created or datetime.datetime.now(datetime.UTC)
    return {
        "pipeline_job_name": run_name,
        "pipeline_job_uuid": run_name,
        "pipeline_job_resource_name": f"projects/{project}/locations/{location}/pipelineJobs/"
        f"{run_name}",
        "pipeline_job_create_time_utc": f"{created:{_TIME}}",
        "pipeline_job_schedule_time_utc": f"{scheduled or created:{_TIME}}",
        "pipeline_google_cloud_project_id": project,
        "pipeline_google_cloud_location": location,
        "pipeline_service_account": "",
        "pipeline_persistent_resource_id": "",
    }


_CONSTANTS = (*make_constants("", "", ""), *_OF_TASK, *_OF_OUTPUT)


def is_in(value: Any) -> bool:
    """Return whether JSON contains a placeholder."""
    return bool(_PLACEHOLDER.search(json.dumps(value, ensure_ascii=False)))


def has_whole(value: Any) -> bool:
    """Return whether JSON contains a placeholder of the whole ExecutorInput."""
    found = _PLACEHOLDER.finditer(json.dumps(value, ensure_ascii=False))
    return any(not match["path"] or _WHOLE.fullmatch(match["path"]) for match in found)


def find_problem(value: Any, inputs: Container[str]) -> str:
    """Return an error message for a placeholder in JSON that has no value; else "".

    `inputs` are the names of the inputs of its task.
    """
    text = json.dumps(value, ensure_ascii=False)
    if left := _CHANNEL.search(text):
        return f"{left[0]} was not compiled to a placeholder; use it as a value, not as a key"
    for match in _PLACEHOLDER.finditer(text):
        path = match["path"] or ""
        if not path or _WHOLE.fullmatch(path) or path in _CONSTANTS:
            continue
        known = _PATH.fullmatch(path)
        if not known:
            return f"the placeholder {match[0]} is not supported"
        if known["side"] == "inputs" and known["name"] not in inputs:
            return f"the placeholder {match[0]} names an input that is not given"
    return ""


def resolve(
    text: str,
    executor_input: Json,
    constants: Json,
    *,
    nested: bool = False,
    pattern: re.Pattern[str] = _PLACEHOLDER,
) -> str:
    """Return text with its placeholders replaced; raise ValueError for one that is not supported.

    Args:
        executor_input: the task's ExecutorInput as JSON.
        constants: values of placeholders that are not in it, by path: {"pipeline_job_name": "x"}.
        nested: the text is a value in a list or struct, whose dump as JSON escapes it once.
        pattern: of the placeholders that are replaced.
    """

    def replace(match: re.Match[str]) -> str:
        path = match["path"] or ""
        # {{$.json_escape[1]}} is the whole ExecutorInput.
        times = int(match["times"] or 0)
        if escape := _WHOLE.fullmatch(path):
            path, times = "", int(escape[1])
        value = _look_up(path, executor_input, constants)
        result = value if isinstance(value, str) else json.dumps(value)
        for _ in range(times - nested):
            result = json.dumps(result)[1:-1]
        return result

    return pattern.sub(replace, text)


def resolve_json(value: Any, executor_input: Json, constants: Json, **options: Any) -> Any:
    """Return JSON with the placeholders in its texts replaced, at any depth, as `resolve` does.

    In a list or struct, a text that is no more than the placeholder of a parameter becomes the
    parameter's value, such as a number.
    """

    deeper = {**options, "nested": True}

    def inner(item: Any) -> Any:
        return resolve_json(item, executor_input, constants, **deeper)

    if isinstance(value, str):
        alone = _PARAMETER.fullmatch(value) if options.get("nested") else None
        if alone and not alone["times"]:
            return _look_up(alone["path"], executor_input, constants)
        return resolve(value, executor_input, constants, **options)
    if isinstance(value, Mapping):
        return {
            resolve(key, executor_input, constants, **deeper): inner(item)
            for key, item in value.items()
        }
    return [inner(item) for item in value] if isinstance(value, list) else value


def resolve_inputs(value: Any, inputs: Json) -> Any:
    """Return JSON with the values of parameters in place of their placeholders alone.

    The tasks of a group have other inputs than the group, so the group's are resolved before.
    """
    given = {"inputs": {"parameterValues": inputs}}
    return resolve_json(value, given, {}, pattern=_PARAMETER)


def resolve_command(words: Sequence[str], executor_input: Json, constants: Json) -> list[str]:
    """Return a container's command and arguments with all placeholders replaced."""
    inputs = executor_input["inputs"]
    values = {**inputs.get("parameterValues", {}), **inputs.get("artifacts", {})}
    present = {name for name, value in values.items() if value is not None}
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
    if path in _OF_OUTPUT:
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
    if not (match["field"] or match["metadata"]):
        return artifacts
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
