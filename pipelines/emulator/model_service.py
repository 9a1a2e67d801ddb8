"""ModelService: models, their versions and evaluations.

A version is stored as Google's Model message in JSON.
"""

import contextlib
import json
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from pipelines.emulator import field_rules, messages, proto_rules
from pipelines.emulator.api_error import ApiError
from pipelines.emulator.field_rules import refuse, refuse_state
from pipelines.emulator.operations import Operations
from pipelines.emulator.resources import Resources, with_etag

FOLDER_NAME = ".registry"
DEFAULT = "default"
_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9-]")
Content = dict[str, Any]


class ModelService(Resources):
    """A store of models.

    Args:
        directory: stores them, shared with other processes.
        uri: converts a stored artifact_uri to the one in responses.
        local: converts a gs:// URI to the path of the file that stands in for it.

    Attributes:
        kept: by name, each model's `versions` and their `evaluations` by version number, and
            the `last` number assigned.
    """

    kind = "Model"
    updatable = ("display_name", "description", "version_description", "labels")

    def __init__(
        self,
        directory: pathlib.Path,
        operations: Operations,
        uri: Callable[[str], str] = str,
        local: Callable[[str], str] = str,
    ) -> None:
        super().__init__(operations, directory)
        self._uri, self.local = uri, local

    def upload_model(self, request: Any) -> Any:
        proto_rules.check_required(request)
        model = messages.Model(request.model)
        proto_rules.clear_output_only(model)
        self.check(model, request.parent)
        with self.kept.lock():
            if request.parent_model:
                name = request.parent_model.partition("@")[0]
                entry = self._entry(name)
            else:
                if request.model_id:
                    field_rules.check_id("model_id", request.model_id)
                name = f"{request.parent}/models/{request.model_id or self.next_id()}"
                if name in self.kept:
                    raise ApiError("ALREADY_EXISTS", f"{name} exists already")
                entry = {"last": 0, "versions": {}, "evaluations": {}}
            entry["last"] += 1
            number = str(entry["last"])
            now = self.clock.now()
            aliases = [*model.version_aliases, *([DEFAULT] if number == "1" else [])]
            del model.version_aliases[:]
            model.name, model.version_id = name, number
            if "container_spec" in model:
                dedicated = messages.Model.DeploymentResourcesType.DEDICATED_RESOURCES
                model.supported_deployment_resources_types = [dedicated]
            model.create_time = model.version_create_time = model.version_update_time = now
            entry["versions"][number] = _to_json(model)
            set_aliases(entry["versions"], number, aliases)
            self.kept[name] = entry
        response = messages.UploadModelResponse(model=name, model_version_id=number)
        return self.operations.start(name, response)

    def find(self, name: str) -> Any:
        """Return the version that a name refers to: NAME, NAME@version or NAME@alias."""
        entry, number = self._version(name)
        return self._message(entry["versions"][number])

    def all(self) -> list[Any]:
        """Return the default version of each model."""
        return [self.find(name) for name in self.kept]

    def keep(self, model: Any) -> None:
        """Store a changed version; keep the artifact_uri that was uploaded."""
        entry, number = self._version(f"{model.name}@{model.version_id}")
        model.version_update_time = self.clock.now()
        model.artifact_uri = entry["versions"][number].get("artifactUri", "")
        entry["versions"][number] = _to_json(model)
        self.kept[model.name] = entry

    def artifacts(self, name: str) -> str:
        """Return the folder of a version's SavedModel on this machine, not as in responses."""
        entry, number = self._version(name)
        return self.local(entry["versions"][number].get("artifactUri", ""))

    def list_model_versions(self, request: Any) -> Any:
        found = map(self._message, self._entry(request.name)["versions"].values())
        return self.listed(found, request, "ModelVersion", "models")

    def merge_version_aliases(self, request: Any) -> Any:
        """Move aliases to a version; remove from it those that begin with `-`."""
        check_version(request.name)
        with self._changing(request.name) as (entry, number):
            set_aliases(entry["versions"], number, list(request.version_aliases))
        return self.find(request.name)

    def set_deployed(self, name: str, endpoint: str, deployed_id: str = "") -> None:
        """Record that an endpoint serves a version or, without an ID, that it stopped doing so."""
        with self._changing(name) as (entry, number):
            deployed = entry["versions"][number].get("deployedModels", [])
            kept = [one for one in deployed if one["endpoint"] != endpoint]
            if deployed_id:
                kept.append({"endpoint": endpoint, "deployedModelId": deployed_id})
            entry["versions"][number]["deployedModels"] = kept

    def delete_model_version(self, request: Any) -> Any:
        check_version(request.name)
        with self._changing(request.name) as (entry, number):
            only = len(entry["versions"]) == 1
            refuse_state(only, f"{request.name} is the only version of its model")
            check_not_deployed(entry["versions"][number], request.name)
            move_default(entry["versions"], number)
            del entry["versions"][number]
            entry["evaluations"].pop(number, None)
        return self.operations.start(request.name)

    def delete(self, request: Any) -> Any:
        at = "@" in request.name
        refuse(at, f"{request.name} names a version, which models.deleteVersion deletes")
        return super().delete(request)

    def check_deletable(self, model: Any) -> None:
        for version in self._entry(model.name)["versions"].values():
            check_not_deployed(version, model.name)

    def import_model_evaluation(self, request: Any) -> Any:
        evaluation = messages.ModelEvaluation(request.model_evaluation)
        missing = not evaluation.metrics_schema_uri
        refuse(missing, "model_evaluation.metrics_schema_uri is required")
        with self._changing(request.parent) as (entry, number):
            kept = entry["evaluations"].setdefault(number, [])
            model = request.parent.partition("@")[0]
            evaluation.name = f"{model}/evaluations/{number}{len(kept):03}"
            evaluation.create_time = self.clock.now()
            kept.append(_to_json(evaluation))
        return evaluation

    def list_model_evaluations(self, request: Any) -> Any:
        entry, number = self._version(request.parent)
        kept = entry["evaluations"].get(number, [])
        found = [messages.ModelEvaluation.from_json(json.dumps(one)) for one in kept]
        return self.listed(found, request, "ModelEvaluation", "model_evaluations")

    def parse(self, text: str) -> Content:
        """Parse a model's file, whose versions and evaluations must be Google's messages."""
        entry = json.loads(text)
        for number, version in entry["versions"].items():
            if messages.Model.from_json(json.dumps(version)).version_id != number:
                raise ValueError("unexpected format")
        for kept in entry["evaluations"].values():
            for one in kept:
                messages.ModelEvaluation.from_json(json.dumps(one))
        if entry["last"] < max(map(int, entry["versions"]), default=0):
            raise ValueError("unexpected format")
        return entry

    def dump(self, entry: Content) -> str:
        return json.dumps(entry, indent=1) + "\n"

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[tuple[Content, str]]:
        """Yield a model and the number of a version; store the model on exit."""
        with self.kept.lock():
            entry, number = self._version(name)
            yield entry, number
            self.kept[name.partition("@")[0]] = entry

    def _message(self, content: Content) -> Any:
        model = messages.Model.from_json(json.dumps(content))
        model.artifact_uri = self._uri(model.artifact_uri)
        return with_etag(model)

    def _entry(self, name: str) -> Content:
        base = name.partition("@")[0]
        entry = self.kept.get(base)
        if entry is None:
            raise ApiError("NOT_FOUND", f"The Model {base} does not exist.")
        return entry

    def _version(self, name: str) -> tuple[Content, str]:
        """Return a model and the number of the version that `name` refers to."""
        base, at, which = name.partition("@")
        entry, which = self._entry(base), which if at else DEFAULT
        for number, version in entry["versions"].items():
            if which in (number, *version.get("versionAliases", [])):
                return entry, number
        raise ApiError("NOT_FOUND", f"The Model {base}@{which} does not exist.")


def _to_json(message: Any) -> Content:
    return json.loads(type(message).to_json(message, always_print_fields_with_no_presence=False))


def check_version(name: str) -> None:
    """Refuse a model name that does not include a version ID."""
    number = name.partition("@")[2]
    refuse(not number.isdigit(), f"{name} does not include the ID of a version")


def check_not_deployed(version: dict[str, Any], name: str) -> None:
    """Refuse to delete a version that an endpoint serves."""
    refuse_state(version.get("deployedModels"), f"{name} is deployed to an endpoint")


def check_alias(alias: str) -> None:
    """Refuse a malformed alias, or the removal of `default` from its version."""
    name = alias.removeprefix("-")
    refuse(not _ALIAS.fullmatch(name), f"{name!r} is not an alias")
    taken = alias == f"-{DEFAULT}"
    refuse(taken, "the alias default can only be given to another version")


def set_aliases(versions: dict[str, Any], number: str, aliases: list[str]) -> None:
    """Move aliases to a version; remove from it those that begin with `-`."""
    for alias in aliases:
        check_alias(alias)
        taken = alias.removeprefix("-")
        for holder in [number] if alias != taken else list(versions):
            kept = [one for one in versions[holder].get("versionAliases", []) if one != taken]
            versions[holder]["versionAliases"] = kept
        if alias == taken:
            versions[number]["versionAliases"].append(alias)


def move_default(versions: dict[str, Any], number: str) -> None:
    """Move the alias default, if the version to be deleted has it, to the newest other version."""
    if DEFAULT in versions[number].get("versionAliases", []):
        set_aliases(versions, max((one for one in versions if one != number), key=int), [DEFAULT])
