"""Settings of Google Cloud: project, region, bucket and the rest, in one typed place.

A value comes from the first of these that has one: a flag, the environment, a file of
settings (vertex.toml, or the one that VERTEX_SETTINGS names), gcloud's own configuration.
Nothing is read before `load` is called.
"""

import configparser
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from components.vertex_client import ENDPOINT_VARIABLES, TRANSPORT_VARIABLE
from pipelines import resource_names
from trainer import fields
from trainer.errors import InputError
from trainer.machines.worker_pools import MachineOptions, check_gpu_image
from trainer.toml_reader import tomllib

FILE_NAME = "vertex.toml"
FILE_VARIABLE = "VERTEX_SETTINGS"


def _setting(
    help: str,
    form: str = "",
    *,
    default: Any = "",
    choices: tuple[str, ...] = (),
    variables: tuple[str, ...] = (),
    gcloud: tuple[str, ...] = (),
) -> Any:
    """Return a field of `Settings`.

    Args:
        form: as `resource_names.check` has it; empty: any text.
        variables: of the environment; default: VERTEX_ and the field's name.
        gcloud: its properties in gcloud's configuration.
    """
    field = fields.option(default, help=help, choices=choices)
    own = {"form": form, "variables": variables, "gcloud": gcloud}
    field.metadata = {**field.metadata, **own}
    return field


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every command that speaks to Google Cloud."""

    project: str = _setting(
        "Google Cloud project.",
        "project",
        variables=("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"),
        gcloud=("core/project",),
    )
    region: str = _setting(
        "Region of Vertex AI.",
        "region",
        default="us-central1",
        variables=("GOOGLE_CLOUD_REGION", "CLOUDSDK_AI_REGION", "CLOUDSDK_COMPUTE_REGION"),
        gcloud=("ai/region", "compute/region"),
    )
    pipeline_root: str = _setting("Where runs write: gs://BUCKET/FOLDER.", "pipeline_root")
    image: str = _setting("Container image of components and replicas.", "image")
    gpu_image: str = _setting("Container image of replicas that have accelerators.", "image")
    serving_image: str = _setting(
        "Container image that serves registered models; else Google's of TensorFlow 2.15.", "image"
    )
    template_repository: str = _setting(
        "Where compiled pipelines go: https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY, or "
        "gs://BUCKET/FOLDER.",
        "template_repository",
    )
    service_account: str = _setting("Account that runs and replicas act as.", "service_account")
    network: str = _setting(
        "Network to peer with: projects/NUMBER/global/networks/NAME.", "network"
    )
    encryption_key: str = _setting(
        "Cloud KMS key for all that is made.", "encryption_spec_key_name"
    )
    tensorboard: str = _setting(
        "Vertex AI TensorBoard: projects/NUMBER/locations/REGION/tensorboards/ID.", "tensorboard"
    )
    labels: dict = _setting("Labels of all that is made; in the environment a=b,c=d.", default={})
    endpoint: str = _setting(
        "Another endpoint of the Vertex AI API, such as http://127.0.0.1:8080.",
        "endpoint",
        variables=ENDPOINT_VARIABLES,
        gcloud=("api_endpoint_overrides/aiplatform",),
    )
    transport: str = _setting(
        "rest or grpc; empty: rest at an endpoint of this machine, else grpc.",
        choices=("", "rest", "grpc"),
        variables=(TRANSPORT_VARIABLE,),
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.metadata["form"]:
                resource_names.check(field.metadata["form"], getattr(self, field.name), field.name)
        resource_names.check_labels(self.labels)

    @property
    def parent(self) -> str:
        """The resource that runs, jobs, schedules and models belong to."""
        return f"projects/{self.project}/locations/{self.region}"

    @property
    def bucket(self) -> str:
        """The bucket of the pipeline root; empty without one."""
        return urlsplit(self.pipeline_root).netloc

    def check_gpu_image(self, machines: MachineOptions) -> None:
        """Raise InputError for a run with accelerators and no image that uses them."""
        image = machines.gpu_image_uri or self.gpu_image
        check_gpu_image(
            dataclasses.replace(machines, gpu_image_uri=image),
            "give --set gpu_image_uri=IMAGE, set VERTEX_GPU_IMAGE, or write gpu_image = ... into "
            f"{FILE_NAME}",
        )

    def require(self, *names: str) -> "Settings":
        """Itself; raises InputError for the first of `names` that has no value."""
        for name in names:
            if not getattr(self, name):
                raise InputError(self.missing(name))
        return self

    @staticmethod
    def missing(name: str) -> str:
        """Say how setting `name`, which has no value, is given one."""
        return (
            f"no {name}: give {option_of(name)}, set {variables_of(name)[0]}, or write {name} = "
            f"... into {FILE_NAME}"
        )


def option_of(name: str) -> str:
    """Return --pipeline-root for the setting pipeline_root."""
    return f"--{name.replace('_', '-')}"


def variables_of(name: str) -> tuple[str, ...]:
    """Return the variables of the environment that set a setting, the first one before others."""
    (field,) = (one for one in dataclasses.fields(Settings) if one.name == name)
    return field.metadata["variables"] or (f"VERTEX_{name.upper()}",)


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], directory: Path = Path()
) -> Settings:
    """Gathers the settings.

    Args:
        flags: by name; None and empty text mean not given.
        environment: variables, as os.environ has them.
        directory: where vertex.toml is looked for.

    Raises:
        InputError: a file that can't be read, an unknown name in it, or a value that is
            none; the message says where the value came from.
    """
    layers = [
        ("gcloud's configuration", _from_gcloud(environment)),
        *_from_file(environment, directory),
        ("the environment", _from_environment(environment)),
        ("the command line", {name: value for name, value in flags.items() if value}),
    ]
    values: dict[str, Any] = {}
    for place, layer in layers:
        try:
            if isinstance(layer.get("labels"), str):
                layer["labels"] = _labels(layer["labels"])
            fields.build(Settings, layer)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
        values.update(layer)
    return fields.build(Settings, values)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    given = {
        field.name: [environment.get(name) for name in variables_of(field.name)]
        for field in dataclasses.fields(Settings)
    }
    return {name: next(filter(None, texts)) for name, texts in given.items() if any(texts)}


def _labels(text: str) -> Any:
    """a=b,c=d, or a JSON object, as a dictionary; raises InputError for anything else."""
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


def _from_file(environment: Mapping[str, str], directory: Path) -> list[tuple[str, dict[str, Any]]]:
    named = environment.get(FILE_VARIABLE, "")
    path = Path(named) if named else directory / FILE_NAME
    if not named and not path.is_file():
        return []
    try:
        return [(str(path), tomllib.loads(path.read_text(encoding="utf-8")))]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        origin = f"{FILE_VARIABLE}={named}: the file" if named else str(path)
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"{origin} can't be read ({why}); mend it, or take it away and set by flags what is "
            "needed"
        ) from None


def _from_gcloud(environment: Mapping[str, str]) -> dict[str, Any]:
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
        # gcloud's own business: whoever has broken it hears of it from gcloud.
        return {}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        for place in reversed(field.metadata["gcloud"]):
            if value := parser.get(*place.split("/"), fallback=""):
                values[field.name] = value
    return values
