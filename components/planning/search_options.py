"""Options of a search for hyperparameters, and the StudySpec that they describe.

    [search]
    parameters.learning_rate = { min = 1e-4, max = 1e-1, scale = "log" }
    parameters.batch_size = [32, 64]
    parameters."model_options.units" = { min = 16, max = 256 }
    parameters.momentum = { min = 0.5, max = 0.99, when = { optimizer = ["sgd"] } }

https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/Shared.Types/StudySpec
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainer import fields
from trainer.errors import InputError
from trainer.fields import option
from trainer.models import find_model_class
from trainer.training.config import TrainingConfig

ALGORITHMS = {
    "default": "ALGORITHM_UNSPECIFIED", "grid": "GRID_SEARCH", "random": "RANDOM_SEARCH"
}  # fmt: skip
STOPPING = {"median": "median_automated_stopping_spec", "decay_curve": "decay_curve_stopping_spec"}
_SCALES = {
    "linear": "UNIT_LINEAR_SCALE", "log": "UNIT_LOG_SCALE", "reverse_log": "UNIT_REVERSE_LOG_SCALE"
}  # fmt: skip
_RISING = ("accuracy", "example_f1")
_FIXED = (
    "model", "warm_start", "strategy", "monitor", "keep_epoch", "max_train_examples", "seed",
    "checkpoint_steps", "steps_per_execution", "profile_steps", "shuffle_megabytes",
)  # fmt: skip
"""Options of training that decide how a trial is run or judged."""
TRIALS = "trials"
"""Folder in that of the training with the recipe's values: a folder for each run, which has one for
each trial. A run that goes on with the training of another has trials of the same numbers."""
_KEYS = {"min", "max", "scale", "values", "when"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """A recipe's table [search]."""

    parameters: dict = option(
        {}, help="Options of training to search, each with its range or its values."
    )
    trials: int = option(12, help="Number of trainings with values of the search.", minimum=2)
    parallel: int = option(2, help="Number of trials at the same time.", minimum=1)
    metric: str = option(
        "loss",
        help="Validation metric by which trials are judged.",
        choices=("loss", "accuracy", "mae", "example_f1"),
    )
    algorithm: str = option(
        "default",
        help="How values are chosen; default: by what earlier trials have found.",
        choices=ALGORITHMS,
    )
    early_stopping: str = option(
        "none",
        help="Rule by which bad trials are stopped before their last epoch.",
        choices=("none", *STOPPING),
    )
    failed_trials: int = option(
        0, help="Number of trials that may fail before the search does; 0: as the service decides.",
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

    @property
    def metric_id(self) -> str:
        """Return the name by which replicas report the metric."""
        return f"validation_{self.metric}"

    @property
    def is_rising(self) -> bool:
        """Return whether the metric is better if it is higher."""
        return self.metric in _RISING


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchedParameter:
    """An option of training that a search varies: by its `values`, or from `low` to `high`."""

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    is_whole: bool = False
    scale: str = "linear"
    when: tuple[str, tuple[Any, ...]] | None = None  # it counts only with these of another's values

    @property
    def extremes(self) -> tuple[Any, ...]:
        """Return the values that are checked: all of a list, or the ends of a range."""
        return self.values or (self.low, self.high)

    def describe(self) -> dict[str, Any]:
        """Return the ParameterSpec."""
        spec: dict[str, Any] = {"parameter_id": self.name}
        if self.values and _is_number(self.values[0]):
            spec["discrete_value_spec"] = {"values": sorted(self.values)}
        elif self.values:
            spec["categorical_value_spec"] = {"values": [_to_text(value) for value in self.values]}
        else:
            kind = "integer_value_spec" if self.is_whole else "double_value_spec"
            spec[kind] = {"min_value": self.low, "max_value": self.high}
            spec["scale_type"] = _SCALES[self.scale]
        return spec


def read_parameters(search: SearchOptions, config: TrainingConfig) -> list[SearchedParameter]:
    """Return the parameters of a search; raise InputError for one that can't be searched."""
    found = [_read(name, spec, config) for name, spec in search.parameters.items()]
    by_name = {parameter.name: parameter for parameter in found}
    for parameter in found:
        if parameter.when is None:
            continue
        parent, wanted = parameter.when
        values = by_name[parent].values if parent in by_name else ()
        if by_name.get(parent, parameter).when or not {*wanted} <= {*values}:
            raise InputError(
                f"{parameter.name}: when names {parent}={list(wanted)}, which are no values that "
                "the search has for an option without a condition"
            )
    if search.algorithm == "grid":
        for parameter in found:
            if not parameter.values and not parameter.is_whole:
                raise InputError(
                    f"algorithm='grid' needs values or whole numbers, but {parameter.name} has a "
                    "range; give a list"
                )
    return found


def build_study_spec(search: SearchOptions, config: TrainingConfig) -> dict[str, Any]:
    """Return the StudySpec of a search for the options of `config`."""
    parameters = read_parameters(search, config)
    specs = {parameter.name: parameter.describe() for parameter in parameters}
    for parameter in parameters:
        if parameter.when:
            parent, wanted = parameter.when
            condition = "parent_discrete_values" if _is_number(wanted[0]) else (
                "parent_categorical_values"
            )  # fmt: skip
            values = wanted if _is_number(wanted[0]) else [_to_text(value) for value in wanted]
            child = {"parameter_spec": specs[parameter.name], condition: {"values": [*values]}}
            specs[parent].setdefault("conditional_parameter_specs", []).append(child)
    keeps_best = config.keep_epoch == "best" and config.monitor == search.metric
    spec: dict[str, Any] = {
        "metrics": [
            {
                "metric_id": search.metric_id,
                "goal": "MAXIMIZE" if search.is_rising else "MINIMIZE",
            }
        ],
        "parameters": [specs[parameter.name] for parameter in parameters if not parameter.when],
        "algorithm": ALGORITHMS[search.algorithm],
        "measurement_selection_type": "BEST_MEASUREMENT" if keeps_best else "LAST_MEASUREMENT",
    }
    if search.early_stopping in STOPPING:
        spec[STOPPING[search.early_stopping]] = {}
    return spec


def _read(name: str, spec: Any, config: TrainingConfig) -> SearchedParameter:
    kind = _find_type(name, config)
    table = {"values": spec} if isinstance(spec, list) else spec
    if not isinstance(table, dict) or not table.keys() <= _KEYS:
        raise InputError(
            f"{name} = {spec!r} is neither a list of values nor a table of {', '.join(_KEYS)}"
        )
    when = _read_condition(name, table.get("when"))
    if "values" in table:
        return SearchedParameter(name=name, values=_read_values(name, table), when=when)
    low: Any = table.get("min")
    high: Any = table.get("max")
    scale = table.get("scale", "linear")
    if not (_is_number(low) and _is_number(high) and low < high and math.isfinite(high)):
        raise InputError(f"{name}: min={low!r} and max={high!r} are no range; give two numbers")
    if scale not in _SCALES:
        raise InputError(f"{name}: scale={scale!r}{fields.suggest(str(scale), _SCALES)}")
    if scale != "linear" and low <= 0:
        raise InputError(f"{name}: scale={scale!r} needs numbers above 0, but min={low}")
    return SearchedParameter(
        name=name, low=low, high=high, is_whole=kind is int, scale=scale, when=when
    )


def _find_type(name: str, config: TrainingConfig) -> type:
    """Return the type of an option; raise InputError if it can't be searched."""
    group, _, inner = name.partition(".")
    known: dict[str, type] = {
        field.name: fields.type_of(TrainingConfig, field.name)
        for field in dataclasses.fields(TrainingConfig)
        if field.name not in _FIXED
    }
    if group == "model_options" and inner:
        model = find_model_class(config.model)
        known = {f"{group}.{field.name}": fields.type_of(model, field.name)
                 for field in dataclasses.fields(model)}  # fmt: skip
    known = {key: kind for key, kind in known.items() if kind not in (list, dict)}
    if name not in known:
        raise InputError(f"{name!r} can't be searched{fields.suggest(name, known)}")
    return known[name]


def _read_values(name: str, table: Mapping[str, Any]) -> tuple[Any, ...]:
    values = table["values"]
    kinds = {_is_number(value) for value in values} if isinstance(values, list) else set()
    if len(kinds) != 1 or len({*map(repr, values)}) != len(values) or len(values) < 2:
        raise InputError(
            f"{name} = {values!r} is no list of two or more different values of one type"
        )
    if table.keys() & {"min", "max", "scale"}:
        raise InputError(f"{name} has values, and a range; give one")
    return tuple(values)


def _read_condition(name: str, when: Any) -> tuple[str, tuple[Any, ...]] | None:
    if when is None:
        return None
    if isinstance(when, dict) and len(when) == 1:
        ((parent, values),) = when.items()
        if isinstance(values, list) and values:
            return parent, tuple(values)
    raise InputError(f"{name}: when = {when!r} is no table of one option with a list of its values")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def list_points(parameters: list[SearchedParameter]) -> Iterator[dict[str, Any]]:
    """Yield values of single options to check, each with those that its condition names."""
    for parameter in parameters:
        for value in parameter.extremes:
            condition = {parameter.when[0]: parameter.when[1][0]} if parameter.when else {}
            yield {**condition, parameter.name: value}
