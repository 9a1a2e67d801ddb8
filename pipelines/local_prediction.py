"""Batch prediction on this machine: its values, checked before it starts."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components import prediction_input
from components.prediction_options import BIGQUERY
from pipelines import local_registry, prediction_values
from pipelines.recipe import Recipe
from trainer.data.schema import training_data
from trainer.data.storage import is_remote
from trainer.errors import InputError


def on_this_machine(
    recipe: Recipe, given: Mapping[str, Any], runs_directory: Path, place: str
) -> dict[str, Any]:
    """Return every parameter's value, with paths made absolute.

    Raises:
        InputError: no champion in `runs_directory`, or an input that is not there or not fit.
    """
    values = prediction_values.values(recipe, given, place=place)
    for name in ("input", "output"):
        if values[name].startswith(BIGQUERY):
            raise InputError(
                f"{name}={values[name]!r} is on Google Cloud; leave out --local, or give files"
            )
        if values[name] and not is_remote(values[name]):
            # Each step runs in a folder of its own.
            values[name] = os.path.abspath(values[name])  # noqa: PTH100 - it may be a pattern
    champion = local_registry.champion(recipe.name, values["model_name"], runs_directory)
    prediction_input.check(values["input"], training_data(champion.artifact_uri))
    return values
