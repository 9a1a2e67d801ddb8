"""The digits recipe run again: it trains only where something changed; only a better model wins."""

import csv
import json
import shutil

import pytest

from components.planning.code_digest import code_digest, configuration_digest
from components.planning.registered_model import digest_dataset, training_labels
from pipelines import compilation, recipe
from tests.pipelines.local.package_runs import run_package, states
from tests.registry_service import ModelService, candidate, registry_at
from tests.trainer.data.picture_folders import two_classes, write_pictures
from trainer.data.write.writer import create_tfrecords
from vertex.emulator.model_service import FOLDER_NAME
from vertex.facts.emulation import LOCATION, PROJECT


@pytest.fixture
def photos(tmp_path):
    return two_classes(tmp_path / "photos", 40)


@pytest.fixture
def parameters(photos):
    """Parameters of a run of the digits recipe on the photos that takes seconds."""
    return {
        "source": f"images:{photos}",
        "image_size": 8,
        "epochs": 1,
        "batch_size": 16,
        "strategy": "one_device",
        "worker_count": 0,
        "min_accuracy": 0.0,
        "champion_rule": "none",
        "first_champion": "any",
        "skip_if_unchanged": True,
    }


@pytest.fixture
def start(tmp_path, parameters):
    """Run the recipe; return its summary and what was shown."""
    package = compilation.write_yaml(recipe.load("digits"), tmp_path / "build")

    def start(**changes):
        result, shown = run_package(package, tmp_path / "runs", {**parameters, **changes})
        assert result.state == "SUCCEEDED", shown
        return result.summary, shown

    return start


@pytest.fixture
def champion(tmp_path, parameters):
    """A version that an earlier run has trained, according to the registry."""
    options = recipe.load("digits").with_values(parameters, origin="test")
    create_tfrecords(options.records, str(tmp_path / "records"), progress=lambda _: None)
    code = f"{options.machines.image_uri}{code_digest()}"
    configuration = configuration_digest(options.training, code)
    labels = training_labels(digest_dataset(str(tmp_path / "records")), configuration)
    version = candidate("gs://bucket/model", labels=labels)
    with ModelService(tmp_path / "runs" / FOLDER_NAME, project_number="") as server:
        registry = registry_at(server.environment, PROJECT, LOCATION)
        return registry.register("digits", version, "champion", "").name


def test_unchanged_run_skips_training_with_a_verdict(start, champion):
    summary, shown = start()
    done = ("fingerprint-source", "create-tfrecords", "plan-training")
    skipped = ("custom-training-job", "collect-training", "evaluate-model", "register-model")
    assert states(summary) == {
        **dict.fromkeys(done, "SUCCEEDED"),
        **dict.fromkeys((*skipped, "register-model-2", "deploy-champion"), "SKIPPED"),
        "skip-training": "SUCCEEDED",
    }
    assert summary["verdict"] == "skipped"
    assert summary["gate"]["reason"] == f"nothing changed since {champion}"
    assert summary["custom_jobs"] == []
    assert not summary["registered"]
    assert f"verdict   skipped: nothing changed since {champion}\n" in shown


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_changed_run_trains_again(start, photos):
    first, _ = start()
    assert (first["verdict"], first["registered"]) == ("accepted", "digits@1")
    assert states(first)["skip-training"] == "SKIPPED"
    again, _ = start()
    assert states(again)["create-tfrecords"] == "CACHED"
    assert again["verdict"] == "skipped"

    # Pictures with a new time and the same content give the same records.
    for picture in (photos / "cat").iterdir():
        shutil.copyfile(picture, picture.with_suffix(".copy"))
        picture.with_suffix(".copy").replace(picture)
    touched, _ = start()
    assert states(touched)["create-tfrecords"] == "SUCCEEDED"
    assert touched["verdict"] == "skipped"
    write_pictures(photos / "cat" / "new", 5, seed=9)
    fresh, _ = start()
    assert states(fresh)["create-tfrecords"] == "SUCCEEDED"
    assert fresh["registered"] == "digits@2"
    assert start(epochs=2)[0]["registered"] == "digits@3"
    assert start()[0]["gate"]["reason"] == "nothing changed since digits@2"
    assert start(skip_if_unchanged=False)[0]["registered"] == "digits@4"


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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_transfer_learning_in_two_phases_tells_cats_from_dogs(command, tmp_path, real_data):
    weights = real_data / "weights" / "mobilenet_2_5_224_tf_no_top.h5"
    backbone = {"backbone": "MobileNet", "backbone_options": {"alpha": 0.25}}
    settings = {
        "source": f"images:{real_data / 'cats_dogs'}",
        "precision": "float32",
        "model_options": json.dumps({**backbone, "weights": str(weights)}),
    }
    flags = [f"--set={name}={value}" for name, value in settings.items()]
    runs = f"--runs-directory={tmp_path}"
    code, shown, errors = command("run", "cats_vs_dogs", "--local", runs, *flags)
    assert (code, errors) == (0, ""), shown
    training = tmp_path / "latest" / "artifacts" / "plan-training" / "training"
    metrics = json.loads((training / "metrics.json").read_text())
    assert (metrics["replicas"], metrics["strategy"]) == (2, "mirrored")
    with (training / "history.csv").open() as file:
        assert {row["phase"] for row in csv.DictReader(file)} == {"1", "2"}
    summary = json.loads((tmp_path / "latest" / "summary.json").read_text())
    # 0.924 measured; the larger class has 0.55 of the 66 photos.
    assert summary["metrics"]["accuracy"] > 0.75
