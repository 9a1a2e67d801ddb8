"""python -m pipelines deploy: versions at an endpoint, their traffic, and the way back."""

import pytest
from google.cloud.aiplatform_v1 import types

from pipelines.emulator.api_error import ApiError
from tests.emulator import NUMBER

PARENT = "projects/my-project/locations/us-central1"


@pytest.fixture
def deploy(command):
    """Runs the command; returns its exit code and what it has shown."""

    def run(*arguments):
        code, shown, errors = command("deploy", "digits", *arguments)
        return code, shown + errors

    return run


def put_champion(vertex, number):
    """Make a version that takes the alias champion from the one before."""
    for before in range(1, number):
        vertex.put_version("digits", _version(before, []))
    vertex.put_version("digits", _version(number, ["champion", "default"]))


def _version(number, aliases):
    return types.Model(
        name=f"{PARENT}/models/digits".replace("my-project", NUMBER),
        version_id=str(number),
        display_name="digits",
        version_aliases=aliases,
        labels={"made-by": "vertex-tensorflow-training"},
    )


def traffic(vertex):
    return dict(vertex.endpoints["digits"].traffic_split)


def test_versions_are_deployed_shifted_rolled_back_and_undeployed(vertex, deploy):
    put_champion(vertex, 1)
    code, shown = deploy()
    assert code == 0
    assert "1 x n1-standard-4: 0.22 USD an hour" in shown.splitlines()[0]
    assert "digits@1 is deployed" in shown
    assert traffic(vertex) == {"1": 100}
    sent = vertex.sent("DeployModel")[-1]
    assert sent.deployed_model.dedicated_resources.min_replica_count == 1
    assert sent.traffic_split == {"0": 100}

    put_champion(vertex, 2)
    assert deploy()[0] == 0
    assert traffic(vertex) == {"1": 100}
    code, shown = deploy("--traffic", "10")
    assert code == 0 and traffic(vertex) == {"1": 90, "2": 10}
    rows = [line.split()[:2] for line in shown.splitlines() if line.strip().startswith("digits@")]
    assert ["digits@2", "10%"] in rows and ["digits@1", "90%"] in rows
    assert deploy("--traffic", "100")[0] == 0
    assert traffic(vertex) == {"2": 100}
    code, shown = deploy("--rollback")
    assert code == 0 and "digits@1 has all traffic" in shown
    assert traffic(vertex) == {"1": 100}
    assert deploy("--traffic", "100")[0] == 0

    # What has no traffic and is not the way back makes room.
    put_champion(vertex, 3)
    assert deploy("--traffic", "5")[0] == 0
    assert traffic(vertex) == {"2": 95, "3": 5}
    assert [one.id for one in vertex.endpoints["digits"].deployed_models] == ["2", "3"]

    code, shown = deploy("--undeploy")
    assert code == 0 and "is no longer served or billed" in shown
    assert not vertex.endpoints["digits"].deployed_models
    assert not traffic(vertex)


def test_a_command_given_again_after_a_lost_answer_deploys_nothing_twice(vertex, deploy):
    put_champion(vertex, 1)
    vertex.drop("CreateEndpoint", after=True)
    vertex.drop("DeployModel", after=True)
    code, shown = deploy()
    if code:
        code, shown = deploy()
    assert code == 0, shown
    assert [one.id for one in vertex.endpoints["digits"].deployed_models] == ["1"]
    assert traffic(vertex) == {"1": 100}


def test_a_deployment_that_is_aborted_is_reported(vertex, deploy):
    def aborted():
        raise ApiError("ABORTED", "the deployment was aborted")

    put_champion(vertex, 1)
    start = vertex.operations.start
    changed = {"start": lambda resource, *_: start(resource, is_done=aborted)}
    vertex.before("DeployModel", lambda: vars(vertex.operations).update(changed))
    code, shown = deploy()
    assert code == 1 and "the deployment was aborted" in shown


@pytest.mark.parametrize(
    ("champion", "arguments", "message"),
    [
        (False, [], "model 'digits' has no champion in projects/my-project/"),
        (True, ["--rollback"], "digits has no endpoint in projects/my-project/"),
        (True, ["--traffic", "10"], "--traffic 10: no other version is deployed for the rest"),
        (True, ["--traffic", "10", "--rollback"], "exclude each other"),
        (True, ["--traffic", "101"], "less than or equal to 100"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_deployed(
    vertex, deploy, champion, arguments, message
):
    if champion:
        put_champion(vertex, 1)
    code, shown = deploy(*arguments)
    assert code == 2 and message in shown
    assert not vertex.sent("DeployModel")


def test_there_is_no_way_back_from_the_only_version(vertex, deploy):
    put_champion(vertex, 1)
    deploy()
    code, shown = deploy("--rollback")
    assert code == 2 and "serves no version before 1" in shown
