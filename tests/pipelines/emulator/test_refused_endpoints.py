"""Endpoints and deployments that Vertex AI's pages rule out are refused."""

import functools

import pytest
from google.api_core import exceptions

from tests.pipelines.emulator.services import PARENT, PROJECT, changed

DEPLOYED = {
    "id": "1",
    "dedicated_resources": {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "min_replica_count": 1,
        "max_replica_count": 2,
    },
}
MODEL = {"display_name": "digits", "container_spec": {"image_uri": "image:1"}}


@pytest.fixture
def endpoint(services):
    """The name of an endpoint, to which version 1 of a model is deployed."""
    name = create(services, "digits").result().name
    deploy(services, name, {"0": 100}).result()
    return name


def create(services, endpoint_id, **fields):
    content = {"display_name": "digits", **fields}
    return services.endpoint.create_endpoint(
        parent=PARENT, endpoint=content, endpoint_id=endpoint_id
    )


def deploy(services, name, split, model=MODEL, **fields):
    """Upload a model and deploy it; return the operation."""
    model = services.upload(model).model
    deployed = changed({**DEPLOYED, "model": model}, **fields)
    request = {"endpoint": name, "deployed_model": deployed, "traffic_split": split}
    return services.endpoint.deploy_model(request)


def test_an_endpoint_that_a_page_rules_out_is_refused(services):
    for endpoint_id in ("Digits", "chicago_taxi", "d" * 64, "digits-", "012"):
        with pytest.raises(exceptions.BadRequest, match="endpoint_id"):
            create(services, endpoint_id)
    with pytest.raises(exceptions.BadRequest, match="display_name is required"):
        create(services, "digits", display_name="")
    with pytest.raises(exceptions.BadRequest, match="'A' is not a label"):
        create(services, "digits", labels={"A": ""})
    elsewhere = f"{PROJECT}/locations/europe-west4/keyRings/ring/cryptoKeys/key"
    for key, reason in (("key", "/cryptoKeys/KEY"), (elsewhere, "in europe-west4")):
        with pytest.raises(exceptions.BadRequest, match=reason):
            create(services, "digits", encryption_spec={"kms_key_name": key})
    create(services, "digits")
    with pytest.raises(exceptions.Conflict):
        create(services, "digits")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"id": "v1"}, "'v1' is not up to 10 digits"),
        ({"id": "2", "dedicated_resources__min_replica_count": 0}, "min_replica_count is required"),
        ({"id": "2", "dedicated_resources__min_replica_count": 3}, "2 is less than min_replica"),
        ({"id": "2", "dedicated_resources__machine_spec": {}}, "machine_type is required"),
        (
            # One that trains.
            {"id": "2", "dedicated_resources__machine_spec__machine_type": "n4-standard-4"},
            "machine_type='n4-standard-4' is not a machine type of prediction",
        ),
    ],
)
def test_a_deployment_that_a_page_rules_out_is_refused(services, endpoint, fields, reason):
    with pytest.raises(exceptions.BadRequest, match=reason):
        deploy(services, endpoint, {}, **fields)
    with pytest.raises(exceptions.Conflict):
        deploy(services, endpoint, {})


def test_traffic_that_a_page_rules_out_is_refused(services, endpoint):
    with pytest.raises(exceptions.BadRequest, match="adds up to 110, not 100"):
        deploy(services, endpoint, {"0": 10, "1": 100}, id="2")
    for split, reason in (({"1": 90}, "adds up to 90"), ({"9": 100}, "9, which is not deployed")):
        with pytest.raises(exceptions.BadRequest, match=reason):
            services.endpoint.update_endpoint(
                endpoint={"name": endpoint, "traffic_split": split},
                update_mask={"paths": ["traffic_split"]},
            )
    with pytest.raises(exceptions.Conflict, match="changed since etag was read"):
        services.endpoint.update_endpoint(
            endpoint={"name": endpoint, "traffic_split": {}, "etag": "older"},
            update_mask={"paths": ["traffic_split"]},
            retry=None,
        )


def test_a_model_with_traffic_is_not_undeployed(services, endpoint):
    deploy(services, endpoint, {"0": 0, "1": 100}, id="2")
    undeploy = functools.partial(services.endpoint.undeploy_model, endpoint=endpoint)
    with pytest.raises(exceptions.BadRequest, match="DeployedModel 1 has traffic"):
        undeploy(deployed_model_id="1", traffic_split={}, timeout=20)
    with pytest.raises(exceptions.BadRequest, match="is deployed to an endpoint"):
        services.model.delete_model(name=f"{PARENT}/models/1")
    undeploy(deployed_model_id="2", traffic_split={})
    # The last model takes its traffic with it.
    undeploy(deployed_model_id="1", traffic_split={})
    assert not services.endpoint.get_endpoint(name=endpoint).traffic_split


def test_a_deployed_model_without_an_id_gets_an_unused_one(services, endpoint):
    deploy(services, endpoint, {}, id="").result()
    services.endpoint.undeploy_model(
        endpoint=endpoint, deployed_model_id="1", traffic_split={"2": 100}
    )
    deploy(services, endpoint, {}, id="").result()
    found = services.endpoint.get_endpoint(name=endpoint).deployed_models
    assert [one.id for one in found] == ["2", "3"]


def test_an_endpoint_with_models_is_not_deleted(services, endpoint):
    with pytest.raises(exceptions.BadRequest, match="has deployed models"):
        services.endpoint.delete_endpoint(name=endpoint)
    split = {"name": endpoint, "traffic_split": {}}
    services.endpoint.update_endpoint(endpoint=split, update_mask={"paths": ["traffic_split"]})
    services.endpoint.undeploy_model(endpoint=endpoint, deployed_model_id="1", traffic_split={})
    services.endpoint.delete_endpoint(name=endpoint)
    assert not list(services.endpoint.list_endpoints(parent=PARENT))
