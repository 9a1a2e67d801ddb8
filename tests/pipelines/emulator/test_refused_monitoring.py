"""The emulator refuses the monitoring jobs that Vertex AI refuses."""

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT, changed

OBJECTIVE = {
    "training_dataset": {
        "gcs_source": {"uris": ["gs://bucket/trips.csv"]},
        "data_format": "csv",
        "target_field": "tips",
    },
    "training_prediction_skew_detection_config": {"default_skew_threshold": {"value": 0.3}},
}
OBJECTIVES = "model_deployment_monitoring_objective_configs"
SAMPLE_RATE = "logging_sampling_strategy__random_sample_config__sample_rate"
JOB = {
    "display_name": "trips",
    "model_deployment_monitoring_schedule_config": {"monitor_interval": {"seconds": 3600}},
    "logging_sampling_strategy": {"random_sample_config": {"sample_rate": 0.5}},
}


def objectives(deployed_model="1", **fields):
    config = {"deployed_model_id": deployed_model, "objective_config": changed(OBJECTIVE, **fields)}
    return {OBJECTIVES: [config]}


@pytest.fixture
def monitor(services):
    """Create a monitoring job with other fields for an endpoint that serves version 1."""
    endpoint = services.create("endpoint").result().name
    services.deploy(endpoint, {"0": 100}).result()

    def create(**fields):
        content = changed({**JOB, **objectives(), "endpoint": endpoint}, **fields)
        return services.job.create_model_deployment_monitoring_job(
            parent=PARENT, model_deployment_monitoring_job=content
        )

    return create


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"display_name": ""}, "display_name is required"),
        ({"display_name": 129 * "x"}, "has more than 128 characters"),
        ({"endpoint": ""}, "endpoint is required"),
        ({OBJECTIVES: []}, "objective_configs is required"),
        ({"model_deployment_monitoring_schedule_config": {}}, "monitor_interval is required"),
        ({"logging_sampling_strategy": {}}, r"sample_rate 0 is not in \(0, 1\]"),
        ({SAMPLE_RATE: 1.5}, r"sample_rate 1.5 is not in \(0, 1\]"),
        (objectives("2"), "DeployedModel 2 is not at the endpoint"),
        (objectives(training_dataset={}), "training_dataset is required to detect"),
        (objectives(training_dataset__data_format="parquet"), "'parquet' is not one of"),
    ],
)
def test_invalid_monitoring_job_is_refused(monitor, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        monitor(**fields)


def test_monitoring_job_is_paused_before_it_is_deleted(services, monitor):
    job = monitor()
    endpoint = services.endpoint.get_endpoint(name=job.endpoint)
    assert endpoint.model_deployment_monitoring_job == job.name
    job.logging_sampling_strategy.random_sample_config.sample_rate = 1

    def update(field):
        return services.job.update_model_deployment_monitoring_job(
            model_deployment_monitoring_job=job, update_mask={"paths": [field]}
        )

    with pytest.raises(exceptions.BadRequest, match="analysis_instance_schema_uri, which is not"):
        update("analysis_instance_schema_uri")
    update("logging_sampling_strategy").result()
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
