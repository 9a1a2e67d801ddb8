"""python -m pipelines deploy: versions at an endpoint, traffic, rollback; promote beside it."""

import pytest

from pipelines.emulator.api_error import ApiError


def put_champion(vertex, number):
    """Make a version that takes the alias champion from the one before."""
    for before in range(1, number):
        vertex.put_version(before)
    vertex.put_version(number, ["champion", "default"])


def traffic(vertex):
    return dict(vertex.endpoints["digits"].traffic_split)


def deployed(vertex):
    return [model.id for model in vertex.endpoints["digits"].deployed_models]


def test_versions_are_deployed_rolled_back_and_undeployed(vertex, succeed, refused):
    put_champion(vertex, 1)
    out = succeed("deploy digits")
    assert "1 x n1-standard-4: 0.22 USD an hour" in out.splitlines()[0]
    assert "digits@1 is deployed" in out
    assert traffic(vertex) == {"1": 100}
    sent = vertex.sent("DeployModel")[-1]
    assert sent.deployed_model.dedicated_resources.min_replica_count == 1
    assert sent.traffic_split == {"0": 100}
    assert "serves no version before 1" in refused("deploy digits --rollback")

    put_champion(vertex, 2)
    succeed("deploy digits")
    assert traffic(vertex) == {"1": 100}
    out = succeed("deploy digits --traffic 10")
    assert traffic(vertex) == {"1": 90, "2": 10}
    rows = [line.split()[:2] for line in out.splitlines() if line.strip().startswith("digits@")]
    assert ["digits@2", "10%"] in rows and ["digits@1", "90%"] in rows
    succeed("deploy digits --traffic 100")
    assert traffic(vertex) == {"2": 100}
    assert "digits@1 has all traffic" in succeed("deploy digits --rollback")
    assert traffic(vertex) == {"1": 100}
    succeed("deploy digits --traffic 100")

    # A version without traffic to which no rollback leads is undeployed for the new one.
    put_champion(vertex, 3)
    succeed("deploy digits --traffic 5")
    assert traffic(vertex) == {"2": 95, "3": 5}
    assert deployed(vertex) == ["2", "3"]

    assert "is no longer served or billed" in succeed("deploy digits --undeploy")
    assert (deployed(vertex), traffic(vertex)) == ([], {})


def test_deploy_repeated_after_lost_answers_deploys_once(vertex, command):
    put_champion(vertex, 1)
    vertex.drop("CreateEndpoint", after=True)
    vertex.drop("DeployModel", after=True)
    ended = command("deploy digits")
    if ended[0]:
        ended = command("deploy digits")
    assert ended[0] == 0, ended
    assert (deployed(vertex), traffic(vertex)) == (["1"], {"1": 100})


def test_aborted_deployment_is_reported(vertex, command):
    def aborted():
        raise ApiError("ABORTED", "the deployment was aborted")

    put_champion(vertex, 1)
    start = vertex.operations.start
    changed = {"start": lambda resource, *_: start(resource, is_done=aborted)}
    vertex.before("DeployModel", lambda: vars(vertex.operations).update(changed))
    code, _, err = command("deploy digits")
    assert code == 1 and "the deployment was aborted" in err


@pytest.mark.parametrize(
    ("champion", "flags", "message"),
    [
        (False, "", "model 'digits' has no champion in projects/my-project/"),
        (True, "--rollback", "digits has no endpoint in projects/my-project/"),
        (True, "--traffic 10", "--traffic 10: no other version is deployed for the rest"),
        (True, "--traffic 10 --rollback", "exclude each other"),
        (True, "--traffic 101", "less than or equal to 100"),
        (True, "--monitor", "--monitor is for models of tables, but digits is a"),
        (True, "--monitor --traffic 10", "exclude each other"),
    ],
)
def test_mistake_deploys_nothing(vertex, command, champion, flags, message):
    if champion:
        put_champion(vertex, 1)
    code, _, err = command(f"deploy digits {flags}")
    assert (code, message in err) == (2, True), err
    assert not vertex.sent("DeployModel")
    assert not vertex.sent("CreateModelDeploymentMonitoringJob")


def test_promotion_of_an_unlisted_version_moves_no_alias(vertex, refused, succeed):
    vertex.put_version(1, ["champion", "default", "champion-1"])
    vertex.put_version(2)
    fault = "ListModelVersions", 404, "NOT_FOUND", "no model", 3
    vertex.before("MergeVersionAliases", lambda: vertex.fail(*fault))
    error = refused("promote digits --version 2")
    assert "digits@2 is no longer listed in " in error
    shown = succeed("promote digits").splitlines()
    assert shown[1].split()[:4] == ["1", "champion,", "champion-1,", "default"]
    succeed("promote digits --version 2")
    assert "champion-2" in succeed("promote digits")
