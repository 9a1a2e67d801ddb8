"""Three runs of the digits recipe, each meeting the champion that the ones before have left."""

import io
import json

import pytest
from rich.console import Console

from pipelines import compilation, recipe
from pipelines.local.execution import run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_better_model_displaces_the_champion_and_an_equal_one_does_not(tmp_path):
    package = compilation.write(recipe.load("digits"), tmp_path / "build")

    def summary(**parameters):
        result = run(
            package,
            recipe="digits",
            parameters=parameters,
            runs_directory=tmp_path / "runs",
            console=Console(file=io.StringIO()),
        )
        assert result.state == "SUCCEEDED", result.summary
        return result.summary

    def endpoint():
        (path,) = (tmp_path / "runs" / ".registry" / "endpoints").glob("*.json")
        one = json.loads(path.read_text())
        return one["trafficSplit"], [model["id"] for model in one["deployedModels"]]

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
    asked = summary(epochs=1, min_accuracy=0, register_challengers=True)
    assert (asked["verdict"], asked["registered"]) == ("rejected", "digits@3")
    assert asked["registered_as"] == "challenger"
    path = tmp_path / "runs" / ".registry" / "models" / "digits.json"
    digits = json.loads(path.read_text())
    assert {number: sorted(v["versionAliases"]) for number, v in digits["versions"].items()} == {
        "1": ["champion-1"],
        "2": ["champion", "champion-2", "default"],
        "3": ["challenger"],
    }
