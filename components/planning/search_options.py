"""Options of a search for hyperparameters, and the StudySpec that they describe.

    [search]
    parameters.learning_rate = { min = 1e-4, max = 1e-1, scale = "log" }
    parameters.batch_size = [32, 64]
    parameters."model_options.units" = { min = 16, max = 256 }
    parameters.momentum = { min = 0.5, max = 0.99, when = { optimizer = ["sgd"] } }

https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/Shared.Types/StudySpec
"""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

from trainer import fields
from trainer.fields import option
from trainer.models import find_model_class
from trainer.tasks.label_kinds import MONITORS, is_rising
from trainer.training.config import TrainingConfig, override
from vertex.errors import InputError
from vertex.facts.json_numbers import to_whole_numbers
from vertex.formats import suggest

ALGORITHMS = {
    "default": "ALGORITHM_UNSPECIFIED", "grid": "GRID_SEARCH", "random": "RANDOM_SEARCH"
}  # fmt: skip
STOPPING = {"median": "median_automated_stopping_spec", "decay_curve": "decay_curve_stopping_spec"}
_MOST_VALUES, _LEAST_GAP = 1000, 1e-10
"""Limits of a list of numbers, "at least 1e-10 apart", which Shared.Types/StudySpec names."""
_FIXED = (
    "model", "warm_start", "strategy", "monitor", "keep_epoch", "max_train_examples", "seed",
    "checkpoint_steps", "steps_per_execution", "profile_steps", "shuffle_megabytes",
)  # fmt: skip
"""Options of training that decide how a trial is run or judged."""
TRIALS = "trials"
"""Folder in that of the training with the recipe's values: a folder for each run, which has one for
each trial. A run that goes on with the training of another has trials of the same numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """A recipe's table [search]."""

    parameters: dict = option(
        {}, help="Options of training to search, each with its range or its values."
    )
    trials: int = option(
        12, help="Number of trials, each a training with searched values.", minimum=2
    )
    parallel: int = option(2, help="Number of trials that run in parallel.", minimum=1)
    metric: str = option(
        "loss",
        help="Validation metric that ranks trials.",
        choices=MONITORS,
    )
    algorithm: str = option(
        "default",
        help="How values are chosen; default: by the results of earlier trials.",
        choices=ALGORITHMS,
    )
    early_stopping: str = option(
        "none",
        help="Rule that stops bad trials before their last epoch, by a comparison after the same "
        "time.",
        choices=("none", *STOPPING),
    )
    failed_trials: int = option(
        0, help="Number of trials that may fail before the search fails; 0: the service decides.",
        minimum=0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not self.parameters:
            raise InputError(
                "parameters is empty; give each option of training to search its range or values, "
                "such as learning_rate = { min = 1e-4, max = 1e-2, scale = 'log' }"
            )
        if self.parallel > self.trials:
            raise InputError(f"parallel={self.parallel} is more than trials={self.trials}")
        if self.failed_trials > self.trials:
            raise InputError(
                f"failed_trials={self.failed_trials} is more than trials={self.trials}; lower it"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchedParameter:
    """Vary an option of training in a search: by its `values`, or from `min` to `max`."""

    values: list = option([], help="Values to try.")
    min: float | None = option(None, help="Minimum value.")
    max: float | None = option(None, help="Maximum value.")
    scale: str = option(
        "linear", help="Scale on which they are spread.", choices=("linear", "log", "reverse_log")
    )
    when: dict = option({}, help="Another option, and its values with which this one is searched.")

    def __post_init__(self) -> None:
        values, low, high = self.values, self.min, self.max
        if values and (low, high, self.scale) != (None, None, "linear"):
            raise InputError("both values and a range are given; give one")
        if values:
            kinds, different = {*map(_is_number, values)}, {*map(repr, values)}
            if len(kinds) > 1 or len(different) < max(2, len(values)):
                raise InputError(
                    f"values={values} is not a list of two or more different values of one type"
                )
            if kinds == {True} and (len(values) > _MOST_VALUES or _find_gap(values) < _LEAST_GAP):
                raise InputError(
                    f"of its {len(values)} values, two are {_find_gap(values):g} apart; Vertex AI "
                    f"takes up to {_MOST_VALUES:,} numbers that are {_LEAST_GAP:g} apart: give a "
                    "range"
                )
        elif low is None or high is None or low >= high:
            raise InputError(f"min={low} and max={high} are not a range; give numbers, or a list")
        elif self.scale != "linear" and low <= 0:
            raise InputError(f"scale={self.scale!r} needs numbers above 0, but min={low}")
        if len(self.when) > 1 or not all(isinstance(values, list) for values in self.when.values()):
            raise InputError(
                f"when = {self.when!r} is not a table of one option with a list of its values"
            )

    @property
    def bounds(self) -> list[Any]:
        """Return its values, or the ends of its range."""
        return self.values or [self.min, self.max]


def read_parameters(search: SearchOptions, config: TrainingConfig) -> dict[str, SearchedParameter]:
    """Return how options are searched, by name; raise InputError if one can't be searched."""
    kinds = {name: _find_type(name, config) for name in search.parameters}
    found = {name: _read(name, spec) for name, spec in search.parameters.items()}
    for name, parameter in found.items():
        for parent, wanted in parameter.when.items():
            known = found.get(parent, parameter)
            if known.when or not wanted or not {*map(repr, wanted)} <= {*map(repr, known.values)}:
                raise InputError(
                    f"{name}: when: {parent}={wanted} is not a list of values that the search has "
                    "for an option without a condition"
                )
        if search.algorithm == "grid" and not parameter.values and kinds[name] is not int:
            raise InputError(
                f"algorithm='grid' needs values or whole numbers, but {name} has a range; give a "
                "list"
            )
    return found


def list_configs(
    search: SearchOptions, config: TrainingConfig
) -> Iterator[tuple[str, TrainingConfig]]:
    """Yield the name of each option with a config for each value, or end of a range, to try.

    Each is combined with all values of another option on which its effect depends. Raise
    InputError for a value that is not valid.
    """
    parameters = read_parameters(search, config)
    for name, parameter in parameters.items():
        needed = {parent: wanted[0] for parent, wanted in parameter.when.items()}
        others = [
            {other: value}
            for other in parameters.keys() & _list_needs(name) - parameter.when.keys()
            for value in parameters[other].bounds
        ]
        others += [{parent: value} for parent, wanted in parameter.when.items() for value in wanted]
        for value in parameter.bounds:
            for other in others or [{}]:
                yield name, override(config, {**needed, **other, name: value})


def build_study_spec(search: SearchOptions, config: TrainingConfig) -> dict[str, Any]:
    """Return the StudySpec of a search for the options of `config`."""
    parameters = read_parameters(search, config)
    kinds = {name: _find_type(name, config) for name in parameters}
    specs = {name: _describe(name, one, kinds[name]) for name, one in parameters.items()}
    for name, parameter in parameters.items():
        for parent, wanted in parameter.when.items():
            form, values = _describe_values(wanted)
            child = {"parameter_spec": specs[name], f"parent_{form}_values": {"values": values}}
            specs[parent].setdefault("conditional_parameter_specs", []).append(child)
    goal = "MAXIMIZE" if is_rising(search.metric) else "MINIMIZE"
    keeps_best = config.keep_epoch == "best" and config.monitor == search.metric
    spec: dict[str, Any] = {
        "metrics": [{"metric_id": f"validation_{search.metric}", "goal": goal}],
        "parameters": [specs[name] for name, one in parameters.items() if not one.when],
        "algorithm": ALGORITHMS[search.algorithm],
        "measurement_selection_type": "BEST_MEASUREMENT" if keeps_best else "LAST_MEASUREMENT",
    }
    if search.early_stopping in STOPPING:
        # Google's launcher removes empty values, so a rule that compares by steps would be lost.
        spec[STOPPING[search.early_stopping]] = {"use_elapsed_duration": True}
    return spec


def _find_type(name: str, config: TrainingConfig) -> type:
    """Return the type of an option; raise InputError if it can't be searched."""
    owner: type = TrainingConfig
    prefix = "model_options." if name.startswith("model_options.") else ""
    if prefix:
        owner = find_model_class(config.model)
    kinds = {
        f"{prefix}{field.name}": fields.type_of(owner, field.name)
        for field in dataclasses.fields(owner)
    }
    known = {key for key, kind in kinds.items() if key not in _FIXED and kind not in (list, dict)}
    if name not in known:
        raise InputError(f"{name!r} can't be searched{suggest(name, known)}")
    return kinds[name]


def _list_needs(name: str) -> set[str]:
    """Return the options on which the effect of an option of training depends."""
    conditions = [
        condition
        for field in dataclasses.fields(TrainingConfig)
        if field.name == name
        for condition in field.metadata["applies"]
    ]
    return {option for condition in conditions for option in condition.options}


def _read(name: str, spec: Any) -> SearchedParameter:
    if not isinstance(spec, list | dict):
        raise InputError(
            f"{name} = {spec!r} is neither a list of values nor a table of min, max, scale and when"
        )
    table = {"values": spec} if isinstance(spec, list) else spec
    return fields.convert(f"parameters.{name}", table, SearchedParameter)


def _describe(name: str, parameter: SearchedParameter, kind: type) -> dict[str, Any]:
    """Return a ParameterSpec."""
    if parameter.values:
        form, values = _describe_values(parameter.values)
        return {"parameter_id": name, f"{form}_value_spec": {"values": values}}
    form = "integer" if kind is int else "double"
    bounds = {"min_value": parameter.min, "max_value": parameter.max}
    return {
        "parameter_id": name,
        f"{form}_value_spec": to_whole_numbers(bounds),
        "scale_type": f"UNIT_{parameter.scale.upper()}_SCALE",
    }


def _describe_values(values: list[Any]) -> tuple[str, list[Any]]:
    """Return the form of values in the API, and the values in it."""
    if _is_number(values[0]):
        return "discrete", sorted(values)
    return "categorical", [
        value if isinstance(value, str) else json.dumps(value) for value in values
    ]


def _find_gap(values: list[Any]) -> float:
    """Return the smallest difference of two numbers of a list."""
    ordered = sorted(values)
    return min(b - a for a, b in itertools.pairwise(ordered))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
