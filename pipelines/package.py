"""A compiled pipeline, build/<recipe>.yaml: its parameters, its tasks in order, its labels."""

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import yaml

from pipelines import version
from trainer.data import storage
from trainer.fields import convert
from vertex.errors import InputError
from vertex.registry.model_upload import MADE_BY

BUILD = pathlib.Path("build")
"""Folder of compiled recipes."""
_GOOGLES = "google_cloud_pipeline_components."

_TYPES: dict[str, type] = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "STRING": str,
    "BOOLEAN": bool,
    "LIST": list,
    "STRUCT": dict,
}


@dataclasses.dataclass(frozen=True)
class Package:
    """A compiled pipeline; its file is read when needed."""

    path: pathlib.Path

    @functools.cached_property
    def bytes(self) -> bytes:
        """Return the content of the file; raise InputError if it can't be read."""
        try:
            return storage.read(str(self.path))
        except OSError as error:
            raise InputError(
                f"{self.path} can't be read ({error.strerror}); compile its recipe first"
            ) from None

    @functools.cached_property
    def content(self) -> dict[str, Any]:
        """Return the parsed YAML; raise InputError if it is not one compiled pipeline."""
        try:
            (content,) = parse_documents(self.bytes)
            if content["root"]["dag"]["tasks"] and content["deploymentSpec"]["executors"]:
                return content
        except (yaml.YAMLError, KeyError, TypeError, ValueError):
            pass
        raise InputError(f"{self.path} is not a compiled pipeline; compile its recipe again")

    @functools.cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the file's bytes, in hexadecimal digits."""
        return hashlib.sha256(self.bytes).hexdigest()

    @property
    def recipe(self) -> str:
        """Return the name of the recipe that the pipeline was compiled from."""
        return self.path.stem

    @property
    def name(self) -> str:
        """Return the name of the pipeline, also that of its package in a repository."""
        return self.content["pipelineInfo"]["name"]

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the resources that the pipeline's runs create."""
        labels = {**MADE_BY, "recipe": self.recipe.lower(), "template": self.digest[:16]}
        commit = version.git_commit()
        return {**labels, "commit": commit} if commit else labels

    @property
    def image(self) -> str:
        """Return the image that the components share; empty if there are no components."""
        for container in self.containers:
            if not any(word.startswith(_GOOGLES) for word in container["command"]):
                return container["image"]
        return ""

    @property
    def containers(self) -> list[dict[str, Any]]:
        """Return the containers of the executors, beginning with the planning step's.

        The user's own steps, and steps with an accelerator, may have another image.
        """
        executors = self.content["deploymentSpec"]["executors"]
        keys = sorted(executors, key=lambda key: not key.startswith("exec-plan-"))
        return [executors[key]["container"] for key in keys if "container" in executors[key]]

    def arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters of a run: the file's defaults, overridden by `parameters`."""
        inputs = self.content["root"].get("inputDefinitions", {}).get("parameters", {})
        assert parameters.keys() <= inputs.keys()
        defaults = {
            name: definition["defaultValue"]
            for name, definition in inputs.items()
            if "defaultValue" in definition
        }
        return {
            name: convert(name, value, _TYPES[inputs[name]["parameterType"]])
            for name, value in {**defaults, **parameters}.items()
        }


def read_images(path: pathlib.Path) -> tuple[str, str]:
    """Return the image of a compiled pipeline, and the image of its step with an accelerator.

    The second is empty if it equals the first; both are empty if the file can't be read.
    """
    try:
        package = Package(path)
        accelerated = (
            container
            for container in package.containers
            if "accelerator" in container.get("resources", {})
        )
        gpu_image = next(accelerated, {}).get("image", "")
        return package.image, gpu_image if gpu_image != package.image else ""
    except (InputError, LookupError, TypeError, AttributeError):
        return "", ""


def parse_documents(text: str | bytes) -> list[Any]:
    """Parse the YAML documents of `text`, with the C loader if PyYAML has it."""
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
