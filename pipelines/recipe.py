"""Recipes: named values for the pipeline's parameters, in *.toml files.

Built-in recipes are in recipes/ beside this file; the user's own recipes are in the folder recipes/
of the working folder.

The first line of a file, a comment, is its summary. The following lines say what the recipe
reproduces, the accuracy to expect, the time, the cost and the command.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.planning.prediction_options import PredictionJobOptions, PredictionOptions
from components.planning.search_options import SearchOptions, list_configs
from pipelines.parameters import (
    GROUPS,
    PARAMETERS,
    ParameterSet,
    check_parameters,
    expand_auto,
    list_parameters,
)
from pipelines.run_options import FALLBACK, BatchPrediction, RunOptions, Search, split_document
from trainer import fields
from trainer.data import storage
from trainer.tasks.label_kinds import kind_of
from trainer.toml_reader import parse_toml
from trainer.training.config import TrainingConfig
from vertex.errors import InputError
from vertex.facts import resource_names
from vertex.formats import suggest
from vertex.machines.prediction_machines import check_prediction_machine

DIRECTORY = Path(__file__).parent / "recipes"
USER_DIRECTORY = Path("recipes")
"""Folder of the user's own recipes, in the working folder."""
SEARCH_SUFFIX = "-search"
"""Suffix of the name of the recipe that searches for hyperparameters before it trains."""
BATCH_SUFFIX = "-batch"
"""Suffix of the name of a recipe's batch prediction: of its YAML, runs and schedule."""
BATCH_TOPICS: dict[str, type] = {"prediction": PredictionOptions, "job": PredictionJobOptions}
_SCHEMA = re.compile(r"\A#:schema .*\n")
"""First line of a recipe that names its JSON schema, for editors."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """A checked recipe."""

    name: str  # name of the file, without .toml
    summary: str  # the first line of the file if it is a comment
    given: dict[str, Any]  # values that it sets; model_name defaults to its name
    parameters: ParameterSet  # a value for every parameter; defaults for those not given
    # Options of its runs on Vertex AI, such as fallbacks and retraining.
    run_options: RunOptions = RunOptions()
    searches: bool = False  # whether its pipeline searches before it trains

    @property
    def search(self) -> Search | None:
        """Return the search that its pipeline does before it trains, if any."""
        return self.run_options.search if self.searches else None

    def with_values(self, values: Mapping[str, Any], *, origin: str) -> ParameterSet:
        """Return the recipe's parameters with some changed; raise as `check_parameters`.

        Those of the recipe that have no effect with the changes get their defaults.
        """
        return _change(self.given, values, origin=origin)

    @property
    def batch_name(self) -> str:
        """Return the name of its batch prediction."""
        return f"{self.name}{BATCH_SUFFIX}"

    def batch_values(self, values: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
        """Return the parameters of its batch prediction, in the signature's order.

        `values` override the table [batch]; they are checked as by `check_parameters`.
        """
        batch = self.run_options.batch or BatchPrediction()
        defaults = {name: getattr(batch, name) for name in list_parameters(BATCH_TOPICS)}
        defaults["model_name"] = defaults["model_name"] or self.parameters.registry.model_name
        checked: dict[str, Any] = {}
        try:
            for name in values:
                if name not in defaults:
                    hint = suggest(name, defaults)
                    raise InputError(f"batch prediction has no parameter {name!r}{hint}")
            for group in BATCH_TOPICS.values():
                checked |= vars(fields.build(group, fields.pick(group, {**defaults, **values})))
            check_prediction_machine("machine_type", checked["machine_type"])
            resource_names.check_names(checked)
            if not checked["model_name"]:
                raise InputError(f"{self.name} registers no model to predict with; give model_name")
        except InputError as error:
            raise InputError(f"{origin}: {error}") from None
        return checked

    def as_search(self, changes: Mapping[str, Any], values: Mapping[str, Any]) -> "Recipe":
        """Return the recipe whose pipeline searches before it trains, RECIPE-search.

        Raise InputError if this one has no search, or if values are wrong.

        Args:
            changes: options of the search that replace the recipe's.
            values: parameters of the run that replace the recipe's.
        """
        changed = _change_search(self.run_options.search, changes, self.name)
        schedule = changed.schedule or self.run_options.retraining
        searching = dataclasses.replace(
            self,
            name=self.name if self.searches else f"{self.name}{SEARCH_SUFFIX}",
            run_options=dataclasses.replace(self.run_options, search=changed, retraining=schedule),
            searches=True,
        )
        searching.check_search(values, origin="search")
        return searching

    def check_search(self, values: Mapping[str, Any], *, origin: str) -> None:
        """Raise InputError for a search that a run with such parameters could not do."""
        search, parameters = self.run_options.search, self.with_values(values, origin="--set")
        assert search
        known = kind_of(parameters.records.label).values["monitor"]
        if search.metric not in known and not parameters.records.task:
            raise InputError(f"{origin}: metric={search.metric!r} is none of {', '.join(known)}")
        try:
            configs = [*list_configs(search, parameters.training)]
        except InputError as error:
            raise InputError(f"{origin}: {error}") from None
        given = {**self.given, **values}
        for name, config in configs:
            tried = vars(config)
            others = {**given, **{key: value for key, value in tried.items() if key != name}}
            _change(others, fields.pick(TrainingConfig, {name: tried.get(name)}), origin=origin)


def to_id(name: str) -> str:
    """Return a recipe's name in the characters that IDs of resources may have: a-z, 0-9 and -."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def list_names() -> list[str]:
    """Return the names of all recipes, sorted."""
    return sorted(_find_paths())


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a recipe, with which editors complete and check its file."""
    parameters: dict[str, Any] = {}
    for group in reversed(GROUPS):  # The first group that has a parameter describes it.
        parameters |= fields.json_schema(group)["properties"]
    options = fields.json_schema(RunOptions)["properties"]
    machines = {name: parameters[name] for name in FALLBACK}
    options["fallbacks"]["items"] = {"additionalProperties": False, "properties": machines}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "required": ["source"],
        "additionalProperties": False,
        "properties": {**parameters, **options},
    }


def load(name: str, *folders: Path) -> Recipe:
    """Read and check a recipe from `folders`; default: the built-in and the user's own recipes.

    Raises InputError if no recipe or two have that name, for invalid TOML and for invalid values.
    """
    paths = _find_paths(*folders)
    base = name.removesuffix(SEARCH_SUFFIX)
    if name not in paths and base in paths:
        return load(base, *folders).as_search({}, {})
    if name not in paths:
        hint = suggest(name, paths)
        if name.endswith(".toml"):
            hint = f"; give the name of a file in {USER_DIRECTORY}/, without .toml"
        raise InputError(f"no recipe {name!r}{hint}")
    path, *others = paths[name]
    if others:
        raise InputError(f"{others[0]} has the name of a built-in recipe; rename it")
    try:
        content = storage.read(str(path))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from None
    document = parse_toml(content, path.name)
    try:
        given, run_options = split_document({"model_name": name, **document})
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None
    given = expand_auto(given)
    parameters = _check_values({}, given, origin=path.name)
    for number, fallback in enumerate(run_options.fallbacks, 1):
        _check_values(given, fallback, origin=f"{path.name}: fallbacks[{number}]")
    schedules = {"retraining": run_options.retraining}
    if run_options.search:
        schedules["search.schedule"] = run_options.search.schedule
    for table, schedule in schedules.items():
        if schedule:
            origin = f"{path.name}: [{table}] parameters"
            _check_values(given, schedule.parameters, origin=origin)
    if "source" not in document:
        raise InputError(f'{path.name} has no source; add one, such as source = "images:FOLDER"')
    first = _SCHEMA.sub("", content.decode("utf-8-sig")).partition("\n")[0]
    recipe = Recipe(
        name=name,
        summary=first.removeprefix("#").strip() if first.startswith("#") else "",
        given=given,
        parameters=parameters,
        run_options=run_options,
    )
    if run_options.search:
        recipe.check_search({}, origin=f"{path.name}: [search]")
    return recipe


def _change_search(search: Search | None, changes: Mapping[str, Any], recipe: str) -> Search:
    """Return a recipe's search with other options; raise InputError if it has none."""
    if search is None:
        raise InputError(
            f"recipe {recipe!r} has no table [search]; add one, such as [search] "
            'parameters.learning_rate = { min = 1e-4, max = 1e-2, scale = "log" }'
        )
    try:
        known = fields.pick(SearchOptions, vars(search))
        changed = fields.build(SearchOptions, {**known, **changes})
    except InputError as error:
        raise InputError(f"search: {error}") from None
    return Search(**vars(changed), schedule=search.schedule)


def _check_values(
    given: Mapping[str, Any], values: Mapping[str, Any], *, origin: str
) -> ParameterSet:
    """Check values from TOML, which must have the right types, together with `given`."""
    try:
        for name in PARAMETERS.keys() & values.keys():
            fields.check_typed(PARAMETERS[name][0], {name: values[name]})
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None
    return _change(given, values, origin=origin)


def _change(given: Mapping[str, Any], values: Mapping[str, Any], *, origin: str) -> ParameterSet:
    """Check `values` together with those `given` before, which get defaults if without effect."""
    inherited = given.keys() - values.keys()
    return check_parameters({**given, **values}, origin=origin, inherited=inherited)


def _find_paths(*folders: Path) -> dict[str, list[Path]]:
    """Return the files of each recipe by name, built-in ones first."""
    paths: dict[str, list[Path]] = {}
    for folder in folders or (DIRECTORY, USER_DIRECTORY):
        for path in folder.glob("[!.]*.toml"):
            paths.setdefault(path.stem, []).append(path)
    return paths
