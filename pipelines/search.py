"""A recipe's search for hyperparameters: its options, checked, and the recipe that searches."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from components.planning.search_options import SearchOptions, list_points, read_parameters
from pipelines.recipe import SEARCH, Recipe
from trainer import fields
from trainer.errors import InputError
from trainer.tasks.label_kinds import kind_of


def as_search(recipe: Recipe, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe whose pipeline searches before it trains, RECIPE-search.

    Raise InputError if the recipe has no search, with one to begin with.

    Args:
        changes: options of the search that replace the recipe's.
    """
    search = recipe.run_options.search
    if search is None:
        training = recipe.parameters.training
        raise InputError(
            f"recipe {recipe.name!r} has no table [search]; add one, such as [search] "
            f"parameters.learning_rate = {{ min = {training.learning_rate / 10:g}, max = "
            f'{training.learning_rate * 10:g}, scale = "log" }}'
        )
    try:
        search = fields.build(SearchOptions, {**dataclasses.asdict(search), **(changes or {})})
    except InputError as error:
        raise InputError(f"search: {error}") from None
    return dataclasses.replace(
        recipe,
        name=f"{recipe.name}{SEARCH}",
        run_options=dataclasses.replace(recipe.run_options, search=search),
        searches=True,
    )


def check(recipe: Recipe, search: SearchOptions, values: Mapping[str, Any], *, place: str) -> None:
    """Raise InputError for values that a run would refuse, or a metric that its task lacks.

    Args:
        values: values of the pipeline's parameters that the run replaces.
        place: where the search comes from, for messages.
    """
    parameters = recipe.with_values(values, place="--set")
    known = kind_of(parameters.records.label).values["monitor"]
    if search.metric not in known and not parameters.records.task:
        raise InputError(f"{place}: metric={search.metric!r} is none of {', '.join(known)}")
    try:
        points = list_points(read_parameters(search, parameters.training))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    options = parameters.training.model_options
    for point in points:
        inner = {name.partition(".")[2]: of for name, of in point.items() if "." in name}
        outer = {name: of for name, of in point.items() if "." not in name}
        if inner:
            outer["model_options"] = {**options, **inner}
        recipe.with_values({**values, **outer}, place=place)
