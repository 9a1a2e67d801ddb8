"""Read from a compiled pipeline its parameters, and its tasks in order."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trainer.errors import InputError
from trainer.fields import convert, nearest

LAUNCHER_MODULE = "google_cloud_pipeline_components.container.v1.custom_job.launcher"
MAIL_MODULE = "google_cloud_pipeline_components.container.v1.vertex_notification_email.executor"

_TYPES: dict[str, type] = {
    "NUMBER_INTEGER": int,
    "NUMBER_DOUBLE": float,
    "STRING": str,
    "BOOLEAN": bool,
    "LIST": list,
    "STRUCT": dict,
}


@dataclasses.dataclass(frozen=True)
class PackageTask:
    """A task that a process carries out: its key in the YAML and its display name."""

    key: str
    display_name: str


@dataclasses.dataclass(frozen=True)
class Package:
    """A compiled pipeline, from its YAML file."""

    path: pathlib.Path
    content: dict[str, Any]

    @property
    def has_custom_jobs(self) -> bool:
        """Return whether some task launches a CustomJob."""
        executors = self.content["deploymentSpec"]["executors"].values()
        return any(
            LAUNCHER_MODULE in executor.get("container", {}).get("command", [])
            for executor in executors
        )

    @property
    def image(self) -> str:
        """The image of its components, which have one in common; empty without components."""
        containers = [
            executor["container"]
            for executor in self.content["deploymentSpec"]["executors"].values()
            if "container" in executor
        ]
        google = {LAUNCHER_MODULE, MAIL_MODULE}
        return next((c["image"] for c in containers if not google & {*c["command"]}), "")

    @property
    def tasks(self) -> list[PackageTask]:
        """Every task in the order of execution, those of nested DAGs in their place."""
        return list(self._tasks_of(self.content["root"]))

    def _tasks_of(self, component: Mapping[str, Any]) -> Iterator[PackageTask]:
        from kfp.local import graph_utils

        tasks = component["dag"]["tasks"]
        dependencies = {key: task.get("dependentTasks", []) for key, task in tasks.items()}
        for key in reversed(graph_utils.topological_sort(dependencies)):
            inner = self.content["components"][tasks[key]["componentRef"]["name"]]
            if "dag" in inner:
                yield from self._tasks_of(inner)
            else:
                yield PackageTask(key, display_names(self.content)[key])

    def arguments(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return all parameters of a run: the file's defaults, overridden by `parameters`.

        Raises:
            InputError: an unknown name, a wrong type, or no value where there must be one.
        """
        inputs = self.content["root"].get("inputDefinitions", {}).get("parameters", {})
        for name in parameters:
            if name not in inputs:
                raise InputError(
                    f"{self.path.name} has no parameter {name!r}{nearest(name, inputs)}"
                )
        arguments = {}
        for name, definition in inputs.items():
            if name in parameters:
                value = parameters[name]
            elif "defaultValue" in definition:
                value = definition["defaultValue"]
            elif definition.get("isOptional"):
                continue
            else:
                raise InputError(f"{self.path.name}: parameter {name!r} needs a value")
            kind = _TYPES.get(definition["parameterType"])
            arguments[name] = convert(name, value, kind) if kind else value
        return arguments


def display_names(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the display name of each task of a compiled pipeline, by its key."""
    dags = [content.get("root", {}), *content.get("components", {}).values()]
    return {
        key: task.get("taskInfo", {}).get("name", key)
        for dag in dags
        for key, task in dag.get("dag", {}).get("tasks", {}).items()
    }


def load(path: pathlib.Path) -> Package:
    """Reads a compiled pipeline.

    Raises:
        InputError: there is no such file, or it is not one compiled pipeline.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path} can't be read ({error.strerror}); compile its recipe first"
        ) from None
    try:
        # libyaml's loader, where there is one, takes a tenth of the time.
        content = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        package = Package(path=path, content=content)
        if not content["root"]["dag"]["tasks"] or not content["deploymentSpec"]["executors"]:
            raise KeyError
    except (yaml.YAMLError, KeyError, TypeError):
        raise InputError(f"{path} is not a compiled pipeline; compile its recipe again") from None
    return package
