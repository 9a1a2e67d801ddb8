"""Refuse a HyperparameterTuningJob that Vertex AI refuses, or that is not supported here."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from vertex.emulator import tuning_search
from vertex.emulator.field_rules import check_common, refuse
from vertex.emulator.job_rules import check_spec

_APART = 1e-10
_MAX_DISCRETE_VALUES = 1000
_UNSUPPORTED = ("convex_automated_stopping_spec", "study_stopping_config")
"""Fields of a StudySpec that Vertex AI supports, but this emulator does not."""


def check(job: Any, parent: str) -> None:
    """Refuse a job that breaks a rule; `parent` is projects/P/locations/L."""
    check_common(job, "hyperparameter_tuning_job", parent)
    for name in ("max_trial_count", "parallel_trial_count"):
        count = getattr(job, name)
        refuse(count < 0, f"{name} is {count}; it must be positive")
    failed, total = job.max_failed_trial_count, job.max_trial_count
    beyond = not 0 <= failed <= total
    refuse(beyond, f"max_failed_trial_count is {failed}; it must be 0 to max_trial_count, {total}")
    _check_study(job.study_spec)
    check_spec(job.trial_job_spec, "hyperparameter_tuning_job.trial_job_spec", parent)


def _check_study(spec: Any) -> None:
    refuse(spec.observation_noise, "observation_noise is not supported by HyperparameterTuningJob")
    for name in _UNSUPPORTED:
        refuse(name in spec, f"study_spec.{name} is not supported here")
    names = [metric.metric_id for metric in spec.metrics]
    for name, metric in zip(names, spec.metrics, strict=True):
        refuse(any(map(str.isspace, name)), f"metric_id {name!r} contains white space")
        refuse(names.count(name) > 1, f"metric_id {name!r} is not unique")
        refuse("safety_config" in metric, "safety_config is not supported here")
    _check_parameters(spec.parameters, is_grid=spec.algorithm.name == "GRID_SEARCH")


def _check_parameters(parameters: Sequence[Any], *, is_grid: bool) -> None:
    """Refuse invalid parameters, or two that can be active at once with one ID."""
    listed = [*_list_all(parameters, {})]
    for parameter, _ in listed:
        _check_parameter(parameter, is_grid=is_grid)
    for (one, first), (other, second) in itertools.combinations(listed, 2):
        name, parents = one.parameter_id, first.keys() & second.keys()
        are_apart = any(set(first[parent]).isdisjoint(second[parent]) for parent in parents)
        is_same = name == other.parameter_id
        refuse(is_same and not are_apart, f"parameter_id {name!r} is not unique")


def _list_all(
    parameters: Sequence[Any], active: dict[str, list[Any]]
) -> Iterator[tuple[Any, dict[str, list[Any]]]]:
    """Yield each parameter, with the values of others with which it is active."""
    for parameter in parameters:
        yield parameter, active
        for condition in parameter.conditional_parameter_specs:
            values = {parameter.parameter_id: tuning_search.condition_values(condition)}
            yield from _list_all([condition.parameter_spec], active | values)


def _check_parameter(parameter: Any, *, is_grid: bool) -> None:
    name, kind = parameter.parameter_id, tuning_search.kind_of(parameter)
    refuse(any(map(str.isspace, name)), f"parameter_id {name!r} contains white space")
    refuse(not kind, f"{name} has no value spec, such as double_value_spec")
    refuse(is_grid and kind == "DOUBLE", f"{name} is DOUBLE, which GRID_SEARCH does not support")
    _check_values(parameter, kind)
    for condition in parameter.conditional_parameter_specs:
        _check_condition(condition, parameter, kind)


def _check_values(parameter: Any, kind: str) -> None:
    """Refuse a default, bounds, values or a scale that a parameter of a type can't have."""
    name, scale = parameter.parameter_id, parameter.scale_type.name
    spec = tuning_search.value_spec(parameter)
    default = f"{name}.default_value is not supported by HyperparameterTuningJob"
    refuse("default_value" in spec, default)
    if kind == "CATEGORICAL":
        refuse(parameter.scale_type, f"{name}.scale_type is {scale}; leave it unset: {kind}")
        return
    if kind == "DISCRETE":
        count, low = len(spec.values), spec.values[0]
        refuse(count > _MAX_DISCRETE_VALUES, f"{name} has {count} values; at most 1000")
        close = any(b - a < _APART for a, b in itertools.pairwise(spec.values))
        refuse(close, f"the values of {name} must increase, and be at least {_APART} apart")
    else:
        low, high = spec.min_value, spec.max_value
        refuse(low > high, f"{name}.min_value {low} is more than max_value {high}")
    is_log = scale in tuning_search.LOG_SCALES
    refuse(is_log and low <= 0, f"{name} has {low}; {scale} needs positive values")


def _check_condition(condition: Any, parameter: Any, kind: str) -> None:
    """Refuse a condition of another type than its parent, or with values that it can't have."""
    name = parameter.parameter_id
    refuse(kind == "DOUBLE", f"{name} is DOUBLE, which has no conditions")
    field = f"parent_{'int' if kind == 'INTEGER' else kind.lower()}_values"
    refuse(field not in condition, f"a condition of {name}, which is {kind}, needs {field}")
    feasible = tuning_search.feasible_values(parameter)
    for value in tuning_search.condition_values(condition):
        is_other = not tuning_search.matches(value, feasible)
        refuse(is_other, f"{field} of {name} has {value!r}, which is not one of its values")
