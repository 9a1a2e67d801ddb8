"""Settings of Google Cloud: project, region, bucket and the rest, in one typed place.

A value comes from the first of these that has one: a flag, the environment, a file of
settings (vertex.toml, or the one that VERTEX_SETTINGS names), gcloud's own configuration.
Nothing is read before `load` is called.
"""

import configparser
import dataclasses
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from pipelines import resource_names
from trainer import fields
from trainer.errors import InputError
from trainer.machines.worker_pools import MachineOptions, check_gpu_image

FILE_NAME = "vertex.toml"
FILE_VARIABLE = "VERTEX_SETTINGS"
TRANSPORTS = ("", "rest", "grpc")
_REGION = re.compile(r"[a-z]+-[a-z]+[0-9]+")
_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]*|[0-9]+")
_REPOSITORY = re.compile(r"gs://[a-z0-9][^\s]*|https?://[^\s/]+/[^\s/]+/[^\s/]+/?")
_ENDPOINT = re.compile(r"(https?://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?")


def _setting(default: Any, *, help: str, variables: tuple[str, ...], gcloud: Any = ()) -> Any:
    """Return a field of `Settings`: with its environment variables and its properties in gcloud."""
    field = fields.option(default, help=help, choices=TRANSPORTS if "rest or grpc" in help else ())
    metadata = {**field.metadata, "variables": variables, "gcloud": tuple(gcloud)}
    if field.default is dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory, metadata=metadata)
    return dataclasses.field(default=field.default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every command that speaks to Google Cloud."""

    project: str = _setting(
        "",
        help="Google Cloud project.",
        variables=("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"),
        gcloud=["core/project"],
    )
    region: str = _setting(
        "us-central1",
        help="Region of Vertex AI.",
        variables=("GOOGLE_CLOUD_REGION", "CLOUDSDK_AI_REGION", "CLOUDSDK_COMPUTE_REGION"),
        gcloud=["ai/region", "compute/region"],
    )
    pipeline_root: str = _setting(
        "", help="Where runs write: gs://BUCKET/FOLDER.", variables=("VERTEX_PIPELINE_ROOT",)
    )
    image: str = _setting(
        "", help="Container image of components and replicas.", variables=("VERTEX_IMAGE",)
    )
    gpu_image: str = _setting(
        "",
        help="Container image of replicas that have accelerators.",
        variables=("VERTEX_GPU_IMAGE",),
    )
    serving_image: str = _setting(
        "",
        help="Container image that serves registered models; else Google's of TensorFlow 2.15.",
        variables=("VERTEX_SERVING_IMAGE",),
    )
    template_repository: str = _setting(
        "",
        help="Where compiled pipelines go: https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY, or "
        "gs://BUCKET/FOLDER.",
        variables=("VERTEX_TEMPLATE_REPOSITORY",),
    )
    service_account: str = _setting(
        "", help="Account that runs and replicas act as.", variables=("VERTEX_SERVICE_ACCOUNT",)
    )
    network: str = _setting(
        "",
        help="Network to peer with: projects/NUMBER/global/networks/NAME.",
        variables=("VERTEX_NETWORK",),
    )
    encryption_key: str = _setting(
        "", help="Cloud KMS key for all that is made.", variables=("VERTEX_ENCRYPTION_KEY",)
    )
    tensorboard: str = _setting(
        "",
        help="Vertex AI TensorBoard: projects/NUMBER/locations/REGION/tensorboards/ID.",
        variables=("VERTEX_TENSORBOARD",),
    )
    labels: dict = _setting(
        {},
        help="Labels of all that is made; in the environment a=b,c=d.",
        variables=("VERTEX_LABELS",),
    )
    endpoint: str = _setting(
        "",
        help="Another endpoint of the Vertex AI API, such as http://127.0.0.1:8080.",
        variables=("VERTEX_AI_ENDPOINT", "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"),
        gcloud=["api_endpoint_overrides/aiplatform"],
    )
    transport: str = _setting(
        "",
        help="rest or grpc; empty: rest at an endpoint of this machine, else grpc.",
        variables=("VERTEX_AI_TRANSPORT",),
    )

    def __post_init__(self) -> None:
        if self.project and not _PROJECT.fullmatch(self.project):
            raise InputError(
                f"project={self.project!r} is not a project's ID, such as 'my-project'"
            )
        if not _REGION.fullmatch(self.region):
            raise InputError(f"region={self.region!r} is not a region, such as 'us-central1'")
        if self.pipeline_root and not re.fullmatch(r"gs://[a-z0-9][^\s]*", self.pipeline_root):
            raise InputError(
                f"pipeline_root={self.pipeline_root!r} is not a folder in Cloud Storage, such as "
                "'gs://BUCKET/runs'"
            )
        if self.template_repository and not _REPOSITORY.fullmatch(self.template_repository):
            raise InputError(
                f"template_repository={self.template_repository!r} is neither "
                "https://REGION-kfp.pkg.dev/PROJECT/REPOSITORY nor gs://BUCKET/FOLDER"
            )
        if self.endpoint and not _ENDPOINT.fullmatch(self.endpoint):
            raise InputError(
                f"endpoint={self.endpoint!r} is not a server's address, such as "
                "'http://127.0.0.1:8080' or 'us-central1-aiplatform.googleapis.com'"
            )
        for name in ("service_account", "network", "tensorboard", "image"):
            resource_names.check(name, getattr(self, name))
        for name in ("gpu_image", "serving_image"):
            resource_names.check("image", getattr(self, name), called=name)
        resource_names.check(
            "encryption_spec_key_name", self.encryption_key, called="encryption_key"
        )
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
        for field in dataclasses.fields(self):
            if field.name in names and not getattr(self, field.name):
                raise InputError(self.missing(field.name))
        return self

    @staticmethod
    def missing(name: str) -> str:
        """Say how setting `name`, which has no value, is given one."""
        field = next(field for field in dataclasses.fields(Settings) if field.name == name)
        return (
            f"no {name}: give --{name.replace('_', '-')}, set {field.metadata['variables'][0]}, or "
            f"write {name} = ... into {FILE_NAME}"
        )


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
    places: dict[str, str] = {}
    for place, layer in layers:
        values.update(layer)
        places.update(dict.fromkeys(layer, place))
        try:
            fields.build(Settings, layer)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
    return fields.build(Settings, values)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        given = [environment[name] for name in field.metadata["variables"] if environment.get(name)]
        if given:
            values[field.name] = parse_labels(given[0]) if field.name == "labels" else given[0]
    return values


def parse_labels(text: str) -> Any:
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
    home = environment.get("HOME", "")
    folder = environment.get("CLOUDSDK_CONFIG", "")
    root = Path(folder) if folder else Path(home, ".config", "gcloud")
    if not folder and not home:
        return {}
    name = environment.get("CLOUDSDK_ACTIVE_CONFIG_NAME", "")
    active = root / "active_config"
    try:
        if not name:
            name = active.read_text().strip() if active.is_file() else "default"
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(root / "configurations" / f"config_{name}", encoding="utf-8")
    except (OSError, configparser.Error, UnicodeDecodeError):
        # gcloud's own business: whoever has broken it hears of it from gcloud.
        return {}
    values = {}
    for field in dataclasses.fields(Settings):
        for property_name in field.metadata["gcloud"]:
            section, _, key = property_name.partition("/")
            value = parser.get(section, key, fallback="")
            if value and field.name not in values:
                values[field.name] = value
    return values
