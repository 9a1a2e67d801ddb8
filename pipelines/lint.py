"""Rules that a compiled pipeline must follow to run on Vertex AI.

KFP compiles, and the official protos accept, documents that fail only when they run: an artifact
in place of a parameter, an output that its producer does not have, a reference inside a text.
"""

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineDeploymentConfig, PipelineSpec

from pipelines.package import documents

_PLACEHOLDER = re.compile(r"\{\{\$\.(inputs|outputs)\.(parameters|artifacts)\['([^']+)'\]")
_ANY_ARTIFACT = "system.Artifact"
_KINDS = {"parameters": "Parameter", "artifacts": "Artifact"}


class InvalidPipelineError(Exception):
    """A compiled pipeline breaks a rule, which is a bug of this project.

    The message names the place and the rule.
    """


def _require(holds: Any, rule: str) -> None:
    if not holds:
        raise InvalidPipelineError(rule)


def check_pipeline(text: str) -> None:
    """Raise InvalidPipelineError unless `text` is one complete and consistent pipeline."""
    found = documents(text)
    _require(
        len(found) == 1, f"{len(found)} YAML documents; the SDK and Vertex AI take exactly one"
    )
    (pipeline,) = found
    try:
        json_format.ParseDict(pipeline, PipelineSpec())
        json_format.ParseDict(pipeline["deploymentSpec"], PipelineDeploymentConfig())
    except (json_format.ParseError, KeyError, TypeError) as error:
        raise InvalidPipelineError(f"not a PipelineSpec: {error!r}") from None
    for place, value in _texts(pipeline, ""):
        pasted = f"{place}: a text contains a reference to an output: {value[:120]!r}"
        _require("{{channel:" not in value, pasted)
    _Pipeline(pipeline).check()


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{place}[{index}]")


class _Pipeline:
    """A compiled pipeline and its internal references."""

    def __init__(self, pipeline: dict[str, Any]) -> None:
        self._root = pipeline["root"]
        self._components = pipeline.get("components", {})
        self._executors = pipeline["deploymentSpec"].get("executors", {})

    def check(self) -> None:
        for name, component in {"root": self._root, **self._components}.items():
            (self._check_dag if "dag" in component else self._check_executor)(name, component)

    def _check_executor(self, name: str, component: dict[str, Any]) -> None:
        label = component.get("executorLabel", "")
        _require(label in self._executors, f"{name}: no executor {label!r}")
        container = self._executors[label].get("container")
        if container is None:
            return
        _require(container.get("image"), f"{label}: no image")
        for _, text in _texts([container.get("command", []), container.get("args", [])], ""):
            for direction, kind, key in _PLACEHOLDER.findall(text):
                definitions = component.get(f"{direction.removesuffix('s')}Definitions", {})
                lacks = f"{label}: refers to {direction} {key!r}, which {name} lacks"
                _require(key in definitions.get(kind, {}), lacks)

    def _check_dag(self, name: str, component: dict[str, Any]) -> None:
        tasks = component["dag"]["tasks"]
        for task_name, task in tasks.items():
            place = f"{name}/{task_name}"
            for other in task.get("dependentTasks", []):
                alone = f"{place}: depends on {other!r}, which is not a task of this DAG"
                _require(other in tasks, alone)
            for kind in _KINDS:
                self._check_inputs(place, kind, component, task)
        for kind in _KINDS:
            for key, output in component["dag"].get("outputs", {}).get(kind, {}).items():
                for selector in self._selectors(output):
                    self._produced(f"{name} output {key}", kind, tasks, *selector)

    def _check_inputs(
        self, place: str, kind: str, component: dict[str, Any], task: dict[str, Any]
    ) -> None:
        wanted = self._component(place, task).get("inputDefinitions", {}).get(kind, {})
        given = task.get("inputs", {}).get(kind, {})
        for key in given.keys() - wanted.keys():
            _require(False, f"{place}: gives {key!r}, which is not among the component's {kind}")
        for key, definition in wanted.items():
            optional = definition.get("isOptional") or "defaultValue" in definition
            _require(key in given or optional, f"{place}: {key!r} of its {kind} has no value")
        for key, source in given.items():
            definition = self._given(f"{place} {key}", kind, component, source)
            if definition is not None:
                types = f"is a {_type(wanted[key])}, but is given a {_type(definition)}"
                _require(_fits(definition, wanted[key]), f"{place}: {key!r} {types}")

    def _given(
        self, place: str, kind: str, component: dict[str, Any], source: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return the definition of an input's source; None for a constant or a final status."""
        singular = _KINDS[kind]
        if f"taskOutput{singular}" in source:
            output = source[f"taskOutput{singular}"]
            producer, key = output["producerTask"], output[f"output{singular}Key"]
            return self._produced(place, kind, component["dag"]["tasks"], producer, key)
        if f"componentInput{singular}" in source:
            key = source[f"componentInput{singular}"]
            definitions = component.get("inputDefinitions", {}).get(kind, {})
            outside = f"{place}: takes {key!r}, which is not among the enclosing {kind}"
            _require(key in definitions, outside)
            return definitions[key]
        other = f"{place}: is given {', '.join(source)} instead of one of the {kind}"
        _require("runtimeValue" in source or "taskFinalStatus" in source, other)
        return None

    def _produced(
        self, place: str, kind: str, tasks: dict[str, Any], producer: str, key: str
    ) -> dict[str, Any]:
        alone = f"{place}: comes from {producer!r}, which is not a task of this DAG"
        _require(producer in tasks, alone)
        outputs = self._component(place, tasks[producer]).get("outputDefinitions", {})
        others = [other for other, definitions in outputs.items() if key in definitions]
        hint = f"; it is one of its {others[0]}" if others else ""
        lacks = f"{place}: {producer!r} has no {key!r} among its {kind}{hint}"
        _require(key in outputs.get(kind, {}), lacks)
        return outputs[kind][key]

    def _component(self, place: str, task: dict[str, Any]) -> dict[str, Any]:
        name = task.get("componentRef", {}).get("name", "")
        _require(name in self._components, f"{place}: no component {name!r}")
        return self._components[name]

    @staticmethod
    def _selectors(output: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the (producer, key) pairs of a DAG's output."""
        parameter = output.get("valueFromParameter")
        choices = output.get("valueFromOneof", {}).get("parameterSelectors", [])
        for selector in [parameter] if parameter else choices:
            yield selector["producerSubtask"], selector["outputParameterKey"]
        for selector in output.get("artifactSelectors", []):
            yield selector["producerSubtask"], selector["outputArtifactKey"]


def _type(definition: dict[str, Any]) -> str:
    if "parameterType" in definition:
        return definition["parameterType"]
    title = definition["artifactType"].get("schemaTitle", _ANY_ARTIFACT)
    return f"list of {title}" if definition.get("isArtifactList") else title


def _fits(given: dict[str, Any], wanted: dict[str, Any]) -> bool:
    if "artifactType" in wanted and not wanted.get("isArtifactList"):
        return _type(wanted) in (_ANY_ARTIFACT, _type(given)) or _type(given) == _ANY_ARTIFACT
    return _type(given) == _type(wanted)
