"""Vertex AI's checks of a model's versions and their aliases."""

import re
from typing import Any

from pipelines.emulator.field_rules import refuse, refuse_state

DEFAULT = "default"
UPDATABLE = ("display_name", "description", "version_description", "labels")
_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9-]")


def check_version(name: str) -> None:
    """Refuse a model name that does not include a version ID."""
    number = name.partition("@")[2]
    refuse(not number.isdigit(), f"{name} does not include the ID of a version")


def check_not_only(versions: dict[str, Any], name: str) -> None:
    """Refuse to delete the only version of a model: delete the model instead."""
    refuse_state(len(versions) == 1, f"{name} is the only version of its model")


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
