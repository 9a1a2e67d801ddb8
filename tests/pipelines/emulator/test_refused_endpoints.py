"""The emulator refuses the endpoints and deployments that Vertex AI refuses."""

import functools

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT


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
        ({"dedicated_resources__machine_spec": {}}, "machine_type is required"),
        (
            # A machine type of training.
            {"dedicated_resources__machine_spec__machine_type": "n4-standard-4"},
            "machine_type='n4-standard-4' is not a machine type of prediction",
        ),
    ],
)
def test_invalid_deployment_is_refused(services, endpoint, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        services.deploy(endpoint, {}, **{"id": "2", **fields})
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


def test_deployed_model_gets_an_unused_id(services, endpoint):
    services.deploy(endpoint, {}, id="").result()
    services.endpoint.undeploy_model(
        endpoint=endpoint, deployed_model_id="1", traffic_split={"2": 100}
    )
    services.deploy(endpoint, {}, id="").result()
    found = services.endpoint.get_endpoint(name=endpoint).deployed_models
    assert [one.id for one in found] == ["2", "3"]


def test_endpoint_with_models_is_not_deleted(services, endpoint):
    with pytest.raises(exceptions.BadRequest, match="has deployed models"):
        services.endpoint.delete_endpoint(name=endpoint)
    services.update_endpoint(endpoint, traffic_split={})
    services.endpoint.undeploy_model(endpoint=endpoint, deployed_model_id="1", traffic_split={})
    services.endpoint.delete_endpoint(name=endpoint)
    assert not list(services.endpoint.list_endpoints(parent=PARENT))
