"""ModelService: models, their versions and evaluations, in a file.

A version is Google's own Model message, as JSON.
https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models
"""

import datetime
import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

from pipelines.emulator import model_rules
from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.json_file import Content, JsonFile
from pipelines.emulator.labels import filtered
from pipelines.emulator.model_rules import DEFAULT
from pipelines.emulator.operations import PAGE_SIZE, Operations, page

FILE_NAME = "models.json"
FOLDER_NAME = ".registry"


class ModelService:
    """Keeps models in `<directory>/models.json`; servers and processes may share it.

    Args:
        directory: made when the first model is uploaded.
        uri: translates the artifact_uri that is shown.
    """

    page_size = PAGE_SIZE

    def __init__(
        self,
        directory: pathlib.Path,
        operations: Operations,
        uri: Callable[[str], str] = str,
    ) -> None:
        self._uri = uri
        self._file = JsonFile(directory / FILE_NAME, _is_entry)
        self._operations = operations

    def upload_model(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        model = types.Model(request.model)
        model_rules.check(model, request.parent)
        with self._file.change() as content:
            if request.parent_model:
                name = request.parent_model
                entry = _entry(content, name)
            else:
                if request.model_id:
                    model_rules.check_id(request.model_id)
                name = f"{request.parent}/models/{request.model_id or len(content) + 1}"
                if name in content:
                    raise ApiError("ALREADY_EXISTS", f"{name} exists already")
                entry = content[name] = {"last": 0, "versions": {}, "evaluations": {}}
            entry["last"] += 1
            number = str(entry["last"])
            now = datetime.datetime.now(datetime.timezone.utc)
            aliases = [*model.version_aliases, *([DEFAULT] if number == "1" else [])]
            del model.version_aliases[:]
            model.name, model.version_id = name, number
            model.create_time = model.version_create_time = model.version_update_time = now
            entry["versions"][number] = _to_json(model)
            model_rules.give(entry["versions"], number, aliases)
        response = types.UploadModelResponse(model=name, model_version_id=number)
        return self._operations.start(name, response)

    def get_model(self, request: Any) -> Any:
        """Return the version that a name, with @version, @alias or neither, means."""
        entry, number = _version(self._file.read(), request.name)
        return self._message(entry["versions"][number])

    def artifacts(self, name: str) -> str:
        """Return the folder of a version's SavedModel as it was given, not as it is shown."""
        entry, number = _version(self._file.read(), name)
        return entry["versions"][number].get("artifactUri", "")

    def list_models(self, request: Any) -> Any:
        """Return the default version of each model."""
        from google.cloud.aiplatform_v1 import types

        content, prefix = self._file.read(), f"{request.parent}/models/"
        names = [name for name in content if name.startswith(prefix)]
        versions = [_version(content, name) for name in names]
        found = [self._message(entry["versions"][number]) for entry, number in versions]
        models, token = page(filtered(found, request.filter), request, self.page_size)
        return types.ListModelsResponse(models=models, next_page_token=token)

    def list_model_versions(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        entry = _entry(self._file.read(), request.name.partition("@")[0])
        found = filtered(map(self._message, entry["versions"].values()), request.filter)
        models, token = page(found, request, self.page_size)
        return types.ListModelVersionsResponse(models=models, next_page_token=token)

    def update_model(self, request: Any) -> Any:
        """Change the fields of a version that the mask names."""
        from google.cloud.aiplatform_v1 import types

        name = request.model.name
        with self._file.change() as content:
            entry, number = _version(content, name)
            model_rules.check_update(request, self._message(entry["versions"][number]).etag)
            model = types.Model.from_json(json.dumps(entry["versions"][number]))
            request.update_mask.MergeMessage(request.model._pb, model._pb, True, True)
            model_rules.check(model, name.partition("/models/")[0])
            model.version_update_time = datetime.datetime.now(datetime.timezone.utc)
            entry["versions"][number] = _to_json(model)
        return self._message(entry["versions"][number])

    def merge_version_aliases(self, request: Any) -> Any:
        """Give aliases to a version, and take those that begin with `-`."""
        model_rules.check_version(request.name)
        with self._file.change() as content:
            entry, number = _version(content, request.name)
            model_rules.give(entry["versions"], number, list(request.version_aliases))
            return self._message(entry["versions"][number])

    def set_deployed(self, name: str, endpoint: str, deployed_id: str = "") -> None:
        """Note that an endpoint serves a version, or, without an ID, that it does no more."""
        with self._file.change() as content:
            entry, number = _version(content, name)
            deployed = entry["versions"][number].get("deployedModels", [])
            kept = [one for one in deployed if one["endpoint"] != endpoint]
            if deployed_id:
                kept.append({"endpoint": endpoint, "deployedModelId": deployed_id})
            entry["versions"][number]["deployedModels"] = kept

    def delete_model_version(self, request: Any) -> Any:
        model_rules.check_version(request.name)
        with self._file.change() as content:
            entry, number = _version(content, request.name)
            model_rules.check_not_only(entry["versions"], request.name)
            model_rules.check_not_deployed(entry["versions"][number], request.name)
            model_rules.pass_on_default(entry["versions"], number)
            del entry["versions"][number]
            entry["evaluations"].pop(number, None)
        return self._operations.start(request.name)

    def delete_model(self, request: Any) -> Any:
        """Delete a model with all its versions."""
        with self._file.change() as content:
            for version in _entry(content, request.name)["versions"].values():
                model_rules.check_not_deployed(version, request.name)
            del content[request.name]
        return self._operations.start(request.name)

    def import_model_evaluation(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        evaluation = types.ModelEvaluation(request.model_evaluation)
        if not evaluation.metrics_schema_uri:
            raise invalid("model_evaluation.metrics_schema_uri is required")
        with self._file.change() as content:
            entry, number = _version(content, request.parent)
            kept = entry["evaluations"].setdefault(number, [])
            model = request.parent.partition("@")[0]
            evaluation.name = f"{model}/evaluations/{number}{len(kept):03}"
            evaluation.create_time = datetime.datetime.now(datetime.timezone.utc)
            kept.append(_to_json(evaluation))
        return evaluation

    def list_model_evaluations(self, request: Any) -> Any:
        from google.cloud.aiplatform_v1 import types

        entry, number = _version(self._file.read(), request.parent)
        kept = entry["evaluations"].get(number, [])
        found = [types.ModelEvaluation.from_json(json.dumps(one)) for one in kept]
        evaluations, token = page(found, request, self.page_size)
        return types.ListModelEvaluationsResponse(
            model_evaluations=evaluations, next_page_token=token
        )

    def _message(self, content: Content) -> Any:
        from google.cloud.aiplatform_v1 import types

        model = types.Model.from_json(json.dumps(content))
        model.artifact_uri = self._uri(model.artifact_uri)
        model.etag = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        return model


def _is_entry(entry: Any) -> bool:
    """Tell a model's entry, whose versions and evaluations are Google's messages."""
    from google.cloud.aiplatform_v1 import types
    from google.protobuf import json_format

    try:
        for number, version in entry["versions"].items():
            if types.Model.from_json(json.dumps(version)).version_id != number:
                return False
        for kept in entry["evaluations"].values():
            for one in kept:
                types.ModelEvaluation.from_json(json.dumps(one))
        return entry["last"] >= max(map(int, entry["versions"]), default=0)
    except (LookupError, TypeError, AttributeError, ValueError, json_format.Error):
        return False


def _entry(content: Content, name: str) -> Content:
    if name not in content:
        raise ApiError("NOT_FOUND", f"The Model {name} does not exist.")
    return content[name]


def _version(content: Content, name: str) -> tuple[Content, str]:
    """Return a model, and the number of the version that `name` means."""
    base, _, which = name.partition("@")
    entry = _entry(content, base)
    which = which or DEFAULT
    for number, version in entry["versions"].items():
        if which == number or which in version.get("versionAliases", []):
            return entry, number
    raise ApiError("NOT_FOUND", f"The Model {base}@{which} does not exist.")


def _to_json(message: Any) -> Content:
    return json.loads(type(message).to_json(message, always_print_fields_with_no_presence=False))
