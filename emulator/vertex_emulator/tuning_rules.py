"""Refuse a HyperparameterTuningJob that Vertex AI refuses, or that is not supported here."""

import itertools
from collections.abc import Sequence
from typing import Any

from vertex_emulator.field_rules import check_common, refuse
from vertex_emulator.job_rules import check_spec
from vertex_emulator.tuning_search import condition_values, kind_of, matches

_APART = 1e-10
_MAX_DISCRETE_VALUES = 1000
_LOG_SCALES = ("UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE")
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
    seen: set[str] = set()
    for metric in spec.metrics:
        _check_id("metric_id", metric.metric_id)
        refuse(metric.metric_id in seen, f"metric_id {metric.metric_id!r} is not unique")
        refuse("safety_config" in metric, "safety_config is not supported here")
        seen.add(metric.metric_id)
    _check_parameters(spec.parameters, is_grid=spec.algorithm.name == "GRID_SEARCH")


def _check_id(field: str, value: str) -> None:
    refuse(any(map(str.isspace, value)), f"{field} {value!r} contains white space")


def _check_parameters(parameters: Sequence[Any], *, is_grid: bool) -> set[str]:
    """Refuse invalid parameters, or two that can be active at once with one ID; return all IDs."""
    found: set[str] = set()
    for parameter in parameters:
        ids = _check_parameter(parameter, is_grid=is_grid)
        refuse(found & ids, f"parameter_id {min(found & ids, default='')!r} is not unique")
        found |= ids
    return found


def _check_parameter(parameter: Any, *, is_grid: bool) -> set[str]:
    """Refuse an invalid parameter or condition; return its ID and those of its conditions."""
    name, kind = parameter.parameter_id, kind_of(parameter)
    _check_id("parameter_id", name)
    refuse(not kind, f"{name} has no value spec, such as double_value_spec")
    refuse(is_grid and kind == "DOUBLE", f"{name} is DOUBLE, which GRID_SEARCH does not support")
    _check_values(parameter, kind)
    found: list[tuple[list[Any], set[str]]] = [([], {name})]
    for condition in parameter.conditional_parameter_specs:
        values = condition_values(condition)
        _check_condition(condition, values, parameter)
        ids = _check_parameter(condition.parameter_spec, is_grid=is_grid)
        for others, taken in found:
            overlap = taken & ids and (
                not others or any(matches(value, others) for value in values)
            )
            refuse(overlap, f"parameter_id {min(taken & ids, default='')!r} is not unique")
        found.append((values, ids))
    return set().union(*(ids for _, ids in found))


def _check_values(parameter: Any, kind: str) -> None:
    """Refuse a default, bounds, values or a scale that a parameter of a type can't have."""
    name, scale = parameter.parameter_id, parameter.scale_type.name
    spec = getattr(parameter, f"{kind.lower()}_value_spec")
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
    refuse(scale in _LOG_SCALES and low <= 0, f"{name} has {low}; {scale} needs positive values")


def _check_condition(condition: Any, values: Sequence[Any], parameter: Any) -> None:
    """Refuse a condition of another type than its parent, or with values that it can't have."""
    name, kind = parameter.parameter_id, kind_of(parameter)
    fields = {"DISCRETE": "discrete", "INTEGER": "int", "CATEGORICAL": "categorical"}
    field = f"parent_{fields.get(kind, '')}_values"
    refuse(field not in type(condition).meta.fields, f"{name} is {kind}, which has no conditions")
    refuse(field not in condition, f"a condition of {name}, which is {kind}, needs {field}")
    spec = getattr(parameter, f"{kind.lower()}_value_spec")
    for value in values:
        is_within = (
            spec.min_value <= value <= spec.max_value
            if kind == "INTEGER"
            else matches(value, spec.values)
        )
        refuse(not is_within, f"{field} of {name} has {value!r}, which is not one of its values")
