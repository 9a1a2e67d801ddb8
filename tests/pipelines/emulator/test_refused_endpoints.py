"""The emulator refuses the deployments and monitoring jobs that Vertex AI refuses."""

import functools

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.idle_services import PARENT, PROJECT, changed

OBJECTIVE = {
    "training_dataset": {
        "gcs_source": {"uris": ["gs://bucket/trips.csv"]},
        "data_format": "csv",
        "target_field": "tips",
    },
    "training_prediction_skew_detection_config": {"default_skew_threshold": {"value": 0.3}},
}
OBJECTIVES = "model_deployment_monitoring_objective_configs"
MACHINE = "dedicated_resources__machine_spec"
METRICS = "dedicated_resources__autoscaling_metric_specs"
SAMPLE_RATE = "logging_sampling_strategy__random_sample_config__sample_rate"
QUERY = {"input_uri": "bq://SELECT * FROM d.trips"}
JOB = {
    "display_name": "trips",
    "model_deployment_monitoring_schedule_config": {"monitor_interval": {"seconds": 3600}},
    "logging_sampling_strategy": {"random_sample_config": {"sample_rate": 0.5}},
}


@pytest.fixture
def endpoint(services):
    """The name of an endpoint, to which version 1 of a model is deployed."""
    name = services.create("endpoint", "digits").result().name
    services.deploy(name, {"0": 100}).result()
    return name


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"id": "v1"}, "'v1' is not up to 10 digits"),
        ({"dedicated_resources__min_replica_count": 0}, "min_replica_count is required"),
        ({"dedicated_resources__min_replica_count": 3}, "2 is less than min_replica"),
        ({"dedicated_resources__required_replica_count": 2}, "2 is more than 1, the minimum"),
        ({METRICS: [{"metric_name": "cpu"}] * 2}, "more than once in"),
        ({"service_account": "runner"}, "service_account='runner' is not"),
        ({MACHINE: {}}, "machine_type is required"),
        # A machine type of training.
        ({f"{MACHINE}__machine_type": "n4-standard-4"}, "is not a machine type for prediction"),
    ],
)
def test_invalid_deployment_is_refused(services, endpoint, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.deploy(endpoint, {}, **{"id": "2", **fields})
    with pytest.raises(exceptions.Conflict):
        services.deploy(endpoint, {})


def test_project_has_a_limit_of_deployed_replicas(services, endpoint):
    def deploy(number, replicas):
        counts = {f"dedicated_resources__{end}_replica_count": replicas for end in ("min", "max")}
        return services.deploy(endpoint, {}, id=number, **counts)

    deploy("2", 199).result()
    with pytest.raises(exceptions.BadRequest, match="201 replicas would be deployed; at m"):
        services.deploy(services.create("endpoint").result().name, {})
    elsewhere = PARENT.replace("us-central1", "europe-west4")
    services.deploy(services.create("endpoint", parent=elsewhere).result().name, {})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"dedicated_endpoint_enabled": True}, "dedicated_endpoint_enabled is not supported here"),
        ({"network": "projects/1/global/networks/n"}, "network is not supported here"),
        ({"traffic_split": {"1": 100}}, "1, which is not deployed"),
    ],
)
def test_invalid_endpoint_is_refused(services, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.create("endpoint", **fields)


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


def test_model_is_listed_once_it_is_deployed(services, endpoint):
    def listed():
        found = services.endpoint.get_endpoint(name=endpoint)
        return [model.id for model in found.deployed_models], dict(found.traffic_split)

    services.servers.polls = 99
    services.deploy(endpoint, {"0": 100}, id="2")
    assert listed() == (["1"], {"1": 100})
    with pytest.raises(exceptions.Conflict, match="DeployedModel 2 exists already"):
        services.deploy(endpoint, {}, id="2")
    services.update_endpoint(endpoint, traffic_split={})
    services.endpoint.undeploy_model(endpoint=endpoint, deployed_model_id="1", traffic_split={})
    with pytest.raises(exceptions.BadRequest, match="has operations that are running"):
        services.endpoint.delete_endpoint(name=endpoint)
    *_, deployment, undeployment = services.endpoint.list_operations(endpoint)
    assert deployment.name.startswith(f"{endpoint}/operations/")
    assert (deployment.done, undeployment.done) == (False, True)
    services.servers.polls = 0
    assert listed() == (["2"], {"2": 100})

    services.servers.error = "Model server exited"
    services.deploy(endpoint, {"0": 100}, id="3")
    assert listed() == (["2"], {"2": 100})
    *_, failed = services.endpoint.list_operations(endpoint)
    assert (failed.done, failed.error.message) == (True, "Model server exited")


def test_deployed_model_gets_an_unused_id(services, endpoint):
    services.deploy(endpoint, {}, id="").result()
    services.endpoint.undeploy_model(
        endpoint=endpoint, deployed_model_id="1", traffic_split={"2": 100}
    )
    services.deploy(endpoint, {}, id="").result()
    deployed = services.endpoint.get_endpoint(name=endpoint).deployed_models
    assert [model.id for model in deployed] == ["2", "3"]


def test_endpoints_are_ordered(services, endpoint):
    later = services.create("endpoint").result().name
    listed = services.endpoint.list_endpoints({"parent": PARENT, "order_by": "create_time desc"})
    assert [item.name for item in listed] == [later, endpoint]


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


def objectives(deployed_model="1", **fields):
    config = {"deployed_model_id": deployed_model, "objective_config": changed(OBJECTIVE, **fields)}
    return {OBJECTIVES: [config]}


@pytest.fixture
def monitor(services, endpoint):
    """Create a monitoring job of the endpoint, with other fields."""

    def create(parent=PARENT, **fields):
        content = changed({**JOB, **objectives(), "endpoint": endpoint}, **fields)
        return services.job.create_model_deployment_monitoring_job(
            parent=parent, model_deployment_monitoring_job=content
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
        ({"parent": f"{PROJECT}/locations/us-east5"}, "us-east5 has no Model Monitoring"),
        (objectives("2"), "DeployedModel 2 is not at the endpoint"),
        (objectives(training_dataset={}), "training_dataset is required to detect"),
        (objectives(training_dataset__data_format="parquet"), "'parquet' is not one of"),
        (objectives(training_dataset={"bigquery_source": QUERY}), "is not bq://PROJECT.DATASET"),
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

    def update(*fields):
        return services.job.update_model_deployment_monitoring_job(
            model_deployment_monitoring_job=job, update_mask={"paths": fields}
        )

    with pytest.raises(exceptions.BadRequest, match="analysis_instance_schema_uri, which is not"):
        update("analysis_instance_schema_uri")
    update("logging_sampling_strategy").result()
    get = services.job.get_model_deployment_monitoring_job
    assert get(name=job.name).logging_sampling_strategy == job.logging_sampling_strategy
    job.display_name, job.log_ttl = "renamed", {"seconds": 86400}
    update().result()
    assert get(name=job.name).display_name == "renamed"
    job.log_ttl = None
    update("*").result()
    assert not get(name=job.name).log_ttl
    delete = services.job.delete_model_deployment_monitoring_job
    with pytest.raises(exceptions.BadRequest, match="is JOB_STATE_RUNNING: pause it first"):
        delete(name=job.name)
    pause = services.job.pause_model_deployment_monitoring_job
    resume = services.job.resume_model_deployment_monitoring_job
    with pytest.raises(exceptions.BadRequest, match="is JOB_STATE_RUNNING, not paused"):
        resume(name=job.name)
    pause(name=job.name)
    with pytest.raises(exceptions.BadRequest, match="is JOB_STATE_PAUSED, not running"):
        pause(name=job.name)
    resume(name=job.name)
    pause(name=job.name)
    delete(name=job.name).result()
    with pytest.raises(exceptions.NotFound):
        get(name=job.name)
    endpoint = services.endpoint.get_endpoint(name=job.endpoint)
    assert not endpoint.model_deployment_monitoring_job
