"""Recipes: named values for the pipeline's parameters, in *.toml files.

Those that come along lie beside this file; the user's own lie in recipes/ of the working folder.

The first comment line of a file says what it makes; those below say what it reproduces,
the accuracy to expect, the time, the cost and the command.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.operation import FALLBACK, Operation, split
from pipelines.parameters import GROUPS, PARAMETERS, ParameterSet, checked
from trainer import fields
from trainer.errors import InputError
from trainer.toml_reader import tomllib

DIRECTORY = Path(__file__).parent / "recipes"
OWN_DIRECTORY = Path("recipes")
"""Of the user's own recipes, in the working folder."""
_SCHEMA = re.compile(r"\A#:schema .*\n")
"""By which a recipe's first line names its JSON schema to an editor."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe as its file has it, checked.

    Attributes:
        name: of the file, without .toml.
        summary: its first comment line.
        given: the values that it sets; model_name, unless it says otherwise, is its name.
        parameters: a value for every parameter, the others being the defaults.
        operation: how it is run on Vertex AI: fallbacks, retraining, the expected time.
    """

    name: str
    summary: str
    given: dict[str, Any]
    parameters: ParameterSet
    operation: Operation = Operation()

    def with_values(self, values: Mapping[str, Any], *, place: str) -> ParameterSet:
        """Return the recipe's parameters with some changed; raises InputError as `checked` does."""
        return checked({**self.given, **values}, place=place)


def names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(_paths())


def schema() -> dict[str, Any]:
    """Return the JSON schema of a recipe, by which editors complete and check its file."""
    groups = [fields.schema(group)["properties"] for group in reversed(GROUPS)]
    parameters = {name: one for group in groups for name, one in group.items()}
    own = fields.schema(Operation)["properties"]
    machines = {name: parameters[name] for name in FALLBACK}
    own["fallbacks"]["items"] = {"additionalProperties": False, "properties": machines}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["source"],
        "additionalProperties": False,
        "properties": {**parameters, **own},
    }


def load(name: str, *folders: Path) -> Recipe:
    """Read and check a recipe, of `folders` or of those that come along and the user's own.

    Raises:
        InputError: no such recipe, two of that name, no TOML, or a value that is not fit.
    """
    known = _paths(*folders)
    if name not in known:
        raise InputError(f"no recipe {name!r}{fields.nearest(name, known)}")
    path, *others = known[name]
    if others:
        raise InputError(
            f"{others[0]} has the name of a recipe that comes along; rename it, for one name "
            "means one recipe"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{path.name} can't be read: it is nested too deeply") from None
    except UnicodeDecodeError:
        raise InputError(f"{path.name} is not UTF-8; save it as UTF-8") from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path.name} can't be read: {error}") from None
    try:
        given, operation = split({"model_name": name, **document})
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None
    parameters = _checked({}, given, place=path.name)
    for number, fallback in enumerate(operation.fallbacks, 1):
        _checked(given, fallback, place=f"{path.name}: fallbacks[{number}]")
    if operation.retraining:
        changed = operation.retraining.parameters
        _checked(given, changed, place=f"{path.name}: [retraining] parameters")
    if "source" not in document:
        raise InputError(f'{path.name} names no data; add source = "images:FOLDER", or another one')
    return Recipe(
        name=name,
        summary=_SCHEMA.sub("", text).partition("\n")[0].removeprefix("#").strip(),
        given=given,
        parameters=parameters,
        operation=operation,
    )


def _checked(given: Mapping[str, Any], values: Mapping[str, Any], *, place: str) -> ParameterSet:
    """Check values of TOML, of its own types, as `checked` does, added to `given`."""
    try:
        for name in PARAMETERS.keys() & values.keys():
            fields.check_typed(PARAMETERS[name][0], {name: values[name]})
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return checked({**given, **values}, place=place)


def _paths(*folders: Path) -> dict[str, list[Path]]:
    """Return the files of each recipe's name, those that come along before the user's own."""
    found: dict[str, list[Path]] = {}
    for folder in folders or (DIRECTORY, OWN_DIRECTORY):
        for path in folder.glob("*.toml"):
            found.setdefault(path.stem, []).append(path)
    return found
