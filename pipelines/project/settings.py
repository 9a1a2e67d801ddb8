"""Settings of Google Cloud: project, region, bucket and others.

A value comes from the first of these that has one: a flag, the environment, a settings file
(vertex.toml, or the file that VERTEX_SETTINGS names), gcloud's configuration.
Nothing is read before `load` is called.
"""

import configparser
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from components.planning.worker_pools import IMAGE, MachineOptions, check_gpu_image
from pipelines.parameters import ParameterSet
from pipelines.recipe import Recipe
from trainer import fields
from trainer.data import storage
from trainer.fields import option
from trainer.toml_reader import parse_toml
from vertex.client.vertex_client import ENDPOINT_VARIABLES
from vertex.errors import InputError
from vertex.facts import resource_names
from vertex.facts.emulation import TRANSPORT_VARIABLE

FILE_NAME = "vertex.toml"
FILE_VARIABLE = "VERTEX_SETTINGS"

_VARIABLES = {
    "project": ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"),
    "region": ("GOOGLE_CLOUD_REGION", "CLOUDSDK_AI_REGION", "CLOUDSDK_COMPUTE_REGION"),
    "endpoint": ENDPOINT_VARIABLES,
    "transport": (TRANSPORT_VARIABLE,),
}
"""Environment variables by setting; the default is VERTEX_ and the setting's name."""
_GCLOUD = {
    "project": ("core/project",),
    "region": ("ai/region", "compute/region"),
    "endpoint": ("api_endpoint_overrides/aiplatform",),
}
"""Properties of gcloud's configuration by setting, in order of precedence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every command that calls Google Cloud."""

    project: str = option("", help="Google Cloud project.")
    region: str = option("us-central1", help="Region of Vertex AI.")
    pipeline_root: str = option("", help="Folder that runs write to: gs://BUCKET/FOLDER.")
    image: str = option("", help="Container image of components and replicas.")
    gpu_image: str = option("", help="Container image of replicas that have accelerators.")
    serving_image: str = option(
        "",
        help="Container image that serves registered models; runs that register models need it.",
    )
    template_repository: str = option(
        "",
        help="Where to upload compiled pipelines: https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY, "
        "or gs://BUCKET/FOLDER.",
    )
    service_account: str = option("", help="Account that runs and replicas act as.")
    network: str = option("", help="Network to peer with: projects/NUMBER/global/networks/NAME.")
    encryption_key: str = option("", help="Cloud KMS key of runs, jobs, models and endpoints.")
    tensorboard: str = option(
        "", help="Vertex AI TensorBoard: projects/NUMBER/locations/REGION/tensorboards/ID."
    )
    labels: dict = option({}, help="Labels for all resources that are created: a=b,c=d.")
    endpoint: str = option(
        "", help="Another endpoint for the Vertex AI API, such as http://127.0.0.1:8080."
    )
    transport: str = option(
        "",
        help="rest or grpc; default: rest for an endpoint on this machine, else grpc.",
        choices=("", "rest", "grpc"),
    )

    def __post_init__(self) -> None:
        resource_names.check_names(vars(self))

    @property
    def parent(self) -> str:
        """Return the parent resource of runs, jobs, schedules and models."""
        return f"projects/{self.project}/locations/{self.region}"

    @property
    def bucket(self) -> str:
        """Return the bucket of the pipeline root; empty if there is none."""
        return urlsplit(self.pipeline_root).netloc

    def check_gpu_images(self, recipe: Recipe, machines: MachineOptions | None = None) -> None:
        """Raise InputError if replicas or the evaluation use accelerators, but no GPU image is set.

        The evaluation's image is compiled into the pipeline: a run's parameter can't set it.
        """
        setting = f"set VERTEX_GPU_IMAGE, or write gpu_image = ... into {FILE_NAME}"
        if machines:
            image = machines.gpu_image_uri or self.gpu_image
            remedy = f"give --set gpu_image_uri=IMAGE, {setting}"
            check_gpu_image(machines.accelerator_type, image, remedy)
        image = recipe.parameters.machines.gpu_image_uri or self.gpu_image
        remedy = f"write gpu_image_uri = ... into the recipe, {setting}"
        check_gpu_image(recipe.run_options.evaluation_accelerator, image, remedy)

    def list_missing(
        self, recipe: Recipe, parameters: ParameterSet, compiled_image: str
    ) -> Iterator[str]:
        """Yield what a run on Vertex AI lacks: settings, and the image for GPUs."""
        image = self.image or compiled_image.replace(IMAGE, "")
        needed = {"project": self.project, "pipeline_root": self.pipeline_root, "image": image}
        if parameters.registry.registers:
            needed["serving_image"] = parameters.registry.serving_image or self.serving_image
        if names := ", ".join(name for name, value in needed.items() if not value):
            yield f"for a run on Vertex AI, set {names} in {FILE_NAME}"
        try:
            self.check_gpu_images(recipe, parameters.machines)
        except InputError as error:
            yield str(error)

    def require(self, *names: str) -> "Settings":
        """Return itself; raise InputError for the first of `names` that has no value."""
        for name in names:
            if not getattr(self, name):
                raise InputError(self.describe_missing(name))
        return self

    @staticmethod
    def describe_missing(name: str) -> str:
        """Return a message that says that a setting has no value, and how to set it."""
        return (
            f"no {name}: give {option_of(name)}, set {variables_of(name)[0]}, or write {name} = "
            f"... into {FILE_NAME}"
        )


def option_of(name: str) -> str:
    """Return a setting's option: --pipeline-root for pipeline_root."""
    return f"--{name.replace('_', '-')}"


def variables_of(name: str) -> tuple[str, ...]:
    """Return a setting's environment variables in order of precedence."""
    return _VARIABLES.get(name, (f"VERTEX_{name.upper()}",))


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], directory: Path = Path()
) -> Settings:
    """Gather the settings; ignore flags that are None or empty.

    Raises InputError for a file that can't be read, an unknown name or an invalid value; the
    message says where the value came from.
    """
    texts = {}
    for field in dataclasses.fields(Settings):
        if given := [*filter(None, map(environment.get, variables_of(field.name)))]:
            texts[field.name] = given[0]
    layers = [
        ("gcloud's configuration", _read_gcloud(environment)),
        *_read_files(environment, directory),
        ("the environment", texts),
        ("the command line", {name: value for name, value in flags.items() if value}),
    ]
    values: dict[str, Any] = {}
    for origin, layer in layers:
        try:
            if isinstance(layer.get("labels"), str):
                layer["labels"] = _parse_labels(layer["labels"])
            fields.build(Settings, layer)
        except InputError as error:
            raise InputError(f"{origin}: {error}") from None
        values.update(layer)
    return fields.build(Settings, values)


def _parse_labels(text: str) -> Any:
    """Parse a=b,c=d into a dictionary; return a JSON object's text as it is."""
    if text.lstrip().startswith("{"):
        return text
    labels: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"labels: {pair!r} is not KEY=VALUE; use team=vision,env=dev")
        if labels.setdefault(key.strip(), value.strip()) != value.strip():
            raise InputError(f"labels: {key.strip()} has two values in {text!r}; give it one")
    return labels


def _read_files(
    environment: Mapping[str, str], directory: Path
) -> list[tuple[str, dict[str, Any]]]:
    named = environment.get(FILE_VARIABLE, "")
    path = Path(named) if named else directory / FILE_NAME
    if not named and not os.path.lexists(path):
        return []
    try:
        return [(str(path), parse_toml(storage.read(str(path)), str(path)))]
    except OSError as error:
        origin = f"{FILE_VARIABLE}={named}: the file" if named else str(path)
        raise InputError(
            f"{origin} can't be read ({error.strerror}); fix it, or remove it and give the "
            "settings as options"
        ) from None


def _read_gcloud(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read gcloud's files: $CLOUDSDK_CONFIG or ~/.config/gcloud, configurations/config_NAME."""
    root = Path(
        environment.get("CLOUDSDK_CONFIG") or f"{environment.get('HOME', '')}/.config/gcloud"
    )
    active, parser = root / "active_config", configparser.ConfigParser(interpolation=None)
    try:
        name = environment.get("CLOUDSDK_ACTIVE_CONFIG_NAME", "")
        if not name:
            name = active.read_text().strip() if active.is_file() else "default"
        parser.read(root / "configurations" / f"config_{name}", encoding="utf-8")
    except (OSError, configparser.Error, UnicodeDecodeError):
        # gcloud itself reports a broken configuration.
        return {}
    values: dict[str, Any] = {}
    for name, places in _GCLOUD.items():
        for place in reversed(places):
            if value := parser.get(*place.split("/"), fallback=""):
                values[name] = value
    return values
