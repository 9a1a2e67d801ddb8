"""Checked parameters of a recipe's batch prediction, from its [batch] table and --set."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.prediction_options import BIGQUERY, PredictionJobOptions, PredictionOptions
from pipelines import recipe as recipes
from pipelines import resource_names
from pipelines.recipe import Recipe
from pipelines.run_options import Batch
from trainer import fields
from trainer.data.storage import is_remote
from trainer.errors import InputError
from trainer.machines.prediction_machines import check_prediction_machine

TOPICS: dict[str, type] = {"prediction": PredictionOptions, "job": PredictionJobOptions}
PARAMETERS = {
    field.name: (group, field) for group in TOPICS.values() for field in dataclasses.fields(group)
}

_SUFFIX = "-batch"


def name_of(recipe: str) -> str:
    """Return the name of a recipe's batch prediction: of its YAML, runs and schedule."""
    return f"{recipe}{_SUFFIX}"


def base_of(name: str) -> str:
    """Return the recipe whose batch prediction is called `name`; empty if there is none."""
    base, known = name.removesuffix(_SUFFIX), recipes.list_names()
    return base if base != name and base in known and name not in known else ""


def complete_values(recipe: Recipe, given: Mapping[str, Any], *, place: str) -> dict[str, Any]:
    """Return every parameter's value, in the signature's order; check as `check_parameters`."""
    defaults = {name: getattr(recipe.run_options.batch or Batch(), name) for name in PARAMETERS}
    defaults["model_name"] = defaults["model_name"] or recipe.parameters.registry.model_name
    merged = {**defaults, **given}
    try:
        for name in merged:
            if name not in PARAMETERS:
                hint = fields.suggest(name, PARAMETERS)
                raise InputError(f"batch prediction has no parameter {name!r}{hint}")
        checked: dict[str, Any] = {}
        for group in TOPICS.values():
            checked |= vars(fields.build(group, fields.pick(group, merged)))
        check_prediction_machine("machine_type", checked["machine_type"])
        resource_names.check_names(checked)
        if not checked["model_name"]:
            raise InputError(f"{recipe.name} registers no model to predict with; give model_name")
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    return {name: checked[name] for name in PARAMETERS}


def make_paths_absolute(
    recipe: Recipe, given: Mapping[str, Any], runs_directory: Path, place: str
) -> dict[str, Any]:
    """Return every parameter's value, with paths made absolute.

    Raises InputError if the input is missing or invalid, or the model has no champion.
    """
    from components import prediction_input
    from pipelines import local_registry
    from trainer.data.schema import find_training_data

    values = complete_values(recipe, given, place=place)
    for name in ("input", "output"):
        if values[name].startswith(BIGQUERY):
            raise InputError(
                f"{name}={values[name]!r} is on Google Cloud; leave out --local, or give files"
            )
        if values[name] and not is_remote(values[name]):
            # Each step runs in a folder of its own.
            values[name] = os.path.abspath(values[name])  # noqa: PTH100 - it may be a pattern
    champion = local_registry.fetch_champion(recipe.name, values["model_name"], runs_directory)
    prediction_input.check(values["input"], find_training_data(champion.artifact_uri))
    return values
