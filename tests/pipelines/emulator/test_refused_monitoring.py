"""Monitoring that Vertex AI's pages rule out is refused."""

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT, changed
from tests.pipelines.emulator.test_refused_endpoints import create, deploy

OBJECTIVE = {
    "training_dataset": {
        "gcs_source": {"uris": ["gs://bucket/trips.csv"]},
        "data_format": "csv",
        "target_field": "tips",
    },
    "training_prediction_skew_detection_config": {"default_skew_threshold": {"value": 0.3}},
}
JOB = {
    "display_name": "trips",
    "model_deployment_monitoring_objective_configs": [
        {"deployed_model_id": "1", "objective_config": OBJECTIVE}
    ],
    "model_deployment_monitoring_schedule_config": {"monitor_interval": {"seconds": 3600}},
    "logging_sampling_strategy": {"random_sample_config": {"sample_rate": 0.5}},
}


@pytest.fixture
def monitored(services):
    """Creates a monitoring job with other fields for an endpoint that serves version 1."""
    endpoint = create(services, "trips").result().name
    deploy(services, endpoint, {"0": 100}).result()

    def monitor(**fields):
        content = changed({**JOB, "endpoint": endpoint}, **fields)
        return services.job.create_model_deployment_monitoring_job(
            parent=PARENT, model_deployment_monitoring_job=content
        )

    return monitor


def objective(**fields):
    return [{"deployed_model_id": "1", "objective_config": changed(OBJECTIVE, **fields)}]


OBJECTIVES = "model_deployment_monitoring_objective_configs"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"display_name": ""}, "display_name is required"),
        ({"display_name": 129 * "x"}, "has more than 128 characters"),
        ({"endpoint": ""}, "endpoint is required"),
        ({OBJECTIVES: []}, "objective_configs is required"),
        ({"model_deployment_monitoring_schedule_config": {}}, "monitor_interval is required"),
        ({"logging_sampling_strategy": {}}, r"sample_rate 0 is not in \(0, 1\]"),
        (
            {"logging_sampling_strategy__random_sample_config__sample_rate": 1.5},
            r"sample_rate 1.5 is not in \(0, 1\]",
        ),
        ({OBJECTIVES: [{"deployed_model_id": "2"}]}, "DeployedModel 2 is not at the endpoint"),
        ({OBJECTIVES: objective(training_dataset={})}, "training_dataset is required to detect"),
        (
            {OBJECTIVES: objective(training_dataset__data_format="parquet")},
            "'parquet' is not one of",
        ),
    ],
)
def test_monitoring_that_a_page_rules_out_is_refused(monitored, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        monitored(**fields)


def test_a_job_is_paused_before_it_is_deleted(services, monitored):
    job = monitored()
    endpoint = services.endpoint.get_endpoint(name=job.endpoint)
    assert endpoint.model_deployment_monitoring_job == job.name
    job.logging_sampling_strategy.random_sample_config.sample_rate = 1
    update = services.job.update_model_deployment_monitoring_job
    with pytest.raises(exceptions.BadRequest, match="analysis_instance_schema_uri, which is not"):
        update(
            model_deployment_monitoring_job=job,
            update_mask={"paths": ["analysis_instance_schema_uri"]},
        )
    mask = {"paths": ["logging_sampling_strategy"]}
    update(model_deployment_monitoring_job=job, update_mask=mask).result()
    get = services.job.get_model_deployment_monitoring_job
    assert get(name=job.name).logging_sampling_strategy == job.logging_sampling_strategy
    delete = services.job.delete_model_deployment_monitoring_job
    with pytest.raises(exceptions.BadRequest, match="is JOB_STATE_RUNNING: pause it first"):
        delete(name=job.name)
    services.job.pause_model_deployment_monitoring_job(name=job.name)
    delete(name=job.name).result()
    with pytest.raises(exceptions.NotFound):
        get(name=job.name)
    endpoint = services.endpoint.get_endpoint(name=job.endpoint)
    assert not endpoint.model_deployment_monitoring_job
