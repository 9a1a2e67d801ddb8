"""Checks of Vertex AI on a model, a version and its aliases: a function a rule."""

import re
from typing import Any

from pipelines.emulator.api_error import ApiError, invalid
from pipelines.emulator.field_rules import check_key, check_name
from pipelines.emulator.labels import check_labels

DEFAULT = "default"
_CHANGEABLE = ("display_name", "description", "version_description", "labels")
_MODEL_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9-]")


def check(model: Any, parent: str) -> None:
    """Refuse a Model message without a name, or with labels or a key of another form.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models

    Args:
        parent: projects/P/locations/L.
    """
    check_name(model, "model")
    check_labels(model.labels)
    check_key(model, parent)


def check_version(name: str) -> None:
    """Refuse a name that does not include the ID of a version.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models/mergeVersionAliases
    """
    if not name.partition("@")[2].isdigit():
        raise invalid(f"{name} does not include the ID of a version")


def check_id(model_id: str) -> None:
    """Refuse an ID that is not up to 63 of a-z, 0-9, _ and -, or begins with a digit or -.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models/upload
    """
    if not _MODEL_ID.fullmatch(model_id):
        raise invalid(f"model_id {model_id!r} is not up to 63 of a-z, 0-9, _ and -")


def check_not_only(versions: dict[str, Any], name: str) -> None:
    """Refuse to delete the only version of a model: the model itself is deleted then.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models/deleteVersion
    """
    if len(versions) == 1:
        raise ApiError("FAILED_PRECONDITION", f"{name} is the only version of its model")


def check_update(request: Any, etag: str) -> None:
    """Refuse an update without a mask, of a field that is fixed, or of an older state.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models/patch

    Args:
        etag: of the present state; a request without one overwrites whatever is there.
    """
    if not request.update_mask.paths:
        raise invalid("update_mask is required")
    for path in request.update_mask.paths:
        if path.partition(".")[0] not in _CHANGEABLE:
            raise invalid(f"{path} can't be updated; only {', '.join(_CHANGEABLE)}")
    if request.model.etag not in ("", etag):
        raise ApiError("ABORTED", f"{request.model.name} has changed since etag was read")


def check_not_deployed(version: dict[str, Any], name: str) -> None:
    """Refuse to delete a version that an endpoint serves.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models/deleteVersion
    """
    if version.get("deployedModels"):
        raise ApiError("FAILED_PRECONDITION", f"{name} is deployed to an endpoint")


def check_alias(alias: str) -> None:
    """Refuse an alias of another form, and one that takes `default` from its version.

    https://cloud.google.com/vertex-ai/docs/reference/rest/v1/projects.locations.models/mergeVersionAliases
    """
    if not _ALIAS.fullmatch(alias.removeprefix("-")):
        raise invalid(f"{alias.removeprefix('-')!r} is not an alias")
    if alias == f"-{DEFAULT}":
        raise invalid("the alias default can only be given to another version")


def give(versions: dict[str, Any], number: str, aliases: list[str]) -> None:
    """Give aliases to a version, from which they leave any other; take those with `-`.

    https://cloud.google.com/vertex-ai/docs/model-registry/model-alias
    """
    for alias in aliases:
        check_alias(alias)
        taken = alias.removeprefix("-")
        for holder in [number] if alias != taken else list(versions):
            kept = [one for one in versions[holder].get("versionAliases", []) if one != taken]
            versions[holder]["versionAliases"] = kept
        if alias == taken:
            versions[number]["versionAliases"].append(alias)


def pass_on_default(versions: dict[str, Any], number: str) -> None:
    """Give the alias default of a version, which is about to be deleted, to the newest other one.

    https://cloud.google.com/vertex-ai/docs/model-registry/model-alias#delete_a_model_alias
    """
    if DEFAULT in versions[number].get("versionAliases", []):
        give(versions, max((one for one in versions if one != number), key=int), [DEFAULT])
