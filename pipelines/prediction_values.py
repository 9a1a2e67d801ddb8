"""Checked parameters of a recipe's batch prediction, from its [batch] table and --set."""

from collections.abc import Mapping
from typing import Any

from components.planning.prediction_options import PredictionJobOptions, PredictionOptions
from pipelines import recipe as recipes
from pipelines.parameters import list_parameters
from pipelines.recipe import Recipe
from pipelines.run_options import BatchPrediction
from trainer import fields
from vertex.errors import InputError
from vertex.facts import resource_names
from vertex.formats import suggest
from vertex.machines.prediction_machines import check_prediction_machine

TOPICS: dict[str, type] = {"prediction": PredictionOptions, "job": PredictionJobOptions}
_SUFFIX = "-batch"


def batch_name(recipe: str) -> str:
    """Return the name of a recipe's batch prediction: of its YAML, runs and schedule."""
    return f"{recipe}{_SUFFIX}"


def recipe_of_batch(name: str) -> str:
    """Return the recipe whose batch prediction is called `name`; empty if there is none."""
    recipe, known = name.removesuffix(_SUFFIX), recipes.list_names()
    return recipe if recipe != name and recipe in known and name not in known else ""


def complete_values(recipe: Recipe, values: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
    """Return every parameter's value, in the signature's order; check as `check_parameters`."""
    batch = recipe.run_options.batch or BatchPrediction()
    defaults = {name: getattr(batch, name) for name in list_parameters(TOPICS)}
    defaults["model_name"] = defaults["model_name"] or recipe.parameters.registry.model_name
    checked: dict[str, Any] = {}
    try:
        for name in values:
            if name not in defaults:
                hint = suggest(name, defaults)
                raise InputError(f"batch prediction has no parameter {name!r}{hint}")
        for group in TOPICS.values():
            checked |= vars(fields.build(group, fields.pick(group, {**defaults, **values})))
        check_prediction_machine("machine_type", checked["machine_type"])
        resource_names.check_names(checked)
        if not checked["model_name"]:
            raise InputError(f"{recipe.name} registers no model to predict with; give model_name")
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None
    return checked
