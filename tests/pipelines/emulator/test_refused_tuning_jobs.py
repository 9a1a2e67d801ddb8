"""The emulator refuses the HyperparameterTuningJobs that Vertex AI refuses."""

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.idle_services import POOL, changed

METRIC = {"metric_id": "accuracy", "goal": "MAXIMIZE"}


def double(low, high, name="rate", **fields):
    return {
        "parameter_id": name,
        "double_value_spec": {"min_value": low, "max_value": high},
        **fields,
    }


def integer(low, high, name="layers", **fields):
    return {
        "parameter_id": name,
        "integer_value_spec": {"min_value": low, "max_value": high},
        **fields,
    }


def discrete(*values, **fields):
    return {"parameter_id": "batch", "discrete_value_spec": {"values": values}, **fields}


def categorical(*values, **fields):
    return {"parameter_id": "kind", "categorical_value_spec": {"values": values}, **fields}


def when(values, *, of="categorical", parameter=None):
    """Return a condition."""
    condition = {f"parent_{of}_values": {"values": values}}
    return {"parameter_spec": parameter or double(0, 1), **condition}


def under(parent, *conditions):
    return {**parent, "conditional_parameter_specs": conditions}


def defaulted(parameter, value):
    (spec,) = (field for field in parameter if field.endswith("_spec"))
    return changed(parameter, **{f"{spec}__default_value": value})


def refused(services, reason, **fields):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create("hyperparameter_tuning_job", **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"display_name": ""}, "display_name is required"),
        ({"display_name": "d" * 129}, "more than 128 characters"),
        ({"labels": {"Team": "vision"}}, "'Team' is not a label"),
        ({"max_trial_count": 0}, "max_trial_count is required"),
        ({"max_trial_count": -1}, "max_trial_count is -1"),
        ({"parallel_trial_count": 0}, "parallel_trial_count is required"),
        ({"parallel_trial_count": -1}, "parallel_trial_count is -1"),
        ({"max_failed_trial_count": 6}, "max_failed_trial_count is 6.*max_trial_count, 5"),
        ({"study_spec": None}, "study_spec is required"),
        ({"trial_job_spec": None}, "trial_job_spec is required"),
        ({"trial_job_spec": {}}, "trial_job_spec.worker_pool_specs is required"),
        ({"trial_job_spec__worker_pool_specs": [{**POOL, "replica_count": 2}]},
         r"trial_job_spec.worker_pool_specs\[0\].replica_count is 2"),
        ({"trial_job_spec__worker_pool_specs":
          [changed(POOL, machine_spec__machine_type="ct5lp-hightpu-1t")]}, "is a TPU machine"),
        ({"trial_job_spec__scheduling": {"strategy": "STANDARD", "max_wait_duration": "86400s"}},
         "max_wait_duration needs strategy FLEX_START, not STANDARD"),
    ],
)  # fmt: skip
def test_invalid_tuning_job_is_refused(services, fields, reason):
    refused(services, reason, **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"metrics": []}, "metrics is required"),
        ({"metrics": [{**METRIC, "goal": 0}]}, "goal is required"),
        ({"metrics": [{**METRIC, "metric_id": "top 5"}]}, "'top 5' contains white space"),
        ({"metrics": [METRIC, METRIC]}, "metric_id 'accuracy' is not unique"),
        ({"metrics": [{**METRIC, "safety_config": {"safety_threshold": 1}}]}, "safety_config"),
        ({"observation_noise": "LOW"}, "observation_noise is not supported by Hyperparameter"),
        ({"convex_automated_stopping_spec": {}}, "convex_automated.* is not supported here"),
        ({"study_stopping_config": {}}, "study_stopping_config is not supported here"),
        ({"algorithm": "GRID_SEARCH"}, "rate is DOUBLE, which GRID_SEARCH"),
    ],
)  # fmt: skip
def test_invalid_study_is_refused(services, fields, reason):
    refused(services, reason, **{f"study_spec__{name}": value for name, value in fields.items()})


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ([], "parameters is required"),
        ([{"parameter_id": "rate"}], "rate has no value spec"),
        ([double(0, 1, "learning rate")], "'learning rate' contains white space"),
        ([double(0, 1), integer(0, 1, "rate")], "parameter_id 'rate' is not unique"),
        ([double(1, 0.5)], "rate.min_value 1.0 is more than max_value 0.5"),
        ([integer(3, 2)], "layers.min_value 3 is more than max_value 2"),
        ([double(0, 1, scale_type="UNIT_LOG_SCALE")], "rate has 0.0; UNIT_LOG_SCALE needs pos"),
        ([integer(0, 1, scale_type="UNIT_REVERSE_LOG_SCALE")], "layers has 0; UNIT_REV"),
        ([discrete(0, 1, scale_type="UNIT_LOG_SCALE")], "batch has 0.0; UNIT_LOG"),
        ([categorical()], "values is required"),
        ([categorical("a", scale_type="UNIT_LINEAR_SCALE")], "kind.scale_type is UNIT_LIN"),
        ([discrete(2, 1)], "values of batch must increase"),
        ([discrete(1, 1 + 1e-11)], "at least 1e-10 apart"),
        ([discrete(*range(1001))], "batch has 1001 values; at most 1000"),
        ([defaulted(double(0, 1), 0.5)], "rate.default_value is not supported by Hyper"),
        ([defaulted(integer(0, 1), 1)], "layers.default_value is not supported by Hyper"),
        ([defaulted(categorical("a"), "a")], "kind.default_value is not supported by Hyper"),
        ([defaulted(discrete(1), 1)], "batch.default_value is not supported by Hyper"),
        ([under(categorical("a"), when(["b"]))], "kind has 'b', which is not one of its"),
        ([under(discrete(1, 2), when([3], of="discrete"))], "batch has 3.0, which is not"),
        ([under(integer(1, 2), when([3], of="int"))], "layers has 3, which is not one"),
        ([under(integer(1, 2), when([1], of="discrete"))], "is INTEGER, needs parent_int_values"),
        ([under(double(0, 1), when([1], of="discrete"))], "rate is DOUBLE, which has no cond"),
        ([under(categorical("a", "b"), when(["a"]), when(["b", "a"]))], "'rate' is not unique"),
        ([under(categorical("a"), when(["a"], parameter=categorical("b")))], "'kind' is not uni"),
        ([double(0, 1), under(categorical("a"), when(["a"]))], "'rate' is not unique"),
    ],
)  # fmt: skip
def test_invalid_parameter_is_refused(services, parameters, reason):
    refused(services, reason, study_spec__parameters=parameters)


def test_conditions_of_other_values_may_have_parameters_of_one_name(services):
    parameters = [under(categorical("a", "b"), when(["a"]), when(["b"]))]
    job = services.create("hyperparameter_tuning_job", study_spec__parameters=parameters)
    assert len(job.study_spec.parameters[0].conditional_parameter_specs) == 2
