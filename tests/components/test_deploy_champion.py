"""Test that a champion gets traffic only after it answered test records as evaluated."""

import contextlib

import pytest
from kfp import dsl

from components.deploy_champion import deploy_champion
from components.planning.registered_model import RegisteredModel
from pipelines.local.local_programs import server_program
from tests.faulty_emulator import ById, FaultyEmulator
from tests.registry_service import candidate, registry_at
from vertex.emulator.endpoint_service import EndpointService
from vertex.emulator.model_server import ModelServers
from vertex.emulator.model_service import ModelService
from vertex.emulator.operations import Operations
from vertex.emulator.processes import Guardian


class ServersOfArtifacts(ModelServers):
    """Start one server for each SavedModel, not for each endpoint: a start takes seconds."""

    def is_ready(self, name, model, artifacts):
        return super().is_ready(artifacts, model, artifacts)

    def start(self, name, model, artifacts):
        return super().start(artifacts, model, artifacts)


@pytest.fixture
def vertex(tmp_path, monkeypatch):
    """Yield an emulator with a registry and endpoints whose models answer."""
    with contextlib.ExitStack() as stack:
        guardian = stack.enter_context(Guardian())
        operations = Operations()
        models = ModelService(operations, tmp_path)
        servers = stack.enter_context(
            ServersOfArtifacts(tmp_path / "logs", guardian, server_program)
        )
        endpoints = EndpointService(operations, tmp_path, models=models, servers=servers)
        server = FaultyEmulator(models, endpoints, operations)
        server.endpoints = ById(endpoints)
        for name, value in stack.enter_context(server).environment.items():
            monkeypatch.setenv(name, value)
        yield server


def register(vertex, artifact_uri, compared_with=""):
    version = candidate(artifact_uri)
    registry = registry_at(vertex.environment)
    return registry.register("digits", version, "champion", compared_with).name


def deploy(records, model, registered):
    deploy_champion.python_func(
        model=dsl.Model(uri=model),
        records=dsl.Dataset(uri=records.uri),
        model_name="digits",
        registered=registered,
        encryption_spec_key_name="",
        project="my-project",
        location="us-central1",
        machine_type="n1-standard-4",
        min_replicas=2,
        max_replicas=3,
    )


@pytest.mark.slow
def test_only_a_champion_that_answers_as_judged_gets_traffic(
    vertex, digit_records, untrained_model, trained, tmp_path, capsys, refused
):
    first = register(vertex, untrained_model)
    deploy(digit_records, untrained_model, first)
    shown = capsys.readouterr().out
    assert "Its answers to 32 test records equal those of its SavedModel" in shown
    assert len(vertex.sent("Predict")) == 32
    test, final = vertex.sent("DeployModel")
    assert test.endpoint.endswith("/endpoints/digits-test-1")
    assert test.deployed_model.dedicated_resources.max_replica_count == 1
    assert final.endpoint.endswith("/endpoints/digits")
    assert final.deployed_model.dedicated_resources.machine_spec.machine_type == "n1-standard-4"
    assert final.deployed_model.dedicated_resources.min_replica_count == 2
    assert final.traffic_split == {"0": 100}
    assert vertex.names().index("DeleteEndpoint") < vertex.requests.index(("DeployModel", final))

    # The registered model is not the evaluated one, as if the image preprocessed differently.
    better = str(trained / "model")
    second = register(vertex, better, first)
    error = refused(deploy, digit_records, untrained_model, second)
    assert error.startswith("digits@2 gets no traffic, but stays champion; the endpoint of digi")
    model = RegisteredModel(model_name="digits", project="my-project", location="us-central1")
    assert model.find_champion().name == "digits@2"
    assert "; see the log of the deployed model" in error
    assert list(vertex.endpoints) == ["digits"]
    assert dict(vertex.endpoints["digits"].traffic_split) == {"1": 100}

    # The retried step succeeds, although one deletion loses its connection.
    vertex.drop("DeleteEndpoint", times=1)
    deploy(digit_records, better, second)
    assert dict(vertex.endpoints["digits"].traffic_split) == {"2": 100}
    assert [model.id for model in vertex.endpoints["digits"].deployed_models] == ["1", "2"]
    deploy(digit_records, untrained_model, first)
    assert "digits@2 is the champion: digits@1 is not deployed" in capsys.readouterr().out

    # A container that does not start leaves the deployed model in place.
    third = register(vertex, str(tmp_path / "none"), second)
    error = refused(deploy, digit_records, str(tmp_path / "none"), third)
    assert error.startswith("the deployment of digits@3 failed: ")
    assert "Model server terminated: exit code 2" in error
    assert list(vertex.endpoints) == ["digits"]
    assert dict(vertex.endpoints["digits"].traffic_split) == {"2": 100}
