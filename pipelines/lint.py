"""Rules that a compiled pipeline must keep to run on Vertex AI.

KFP compiles, and the official protos accept, documents that fail only when they run: an
artifact where a parameter is meant, an output that its producer does not have, a reference
that was pasted into a text. `check_pipeline` finds those, `check_worker_pools` what the
launcher of CustomTrainingJobOp and the CustomJob API make of a list of pools.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineDeploymentConfig, PipelineSpec

from trainer.machines.worker_pools import ROLES

_PLACEHOLDER = re.compile(r"\{\{\$\.(inputs|outputs)\.(parameters|artifacts)\['([^']+)'\]")
_ANY_ARTIFACT = "system.Artifact"


class InvalidPipelineError(Exception):
    """A pipeline breaks a rule; its message names the place and the rule. A bug of ours."""


def check_pipeline(text: str) -> None:
    """Raises InvalidPipelineError unless `text` is one pipeline that is whole and consistent."""
    found = documents(text)
    if len(found) != 1:
        raise InvalidPipelineError(
            f"{len(found)} YAML documents; the SDK and Vertex AI take exactly one"
        )
    (pipeline,) = found
    try:
        json_format.ParseDict(pipeline, PipelineSpec())
        json_format.ParseDict(pipeline["deploymentSpec"], PipelineDeploymentConfig())
    except (json_format.ParseError, KeyError, TypeError) as error:
        raise InvalidPipelineError(f"not a PipelineSpec: {error!r}") from None
    for place, value in _texts(pipeline, ""):
        if "{{channel:" in value:
            raise InvalidPipelineError(
                f"{place}: an output was pasted into a text: {value[:120]!r}"
            )
    _Pipeline(pipeline).check()


def documents(text: str) -> list[Any]:
    """Return the YAML documents of `text`, by the loader in C where PyYAML was built with it."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def check_worker_pools(pools: list[dict[str, Any]]) -> None:
    """Raises InvalidPipelineError where the launcher or a CustomJob would misread `pools`."""
    if not 1 <= len(pools) <= len(ROLES):
        raise InvalidPipelineError(f"{len(pools)} worker pools; there must be 1 to {len(ROLES)}")
    for index, pool in enumerate(pools):
        place = f"worker_pool_specs[{index}]"
        if not pool or not pool.get("replica_count"):
            raise InvalidPipelineError(
                f"{place} is empty: the launcher drops it, and the pools after it change roles"
            )
        _check_keys(place, pool)
        machine = pool.get("machine_spec", {})
        counts = {
            "replica_count": pool["replica_count"],
            "accelerator_count": machine.get("accelerator_count", 1),
            "boot_disk_size_gb": pool.get("disk_spec", {}).get("boot_disk_size_gb", 1),
        }
        for name, count in counts.items():
            if type(count) is not int:
                raise InvalidPipelineError(f"{place}: {name}={count!r} must be an integer")
        if ("accelerator_type" in machine) != ("accelerator_count" in machine):
            raise InvalidPipelineError(
                f"{place}: accelerator_type and accelerator_count go together"
            )
        if machine.get("accelerator_count", 1) < 1:
            raise InvalidPipelineError(
                f"{place}: the launcher drops accelerator_count=0; leave both out"
            )
        if not machine.get("machine_type"):
            raise InvalidPipelineError(f"{place}: no machine_type")
        if not pool.get("container_spec", {}).get("image_uri"):
            raise InvalidPipelineError(f"{place}: no image_uri")
    if pools[0]["replica_count"] != 1:
        raise InvalidPipelineError(
            f"{pools[0]['replica_count']} chiefs; the first pool must have one replica"
        )


def _check_keys(place: str, value: Any) -> None:
    """Refuse camelCase: the launcher passes keys on, and the protos know snake_case alone."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != key.lower():
                raise InvalidPipelineError(f"{place}: {key!r} must be snake_case")
            _check_keys(f"{place}.{key}", inner)


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
    """A compiled pipeline, and the references within it."""

    def __init__(self, pipeline: dict[str, Any]) -> None:
        self._root = pipeline["root"]
        self._components = pipeline.get("components", {})
        self._executors = pipeline["deploymentSpec"].get("executors", {})

    def check(self) -> None:
        self._check_dag("root", self._root)
        for name, component in self._components.items():
            if "dag" in component:
                self._check_dag(name, component)
            else:
                self._check_executor(name, component)

    def _check_executor(self, name: str, component: dict[str, Any]) -> None:
        label = component.get("executorLabel", "")
        if label not in self._executors:
            raise InvalidPipelineError(f"{name}: no executor {label!r}")
        container = self._executors[label].get("container")
        if container is None:
            return
        if not container.get("image"):
            raise InvalidPipelineError(f"{label}: no image")
        for _, text in _texts([container.get("command", []), container.get("args", [])], ""):
            for direction, kind, key in _PLACEHOLDER.findall(text):
                definitions = component.get(f"{direction.removesuffix('s')}Definitions", {})
                if key not in definitions.get(kind, {}):
                    raise InvalidPipelineError(
                        f"{label}: refers to {direction} {key!r}, which {name} lacks"
                    )

    def _check_dag(self, name: str, component: dict[str, Any]) -> None:
        tasks = component["dag"]["tasks"]
        for task_name, task in tasks.items():
            place = f"{name}/{task_name}"
            for other in task.get("dependentTasks", []):
                if other not in tasks:
                    raise InvalidPipelineError(
                        f"{place}: depends on {other!r}, which is no task beside it"
                    )
            for kind in ("parameters", "artifacts"):
                self._check_inputs(place, kind, component, task)
        for kind in ("parameters", "artifacts"):
            for key, output in component["dag"].get("outputs", {}).get(kind, {}).items():
                for selector in self._selectors(output):
                    self._produced(f"{name} output {key}", kind, tasks, *selector)

    def _check_inputs(
        self, place: str, kind: str, component: dict[str, Any], task: dict[str, Any]
    ) -> None:
        wanted = self._component(place, task).get("inputDefinitions", {}).get(kind, {})
        given = task.get("inputs", {}).get(kind, {})
        for key in given.keys() - wanted.keys():
            raise InvalidPipelineError(
                f"{place}: gives {key!r}, which is none of the component's {kind}"
            )
        for key, definition in wanted.items():
            optional = definition.get("isOptional") or "defaultValue" in definition
            if key not in given and not optional:
                raise InvalidPipelineError(f"{place}: {key!r} of its {kind} is given nothing")
        for key, source in given.items():
            definition = self._given(f"{place} {key}", kind, component, source)
            if definition is not None and not _fits(definition, wanted[key]):
                raise InvalidPipelineError(
                    f"{place}: {key!r} is a {_type(wanted[key])}, but is given a "
                    f"{_type(definition)}"
                )

    def _given(
        self, place: str, kind: str, component: dict[str, Any], source: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Return the definition of what an input is given; None for a constant or a state."""
        singular = "Parameter" if kind == "parameters" else "Artifact"
        if f"taskOutput{singular}" in source:
            output = source[f"taskOutput{singular}"]
            producer, key = output["producerTask"], output[f"output{singular}Key"]
            return self._produced(place, kind, component["dag"]["tasks"], producer, key)
        if f"componentInput{singular}" in source:
            key = source[f"componentInput{singular}"]
            definitions = component.get("inputDefinitions", {}).get(kind, {})
            if key not in definitions:
                raise InvalidPipelineError(
                    f"{place}: takes {key!r}, which is none of the enclosing {kind}"
                )
            return definitions[key]
        if "runtimeValue" in source or "taskFinalStatus" in source:
            return None
        raise InvalidPipelineError(
            f"{place}: is given {', '.join(source)} where one of the {kind} is meant"
        )

    def _produced(
        self, place: str, kind: str, tasks: dict[str, Any], producer: str, key: str
    ) -> dict[str, Any]:
        if producer not in tasks:
            raise InvalidPipelineError(
                f"{place}: comes from {producer!r}, which is no task beside it"
            )
        outputs = self._component(place, tasks[producer]).get("outputDefinitions", {})
        if key not in outputs.get(kind, {}):
            others = [other for other, definitions in outputs.items() if key in definitions]
            hint = f"; it is one of its {others[0]}" if others else ""
            raise InvalidPipelineError(
                f"{place}: {producer!r} has no {key!r} among its {kind}{hint}"
            )
        return outputs[kind][key]

    def _component(self, place: str, task: dict[str, Any]) -> dict[str, Any]:
        name = task.get("componentRef", {}).get("name", "")
        if name not in self._components:
            raise InvalidPipelineError(f"{place}: no component {name!r}")
        return self._components[name]

    @staticmethod
    def _selectors(output: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the (producer, key) pairs of a dag's output."""
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
