"""Checked parameters of a recipe's batch prediction, from its [batch] table and --set."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.planning.prediction_options import BIGQUERY, PredictionJobOptions, PredictionOptions
from pipelines import recipe as recipes
from pipelines.parameters import list_parameters
from pipelines.recipe import Recipe
from pipelines.run_options import Batch
from trainer import fields
from trainer.data.storage import is_remote
from trainer.errors import InputError
from vertex_facts import UsageError, resource_names
from vertex_facts.prediction_machines import check_prediction_machine

TOPICS: dict[str, type] = {"prediction": PredictionOptions, "job": PredictionJobOptions}
_SUFFIX = "-batch"


def batch_name(recipe: str) -> str:
    """Return the name of a recipe's batch prediction: of its YAML, runs and schedule."""
    return f"{recipe}{_SUFFIX}"


def recipe_of_batch(name: str) -> str:
    """Return the recipe whose batch prediction is called `name`; empty if there is none."""
    recipe, known = name.removesuffix(_SUFFIX), recipes.list_names()
    return recipe if recipe != name and recipe in known and name not in known else ""


def complete_values(recipe: Recipe, values: Mapping[str, Any], *, place: str) -> dict[str, Any]:
    """Return every parameter's value, in the signature's order; check as `check_parameters`."""
    batch = recipe.run_options.batch or Batch()
    defaults = {name: getattr(batch, name) for name in list_parameters(TOPICS)}
    defaults["model_name"] = defaults["model_name"] or recipe.parameters.registry.model_name
    checked: dict[str, Any] = {}
    try:
        for name in values:
            if name not in defaults:
                hint = fields.suggest(name, defaults)
                raise InputError(f"batch prediction has no parameter {name!r}{hint}")
        for group in TOPICS.values():
            checked |= vars(fields.build(group, fields.pick(group, {**defaults, **values})))
        check_prediction_machine("machine_type", checked["machine_type"])
        resource_names.check_names(checked)
        if not checked["model_name"]:
            raise InputError(f"{recipe.name} registers no model to predict with; give model_name")
    except (InputError, UsageError) as error:
        raise InputError(f"{place}: {error}") from None
    return checked


def prepare_local_values(
    recipe: Recipe, values: Mapping[str, Any], runs_directory: Path, place: str
) -> dict[str, Any]:
    """Return every parameter's value for a run on this machine, with absolute paths.

    Raises InputError if the input is missing or invalid, or the model has no champion.
    """
    from components.planning import prediction_input
    from pipelines import local_registry
    from trainer.data.schema import find_training_data

    completed = complete_values(recipe, values, place=place)
    for name in ("input", "output"):
        uri = completed[name]
        if uri.startswith(BIGQUERY):
            raise InputError(f"{name}={uri!r} is on Google Cloud; leave out --local, or give files")
        if uri and not is_remote(uri):
            # Each step runs in a folder of its own.
            completed[name] = os.path.abspath(uri)  # noqa: PTH100 - it may be a pattern
    model = completed["model_name"]
    option = "--set model_name="
    champion = local_registry.fetch_champion(recipe.name, model, runs_directory, option=option)
    prediction_input.check(completed["input"], find_training_data(champion.artifact_uri))
    return completed
