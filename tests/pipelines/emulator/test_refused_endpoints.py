"""The emulator refuses the deployments and monitoring jobs that Vertex AI refuses."""

import functools

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT

JOB = {
    "display_name": "trips",
    "model_deployment_monitoring_schedule_config": {"monitor_interval": {"seconds": 3600}},
    "logging_sampling_strategy": {"random_sample_config": {"sample_rate": 0.5}},
    "model_deployment_monitoring_objective_configs": [{"deployed_model_id": "1"}],
}


@pytest.fixture
def endpoint(services):
    """The name of an endpoint, to which version 1 of a model is deployed."""
    name = services.create("endpoint", "digits").result().name
    services.deploy(name, {"0": 100}).result()
    return name


def test_deployed_model_has_an_id_of_its_own(services, endpoint):
    with pytest.raises(exceptions.Conflict):
        services.deploy(endpoint, {})


def test_invalid_traffic_split_is_refused(services, endpoint):
    with pytest.raises(exceptions.BadRequest, match="adds up to 110, not 100"):
        services.deploy(endpoint, {"0": 10, "1": 100}, id="2")
    with pytest.raises(exceptions.BadRequest, match="adds up to 90"):
        services.update_endpoint(endpoint, traffic_split={"1": 90})
    with pytest.raises(exceptions.BadRequest, match="9, which is not deployed"):
        services.update_endpoint(endpoint, traffic_split={"9": 100})
    with pytest.raises(exceptions.Conflict, match="changed since etag was read"):
        services.update_endpoint(endpoint, traffic_split={}, etag="older")


def test_model_with_traffic_is_not_undeployed(services, endpoint):
    services.deploy(endpoint, {"0": 0, "1": 100}, id="2")
    undeploy = functools.partial(services.endpoint.undeploy_model, endpoint=endpoint)
    with pytest.raises(exceptions.BadRequest, match="DeployedModel 1 has traffic"):
        undeploy(deployed_model_id="1", traffic_split={}, timeout=20)
    undeploy(deployed_model_id="2", traffic_split={})
    # The last model takes its traffic with it.
    undeploy(deployed_model_id="1", traffic_split={})
    assert not services.endpoint.get_endpoint(name=endpoint).traffic_split


def test_endpoint_with_models_is_not_deleted(services, endpoint):
    with pytest.raises(exceptions.BadRequest, match="has deployed models"):
        services.endpoint.delete_endpoint(name=endpoint)
    services.update_endpoint(endpoint, traffic_split={})
    services.endpoint.undeploy_model(endpoint=endpoint, deployed_model_id="1", traffic_split={})
    services.endpoint.delete_endpoint(name=endpoint)
    assert not list(services.endpoint.list_endpoints(parent=PARENT))


def test_large_request_for_predictions_is_refused(services, endpoint):
    with pytest.raises(exceptions.BadRequest, match=r"1600019 bytes, more than 1\.5 MB"):
        services.prediction.predict(endpoint=endpoint, instances=["x" * 1_600_000])


def test_monitoring_job_is_paused_before_it_is_deleted(services, endpoint):
    job = services.job.create_model_deployment_monitoring_job(
        parent=PARENT, model_deployment_monitoring_job={**JOB, "endpoint": endpoint}
    )
    endpoint = services.endpoint.get_endpoint(name=job.endpoint)
    assert endpoint.model_deployment_monitoring_job == job.name
    job.logging_sampling_strategy.random_sample_config.sample_rate = 1

    services.job.update_model_deployment_monitoring_job(
        model_deployment_monitoring_job=job, update_mask={"paths": ["logging_sampling_strategy"]}
    ).result()
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
