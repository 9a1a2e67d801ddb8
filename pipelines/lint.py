"""Check a compiled pipeline for mistakes that KFP lets pass and that fail only when it runs."""

from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineDeploymentConfig, PipelineSpec

from pipelines.package import documents


class InvalidPipelineError(Exception):
    """A compiled pipeline breaks a rule, which is a bug of this project."""


def check_pipeline(text: str) -> None:
    """Raise InvalidPipelineError unless `text` is one pipeline whose references are resolved.

    KFP itself refuses values of a wrong type, missing inputs and outputs that do not exist.
    """
    found = documents(text)
    if len(found) != 1:
        raise InvalidPipelineError(
            f"{len(found)} YAML documents; the SDK and Vertex AI take exactly one"
        )
    try:
        json_format.ParseDict(found[0], PipelineSpec())
        json_format.ParseDict(found[0]["deploymentSpec"], PipelineDeploymentConfig())
    except (json_format.ParseError, KeyError, TypeError) as error:
        raise InvalidPipelineError(f"not a PipelineSpec: {error!r}") from None
    for number, line in enumerate(text.splitlines(), 1):
        # KFP replaces a reference in an argument, but not in a display name or a variable.
        if "{{channel:" in line:
            raise InvalidPipelineError(
                f"line {number}: a text contains a reference to an output: {line.strip()[:120]!r}"
            )
    for task, artifact in _misplaced_artifacts(found[0]):
        raise InvalidPipelineError(f"{task}: a dict or list contains the artifact {artifact!r}")


def _misplaced_artifacts(pipeline: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each task with an artifact inside of a parameter, and the artifact's name."""
    components = pipeline.get("components", {})
    for component in (pipeline["root"], *components.values()):
        tasks = component.get("dag", {}).get("tasks", {})
        for name, task in tasks.items():
            for source in task.get("inputs", {}).get("parameters", {}).values():
                if output := source.get("taskOutputParameter"):
                    key, producer = output["outputParameterKey"], tasks[output["producerTask"]]
                    outputs = components[producer["componentRef"]["name"]]["outputDefinitions"]
                    if key in outputs.get("artifacts", {}):
                        yield name, key
