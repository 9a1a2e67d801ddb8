"""python -m pipelines deploy: versions at an endpoint, traffic, rollback; promote."""

import pytest

KEY = "projects/my-project/locations/us-central1/keyRings/r/cryptoKeys/k"


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
    assert "serves no version older than 1" in refused("deploy digits --rollback")

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


def test_price_is_that_of_the_machines_to_be_deployed(vertex, succeed, own_recipe):
    def declare(serving):
        own_recipe(f'source = "digits"\nmodel_name = "digits"\n[serving]\n{serving}\n')

    put_champion(vertex, 1)
    declare("max_replicas = 5")
    # 0.21849885 for each.
    shown = succeed("deploy mine --labels team=vision --encryption-key", KEY)
    price = "1 to 5 x n1-standard-4: 0.22 to 1.09 USD an hour until --undeploy, at the prices of us"
    assert shown.startswith(price)
    endpoint = vertex.endpoints["digits"]
    assert endpoint.labels["team"] == "vision"
    assert endpoint.encryption_spec.kms_key_name == KEY
    declare('machine_type = "n1-standard-16"')
    shown = succeed("deploy mine")
    assert shown.startswith("digits@1 is deployed already, and keeps its machines\n")
    assert "1 to 5 x n1-standard-4" in shown
    # 2 vCPUs at 0.031611 and 7.5 GB at 0.004237 are 0.0949995; 1.15 times that.
    succeed("deploy mine --undeploy")
    declare('machine_type = "n1-standard-2"')
    assert succeed("deploy mine").startswith("1 x n1-standard-2: 0.11 USD an hour")


def test_rollback_leads_to_the_version_deployed_before(vertex, succeed):
    put_champion(vertex, 3)
    succeed("deploy digits")
    vertex.put_version(3)
    vertex.put_version(1, ["champion", "default"])
    succeed("deploy digits --traffic 100")
    assert traffic(vertex) == {"1": 100}
    assert "digits@3 has all traffic" in succeed("deploy digits --rollback")
    assert traffic(vertex) == {"3": 100}


def test_endpoint_of_others_is_not_touched(vertex, succeed, refused):
    put_champion(vertex, 1)
    succeed("deploy digits")
    endpoint = vertex.endpoints["digits"]
    for labels in ({"team": "other"}, {**endpoint.labels, "recipe": "other"}):
        endpoint.labels = labels
        vertex.endpoints["digits"] = endpoint
        before = vertex.names().count("DeployModel")
        for flags in ("", "--rollback", "--undeploy", "--traffic 100"):
            error = refused(f"deploy digits {flags}")
            assert "the endpoint digits was not made for the model digits" in error
        assert (deployed(vertex), traffic(vertex)) == (["1"], {"1": 100})
        assert vertex.names().count("DeployModel") == before


@pytest.mark.parametrize(
    ("champion", "flags", "message"),
    [
        (False, "", "model 'digits' has no champion in projects/my-project/"),
        (True, "--rollback", "digits has no endpoint in projects/my-project/"),
        (True, "--traffic 10", "--traffic 10: no other version can take the rest"),
        (True, "--traffic 10 --rollback", "give only one of --traffic"),
        (True, "--traffic 101", "less than or equal to 100"),
        (True, "--monitor", "--monitor is for models of tables, but digits is a"),
        (True, "--monitor --traffic 10", "give only one of --traffic"),
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
