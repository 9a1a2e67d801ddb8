"""The models of a Model Registry, in a file: what its service does, without a network.

A version is Google's own Model message, as JSON. Rules, from the service's reference:
versions are numbered from 1; the first has the alias default, which exactly one version has;
an alias that is given to a version leaves the one that had it; a version with the alias
default can be deleted only with its model.
https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models
"""

import contextlib
import datetime
import fcntl
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

FILE_NAME = "models.json"
_DEFAULT = "default"
_MODEL_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
_LABEL = re.compile(r"[a-z0-9_-]{0,63}")

Content = dict[str, Any]


class RefusedError(Exception):
    """What the service answers with an error.

    Attributes:
        code: of HTTP.
        status: of google.rpc.Code.
    """

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class ModelStore:
    """Models in `<directory>/models.json`; processes may share it.

    Args:
        directory: made when the first model is uploaded.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._path = directory / FILE_NAME

    def upload(self, request: Any) -> Any:
        """UploadModelRequest to UploadModelResponse."""
        from google.cloud.aiplatform_v1 import types

        model = request.model
        if not model.display_name:
            raise _invalid("model.display_name is required")
        for text in [part for pair in model.labels.items() for part in pair]:
            if not _LABEL.fullmatch(text):
                raise _invalid(f"{text!r} is not a label")
        with self._changed() as content:
            if request.parent_model:
                name = request.parent_model
                entry = _entry(content, name)
            else:
                model_id = request.model_id or str(1 + len(content))
                if request.model_id and not _MODEL_ID.fullmatch(model_id):
                    raise _invalid(f"model_id {model_id!r} is not up to 63 of a-z, 0-9, _ and -")
                name = f"{request.parent}/models/{model_id}"
                if name in content:
                    raise RefusedError(409, "ALREADY_EXISTS", f"{name} exists already")
                entry = content[name] = {"last": 0, "versions": {}, "evaluations": {}}
            entry["last"] += 1
            number = str(entry["last"])
            now = datetime.datetime.now(datetime.timezone.utc)
            aliases = [*model.version_aliases, *([_DEFAULT] if number == "1" else [])]
            del model.version_aliases[:]
            model.name, model.version_id = name, number
            model.create_time = model.version_create_time = model.version_update_time = now
            entry["versions"][number] = _to_json(model)
            _give(entry, number, aliases)
        return types.UploadModelResponse(model=name, model_version_id=number)

    def get(self, name: str) -> Any:
        """The version that `name`, with @version, @alias or neither, means."""
        base, _, which = name.partition("@")
        entry = _entry(self._content(), base)
        return _message(entry["versions"][_number(entry, base, which or _DEFAULT)])

    def models(self, parent: str) -> list[Any]:
        """The default version of each model."""
        return [self.get(name) for name in self._content() if name.startswith(f"{parent}/models/")]

    def versions(self, name: str) -> list[Any]:
        """Every version of a model."""
        entry = _entry(self._content(), name.partition("@")[0])
        return [_message(version) for version in entry["versions"].values()]

    def merge_aliases(self, name: str, aliases: list[str]) -> Any:
        """Gives aliases to a version and takes those that begin with `-`."""
        with self._changed() as content:
            entry, number = self._version(content, name)
            _give(entry, number, aliases)
        return self.get(name)

    def delete_version(self, name: str) -> None:
        """Deletes a version, but not the default one."""
        with self._changed() as content:
            entry, number = self._version(content, name)
            if _DEFAULT in entry["versions"][number].get("versionAliases", []):
                raise RefusedError(
                    400, "FAILED_PRECONDITION", f"{name} is the default version of its model"
                )
            del entry["versions"][number]
            entry["evaluations"].pop(number, None)

    def delete(self, name: str) -> None:
        """Deletes a model with all its versions."""
        with self._changed() as content:
            _entry(content, name)
            del content[name]

    def import_evaluation(self, parent: str, evaluation: Any) -> Any:
        """Keeps an evaluation of a version; returns it with its name."""
        if not evaluation.metrics_schema_uri:
            raise _invalid("model_evaluation.metrics_schema_uri is required")
        with self._changed() as content:
            entry, number = self._version(content, parent)
            kept = entry["evaluations"].setdefault(number, [])
            evaluation.name = f"{parent.partition('@')[0]}/evaluations/{number}{len(kept):03}"
            evaluation.create_time = datetime.datetime.now(datetime.timezone.utc)
            kept.append(_to_json(evaluation))
        return evaluation

    def evaluations(self, parent: str) -> list[Any]:
        """The evaluations of a version."""
        from google.cloud.aiplatform_v1 import types

        entry, number = self._version(self._content(), parent)
        return [_parsed(types.ModelEvaluation, one) for one in entry["evaluations"].get(number, [])]

    def _version(self, content: Content, name: str) -> tuple[Content, str]:
        base, _, which = name.partition("@")
        entry = _entry(content, base)
        return entry, _number(entry, base, which or _DEFAULT)

    def _content(self) -> Content:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or not all(map(_is_entry, content.values())):
                raise ValueError("it holds no models")
            return content
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise RefusedError(
                400,
                "FAILED_PRECONDITION",
                f"{self._path} can't be read ({error}); mend it, or take it away with its models",
            ) from None

    @contextlib.contextmanager
    def _changed(self) -> Iterator[Content]:
        """The content, written back whole at the end; one process at a time."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                content = self._content()
                yield content
                half = self._path.with_suffix(".half")
                half.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
                half.replace(self._path)
        except OSError as error:
            raise RefusedError(
                400, "FAILED_PRECONDITION", f"{self._path} can't be written: {error.strerror}"
            ) from None


def _is_entry(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.keys() >= {"last", "versions", "evaluations"}


def _entry(content: Content, name: str) -> Content:
    if name not in content:
        raise RefusedError(404, "NOT_FOUND", f"The Model {name} does not exist.")
    return content[name]


def _number(entry: Content, name: str, which: str) -> str:
    """Of the version that is `which`, a number or an alias."""
    for number, version in entry["versions"].items():
        if which == number or which in version.get("versionAliases", []):
            return number
    raise RefusedError(404, "NOT_FOUND", f"The Model {name}@{which} does not exist.")


def _give(entry: Content, number: str, aliases: list[str]) -> None:
    versions = entry["versions"]
    for alias in aliases:
        taken = alias.removeprefix("-")
        if not _ALIAS.fullmatch(taken):
            raise _invalid(f"{taken!r} is not an alias")
        holders = [number] if alias != taken else list(versions)
        if alias == f"-{_DEFAULT}":
            raise _invalid("the alias default can only be given to another version")
        for holder in holders:
            kept = [one for one in versions[holder].get("versionAliases", []) if one != taken]
            versions[holder]["versionAliases"] = kept
        if alias == taken:
            versions[number]["versionAliases"].append(alias)


def _invalid(message: str) -> RefusedError:
    return RefusedError(400, "INVALID_ARGUMENT", message)


def _to_json(message: Any) -> Content:
    return json.loads(type(message).to_json(message, always_print_fields_with_no_presence=False))


def _parsed(kind: Any, content: Content) -> Any:
    return kind.from_json(json.dumps(content))


def _message(content: Content) -> Any:
    from google.cloud.aiplatform_v1 import types

    return _parsed(types.Model, content)
