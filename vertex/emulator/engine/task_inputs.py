"""Inputs and outputs of a task: parameters, artifacts, ExecutorInput, ExecutorOutput.

Values are JSON. A parameter is a plain value, an artifact an `Artifact`, a list of artifacts a
list of them.
"""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

from vertex.emulator.engine import placeholders
from vertex.emulator.engine.spec_rules import find_value_problem
from vertex.facts.json_numbers import Json, to_whole_numbers

ABSENT = object()
"""The value of an optional input that is not given."""
UNTAKEN = object()
"""The value of an input whose producer is in a branch that was not taken."""
MISSING = (ABSENT, UNTAKEN)


@dataclasses.dataclass(frozen=True)
class Artifact:
    """An artifact: a RuntimeArtifact of a PipelineSpec."""

    name: str
    uri: str
    schema_title: str = "system.Artifact"
    schema_version: str = ""
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the artifact as a RuntimeArtifact."""
        kind = {"schemaTitle": self.schema_title, "schemaVersion": self.schema_version}
        return {"name": self.name, "type": kind, "uri": self.uri, "metadata": self.metadata}

    @classmethod
    def from_json(cls, content: Json, kind: Json) -> "Artifact":
        """Return the artifact of a RuntimeArtifact, which may lack its type, `kind`."""
        kind = content.get("type") or kind
        return cls(
            name=content.get("name", ""),
            uri=content.get("uri", ""),
            schema_title=kind.get("schemaTitle", "system.Artifact"),
            schema_version=kind.get("schemaVersion", ""),
            metadata=dict(content.get("metadata", {})),
        )


def list_artifacts(value: Any) -> list[Artifact]:
    """Return the artifacts of an input or output; [] if it is a parameter."""
    listed = value if isinstance(value, list) else [value]
    return [element for element in listed if isinstance(element, Artifact)]


def defaults_of(component: Json) -> dict[str, Any]:
    """Return the default values of a component's parameters."""
    return {
        name: definition["defaultValue"]
        for name, definition in component.get("inputDefinitions", {}).get("parameters", {}).items()
        if "defaultValue" in definition
    }


def list_items(task: Json, inputs: Json) -> tuple[str, list[Any]]:
    """Return the name of the input that a loop sets in each iteration, and its values."""
    iterator = task.get("parameterIterator") or task["artifactIterator"]
    match iterator["items"]:
        case {"raw": text}:
            items = json.loads(text)
        case {"inputParameter": name} | {"inputArtifact": name}:
            items = inputs[name]
            items = json.loads(items) if isinstance(items, str) else items
        case other:
            raise ValueError(f"the loop's items {json.dumps(other)} are not supported")
    return iterator["itemInput"], items


def build_executor_input(
    component: Json, inputs: Json, *, folder: pathlib.Path, artifacts: str, constants: Json
) -> dict[str, Any]:
    """Return a task's ExecutorInput.

    Args:
        component: the task's ComponentSpec.
        inputs: values of its inputs.
        folder: where the task writes its output parameters.
        artifacts: path or URI of the folder of its output artifacts.
        constants: as in `placeholders.resolve`.
    """
    declared = component.get("inputDefinitions", {}).get("artifacts", {})
    outputs = component.get("outputDefinitions", {})
    parameters = defaults_of(component)
    lists: dict[str, Any] = {}
    for name, value in inputs.items():
        if value in MISSING:
            continue
        given = list_artifacts(value)
        if given or name in declared:
            lists[name] = {"artifacts": [artifact.to_json() for artifact in given]}
        else:
            parameters[name] = value
    executor_input = {
        "inputs": {"parameterValues": to_whole_numbers(parameters), "artifacts": lists},
        "outputs": {
            "parameters": {
                name: {"outputFile": str(folder / name)} for name in outputs.get("parameters", {})
            },
            "artifacts": {
                name: {
                    "artifacts": [
                        Artifact.from_json(
                            {"name": name, "uri": f"{artifacts}/{name}"}, definition["artifactType"]
                        ).to_json()
                    ]
                }
                for name, definition in outputs.get("artifacts", {}).items()
            },
            "outputFile": str(folder / "executor_output.json"),
        },
    }
    # A parameter may have been composed from others: "{{$.inputs.parameters['a']}}-b". One that
    # contains the whole ExecutorInput comes last.
    values: dict[str, Any] = executor_input["inputs"]["parameterValues"]
    for name in sorted(values, key=lambda name: placeholders.has_whole(values[name])):
        values[name] = placeholders.resolve_json(values[name], executor_input, constants)
    return executor_input


def read_outputs(
    component: Json, executor_input: Json, to_local: Callable[[str], str]
) -> dict[str, Any]:
    """Return the outputs that a task has written; raise ValueError if they can't be read.

    `to_local` returns the path on this machine of a URI in a bucket.
    """
    definitions = component.get("outputDefinitions", {})
    content: dict[str, Any] = {}
    file = pathlib.Path(executor_input["outputs"]["outputFile"])
    if file.is_file():
        content = json.loads(file.read_text(encoding="utf-8"))
    outputs: dict[str, Any] = dict(content.get("parameterValues", {}))
    for name, definition in definitions.get("parameters", {}).items():
        path = pathlib.Path(executor_input["outputs"]["parameters"][name]["outputFile"])
        kind = definition["parameterType"]
        if name not in outputs:
            if not path.is_file():
                raise ValueError(f"its output {name} was not written: {path} does not exist")
            outputs[name] = _read_parameter(name, path.read_text(encoding="utf-8"), kind)
        if problem := find_value_problem(name, {"parameterType": kind}, outputs[name]):
            raise ValueError(f"it returned another type than it declares: {problem}")
        if kind == "NUMBER_INTEGER":
            outputs[name] = int(outputs[name])
    for name, definition in definitions.get("artifacts", {}).items():
        (given,) = executor_input["outputs"]["artifacts"][name]["artifacts"]
        written = content.get("artifacts", {}).get(name, {}).get("artifacts") or [{}]
        kind = definition["artifactType"]
        # The executor names what differs from the artifact that it was given.
        found = [
            Artifact.from_json(
                {**given, **{key: value for key, value in artifact.items() if value}}, kind
            )
            for artifact in written
        ]
        found = [dataclasses.replace(item, uri=to_local(item.uri)) for item in found]
        for artifact, described in zip(found, written, strict=True):
            _copy_custom_path(described.get("custom_path", ""), artifact.uri)
        outputs[name] = found if definition.get("isArtifactList") else found[0]
    return outputs


def _copy_custom_path(source: str, uri: str) -> None:
    """Copy what a component has written to an artifact's custom path to the artifact's own."""
    if source and pathlib.Path(source).is_dir():
        shutil.copytree(source, uri, dirs_exist_ok=True)
    elif source and pathlib.Path(source).is_file():
        shutil.copy(source, uri)


def import_artifact(importer: Json, inputs: Json, constants: Json) -> Artifact:
    """Return the artifact of an importer's task."""
    inputs = {name: placeholders.resolve_inputs(value, inputs) for name, value in inputs.items()}
    given = {"inputs": {"parameterValues": inputs}, "outputs": {"outputFile": ""}}
    uri = importer["artifactUri"]
    return Artifact.from_json(
        {
            "name": "artifact",
            "uri": uri["constant"] if "constant" in uri else inputs[uri["runtimeParameter"]],
            "metadata": placeholders.resolve_json(importer.get("metadata", {}), given, constants),
        },
        importer["typeSchema"],
    )


def _read_parameter(name: str, text: str, kind: str) -> Any:
    """Return the value of an output parameter's file, in which only a string is not JSON."""
    if kind == "STRING":
        return text
    try:
        return json.loads(text.lower() if kind == "BOOLEAN" else text)
    except ValueError:
        raise ValueError(f"the output {name} is not JSON of type {kind}: {text[:80]!r}") from None
