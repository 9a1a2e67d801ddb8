"""ModelService: models, their versions and evaluations.

A version is a Model message, stored as JSON. A folder keeps the paths of artifacts beside it
relative, so that both can be moved or copied together.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from vertex.emulator import field_rules, messages, proto_rules
from vertex.emulator.api_error import ApiError
from vertex.emulator.field_rules import refuse, refuse_state
from vertex.emulator.resources import Resources, set_etag
from vertex.emulator.server import by_task
from vertex.facts import resource_names

FOLDER_NAME = ".registry"
DEFAULT = "default"
_ALIAS = re.compile(r"[a-z][a-z0-9-]{0,126}[a-z0-9]")
"""The page on aliases forbids the capitals that the one on mergeVersionAliases allows."""
INPUT_FORMATS = ("jsonl", "csv", "tf-record", "tf-record-gzip", "bigquery", "file-list")
OUTPUT_FORMATS = ("jsonl", "csv", "bigquery")
"""Formats of instances and predictions for a custom-trained model."""
_LONGEST_DEPLOYMENT_SECONDS, _PORTS = 2 * 3600, range(1, 65536)
Content = dict[str, Any]


@dataclasses.dataclass(eq=False, kw_only=True)
class ModelService(Resources):
    """A store of models: their `versions`, `evaluations` by version, and the `last` number."""

    kind = "Model"
    updatable = ("display_name", "description", "version_description", "labels")
    # Converts a stored artifact_uri to the one in responses, except to tasks.
    uri: Callable[[str], str] = str
    # Converts a gs:// URI to the path of the file that stands in for it.
    local: Callable[[str], str] = str

    def check(self, model: Any, parent: str) -> None:
        super().check(model, parent)
        for key in model.labels:
            reserved = key.startswith(resource_names.GOOGLES_LABELS)
            refuse(reserved, f"label {key!r} begins with vertex-ai- or goog-")
        check_container(model.container_spec, field_rules.region_of(parent))

    def upload_model(self, request: Any) -> Any:
        response = self.add_version(request)
        return self.operations.start(response.model, response)

    def add_version(self, request: Any) -> Any:
        """Store the version of an UploadModelRequest; return the UploadModelResponse."""
        model = self.read_new(request)
        self.check(model, request.parent)
        with self.stored.lock():
            if request.parent_model:
                name = request.parent_model.partition("@")[0]
                entry = self._find_entry(name)
            else:
                name = self.new_name(request, model)
                entry = {"last": 0, "versions": {}, "evaluations": {}}
            entry["last"] += 1
            number = str(entry["last"])
            now = self.clock.now()
            aliases = [*model.version_aliases, *([DEFAULT] if number == "1" else [])]
            del model.version_aliases[:]
            model.name, model.version_id = name, number
            model.create_time = model.version_create_time = now
            model.update_time = model.version_update_time = now
            entry["versions"][number] = model
            set_aliases(entry["versions"], number, aliases)
            self.stored[name] = entry
        return messages.UploadModelResponse(model=name, model_version_id=number)

    def find(self, name: str) -> Any:
        """Return the version that a name refers to: NAME, NAME@version or NAME@alias."""
        entry, number = self._find_version(name)
        return self._to_response(entry["versions"][number])

    def find_servable(self, name: str) -> Any:
        """Return the version that a name refers to; refuse one without a container."""
        model = self.find(name)
        refuse_state("container_spec" not in model, f"{name} has no container_spec to serve it")
        return model

    def store(self, model: Any) -> None:
        """Store a changed version; keep the artifact_uri that was uploaded."""
        entry, number = self._find_version(f"{model.name}@{model.version_id}")
        model.update_time = model.version_update_time = self.clock.now()
        model.artifact_uri = entry["versions"][number].artifact_uri
        entry["versions"][number] = model
        self.stored[model.name] = entry

    def artifacts(self, name: str) -> str:
        """Return the folder of a version's SavedModel on this machine, not as in responses."""
        entry, number = self._find_version(name)
        return str(self.local(entry["versions"][number].artifact_uri))

    def list_model_versions(self, request: Any) -> Any:
        """Return a page of the versions of a model; their names end in @ and the version."""
        versions = []
        for version in self._find_entry(request.name)["versions"].values():
            shown = messages.Model(self._to_response(version))
            shown.name = f"{version.name}@{version.version_id}"
            versions.append(shown)
        return self.build_page(versions, request, "ModelVersion", "models")

    def merge_version_aliases(self, request: Any) -> Any:
        """Move aliases to a version; remove from it the aliases that are prefixed with `-`."""
        proto_rules.check_required(request)
        check_version(request.name)
        with self._changing(request.name) as (entry, number):
            set_aliases(entry["versions"], number, list(request.version_aliases))
        return self.find(request.name)

    def set_deployed(self, name: str, endpoint: str, deployed_id: str = "") -> None:
        """Record that an endpoint serves a version or, without an ID, that it stopped doing so."""
        with self._changing(name) as (entry, number):
            version = entry["versions"][number]
            references = [
                reference for reference in version.deployed_models if reference.endpoint != endpoint
            ]
            if deployed_id:
                new = messages.DeployedModelRef(endpoint=endpoint, deployed_model_id=deployed_id)
                references.append(new)
            version.deployed_models = references

    def delete_model_version(self, request: Any) -> Any:
        check_version(request.name)
        with self._changing(request.name) as (entry, number):
            only = len(entry["versions"]) == 1
            refuse_state(only, f"{request.name} is the only version of its model")
            check_not_deployed(entry["versions"][number], request.name)
            deleted = entry["versions"].pop(number)
            if DEFAULT in deleted.version_aliases:
                newest = max(entry["versions"], key=int)
                set_aliases(entry["versions"], newest, [DEFAULT])
            entry["evaluations"].pop(number, None)
        return self.operations.start(request.name)

    def delete(self, request: Any) -> Any:
        at = "@" in request.name
        refuse(at, f"{request.name} names a version, which models.deleteVersion deletes")
        return super().delete(request)

    def check_deletable(self, model: Any) -> None:
        for version in self._find_entry(model.name)["versions"].values():
            check_not_deployed(version, model.name)

    def import_model_evaluation(self, request: Any) -> Any:
        proto_rules.check_required(request)
        evaluation = messages.ModelEvaluation(request.model_evaluation)
        with self._changing(request.parent) as (entry, number):
            evaluations = entry["evaluations"].setdefault(number, [])
            model = request.parent.partition("@")[0]
            evaluation.name = f"{model}/evaluations/{number}{len(evaluations):03}"
            evaluation.create_time = self.clock.now()
            evaluations.append(evaluation)
        return evaluation

    def list_model_evaluations(self, request: Any) -> Any:
        entry, number = self._find_version(request.parent)
        evaluations = entry["evaluations"].get(number, [])
        return self.build_page(evaluations, request, "ModelEvaluation", "model_evaluations")

    def parse(self, text: str) -> Content:
        entry = json.loads(text)
        versions, evaluations = entry["versions"], entry["evaluations"]
        for number, version in versions.items():
            versions[number] = messages.Model.from_json(json.dumps(version))
            versions[number].artifact_uri = self._to_absolute(versions[number].artifact_uri)
        for number, values in evaluations.items():
            parse = messages.ModelEvaluation.from_json
            evaluations[number] = [parse(json.dumps(value)) for value in values]
        mixed = any(version.version_id != number for number, version in versions.items())
        if mixed or entry["last"] < max(map(int, versions), default=0):
            raise ValueError("unexpected format")
        return dict(entry)

    def dump(self, entry: Content) -> str:
        return json.dumps(entry, indent=1, default=self._to_json) + "\n"

    def name_of(self, entry: Content) -> str:
        return next(str(version.name) for version in entry["versions"].values())

    @property
    def _beside(self) -> pathlib.Path:
        """Return the folder that contains the store's folder."""
        assert self.folder
        return self.folder.resolve().parent

    def _to_json(self, message: Any) -> Content:
        text = type(message).to_json(message, always_print_fields_with_no_presence=False)
        content: Content = json.loads(text)
        path = pathlib.PurePath(content.get("artifactUri", ""))
        if path.is_relative_to(self._beside):
            content["artifactUri"] = str(path.relative_to(self._beside))
        return content

    def _to_absolute(self, uri: str) -> str:
        """Return the present path of a stored artifact."""
        return str(self._beside / uri) if uri and "://" not in uri else uri

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[tuple[Content, str]]:
        """Yield a model and the number of a version; store the model on exit."""
        with self.stored.lock():
            entry, number = self._find_version(name)
            yield entry, number
            self.stored[name.partition("@")[0]] = entry

    def _to_response(self, model: Any) -> Any:
        convert = self.local if by_task.get() else self.uri
        model.artifact_uri = convert(model.artifact_uri)
        if "container_spec" in model:
            dedicated = messages.Model.DeploymentResourcesType.DEDICATED_RESOURCES
            fields = model._pb  # Lists are set in it in a third of the time.
            fields.supported_deployment_resources_types[:] = [dedicated]
            fields.supported_input_storage_formats[:] = INPUT_FORMATS
            fields.supported_output_storage_formats[:] = OUTPUT_FORMATS
        return set_etag(model)

    def _find_entry(self, name: str) -> Content:
        base = name.partition("@")[0]
        entry = self.stored.get(base)
        if entry is None:
            raise ApiError("NOT_FOUND", f"The Model {base} does not exist.")
        return entry

    def _find_version(self, name: str) -> tuple[Content, str]:
        """Return a model and the number of the version that `name` refers to."""
        base, at, which = name.partition("@")
        entry, which = self._find_entry(base), which if at else DEFAULT
        for number, version in entry["versions"].items():
            if which in (number, *version.version_aliases):
                return entry, number
        raise ApiError("NOT_FOUND", f"The Model {base}@{which} does not exist.")


def check_container(container: Any, region: str) -> None:
    """Refuse an image of another region, a wrong variable or port, or too long a deployment."""
    if region:
        resource_names.check_image_region(container.image_uri, region)
    field_rules.check_variables(container.env, "container_spec")
    for port in (port.container_port for port in container.ports):
        refuse(port not in _PORTS, f"container_port {port} is not 1 to 65535")
    both = container.predict_route and container.invoke_route_prefix
    refuse(both, "container_spec has both predict_route and invoke_route_prefix")
    seconds = container.deployment_timeout.total_seconds()
    refuse(seconds > _LONGEST_DEPLOYMENT_SECONDS, "deployment_timeout is more than 2 hours")


def check_version(name: str) -> None:
    """Refuse a model name that does not include a version ID."""
    number = name.partition("@")[2]
    refuse(not number.isdigit(), f"{name} does not include the ID of a version")


def check_not_deployed(version: Any, name: str) -> None:
    """Refuse to delete a version that an endpoint serves."""
    refuse_state(version.deployed_models, f"{name} is deployed to an endpoint")


def set_aliases(versions: dict[str, Any], number: str, aliases: list[str]) -> None:
    """Move aliases to a version; remove from it the aliases that are prefixed with `-`.

    An alias that is given and removed stays where it is. Raise ApiError if an alias is malformed,
    or `default` would be removed.
    """
    for alias in aliases:
        name = alias.removeprefix("-")
        refuse(not _ALIAS.fullmatch(name), f"{name!r} is not an alias")
        taken = alias == f"-{DEFAULT}"
        refuse(taken, "the alias default can only be given to another version")
        if {name, f"-{name}"} <= {*aliases}:
            continue
        for holder in [number] if alias != name else list(versions):
            remaining = [
                existing for existing in versions[holder].version_aliases if existing != name
            ]
            versions[holder].version_aliases = remaining
        if alias == name:
            versions[number].version_aliases.append(alias)
