"""A search for hyperparameters: its options, checked against the parameters of a recipe."""

from collections.abc import Callable, Mapping
from typing import Any

from components.planning.search_options import SearchOptions, list_configs
from pipelines.parameters import ParameterSet
from pipelines.run_options import Search
from trainer import fields
from trainer.errors import InputError
from trainer.tasks.label_kinds import kind_of


def change(search: Search | None, changes: Mapping[str, Any], recipe: str) -> Search:
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


def check(
    search: SearchOptions,
    parameters: ParameterSet,
    check_values: Callable[[Mapping[str, Any]], Any],
    *,
    origin: str,
) -> None:
    """Raise InputError for values that a run would refuse, or a metric that its task lacks.

    Args:
        parameters: those of the run.
        check_values: raises InputError for other values of the run's parameters.
        origin: where the search comes from, for messages.
    """
    known = kind_of(parameters.records.label).values["monitor"]
    if search.metric not in known and not parameters.records.task:
        raise InputError(f"{origin}: metric={search.metric!r} is none of {', '.join(known)}")
    try:
        configs = [*list_configs(search, parameters.training)]
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None
    for config in configs:
        check_values(vars(config))
