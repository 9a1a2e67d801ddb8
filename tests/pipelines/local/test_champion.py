"""Runs of the digits recipe, each compared with the champion that earlier ones left."""

import json

import pytest

from pipelines import compilation, recipe
from tests.pipelines.local.package_runs import run_package


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_only_a_better_model_replaces_the_champion(tmp_path):
    package = compilation.write_yaml(recipe.load("digits"), tmp_path / "build")
    registry = tmp_path / "runs" / ".registry"

    def summary(**parameters):
        result, _ = run_package(package, tmp_path / "runs", parameters)
        assert result.state == "SUCCEEDED", result.summary
        return result.summary

    def endpoint():
        (path,) = (registry / "endpoints").glob("*.json")
        deployed = json.loads(path.read_text())
        return deployed["trafficSplit"], [model["id"] for model in deployed["deployedModels"]]

    first = summary(epochs=1, min_accuracy=0, deploy_champion=True)
    assert endpoint() == ({"1": 100}, ["1"])
    assert (first["verdict"], first["registered"]) == ("accepted", "digits@1")
    better = summary(deploy_champion=True)
    assert endpoint() == ({"2": 100}, ["1", "2"])
    assert (better["verdict"], better["registered"]) == ("accepted", "digits@2")
    assert better["gate"]["champion"] == "digits@1"
    assert better["gate"]["p_value"] < 0.05
    equal = summary(deploy_champion=True)
    assert endpoint() == ({"2": 100}, ["1", "2"])
    assert equal["verdict"] == "rejected"
    assert equal["gate"]["champion"] == "digits@2"
    assert "registered" not in equal
    challenger = summary(epochs=1, min_accuracy=0, register_challengers=True)
    assert (challenger["verdict"], challenger["registered"]) == ("rejected", "digits@3")
    assert challenger["registered_as"] == "challenger"
    digits = json.loads((registry / "models" / "digits.json").read_text())
    assert {number: sorted(v["versionAliases"]) for number, v in digits["versions"].items()} == {
        "1": ["champion-1"],
        "2": ["champion", "champion-2", "default"],
        "3": ["challenger"],
    }
