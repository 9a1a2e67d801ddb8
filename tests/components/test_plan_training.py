"""Test the worker pools that plan_training builds, what it refuses and when it skips training."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from components.planning.registered_model import digest_dataset, training_labels
from components.planning.serving_container import PREBUILT
from tests.components.artifacts import write_training_counts
from tests.components.plans import check_pools, describe, plan, planned
from tests.registry_service import candidate, registry_at
from trainer.data import schema
from trainer.exported import model_files
from trainer.training.config import TrainingConfig
from trainer.training.job import parse
from vertex import checked_json
from vertex.facts import emulation
from vertex.registry.model_upload import FILES_LABEL


def test_each_replica_gets_config_records_and_directory(tmp_path):
    config = TrainingConfig(epochs=3, batch_size=66, model_options={"units": 8})
    # KFP passes integers as floats.
    changes = {**dataclasses.asdict(config), "epochs": 3.0, "boot_disk_size_gb": 200.0}
    pools, directory, _ = plan(tmp_path, worker_count=2.0, class_floors={"a": 0.5}, **changes)
    check_pools(pools)
    assert [pool["replica_count"] for pool in pools] == [1, 2]
    assert pools[1]["disk_spec"]["boot_disk_size_gb"] == 200
    assert directory == str(tmp_path / "training")
    for pool in pools:
        job = parse(pool["container_spec"]["args"], {})
        assert job.dataset == str(tmp_path / "described")
        assert job.base_output_directory == directory
        assert job.config == config
        # A trial of hyperparameter tuning appends its own values.
        tried = parse([*pool["container_spec"]["args"], "--learning_rate=0.5"], {})
        assert tried.config == dataclasses.replace(config, learning_rate=0.5)


def test_changed_parameters_become_metadata_of_the_job(tmp_path):
    changed = {
        "epochs": 3,
        "worker_count": 1,
        "service_account": "me@project.iam.gserviceaccount.com",
        "restart_job_on_worker_restart": False,
        "serving_image": "us-central1-docker.pkg.dev/p/images/serving:1",
        "timeout": "3600s",
    }
    _, _, training = plan(tmp_path, **changed, labels={"recipe": "digits"})
    assert changed.items() <= training.metadata.items()
    unchanged = ("network", "records_engine", "max_wait_duration", "labels")
    assert training.metadata.keys().isdisjoint(unchanged)
    in_recipe = {"network": "", "enable_web_access": False, "timeout": "3600s"}
    _, _, training = plan(tmp_path, **in_recipe, recipe_sets=["source", *in_recipe])
    assert in_recipe.items() <= training.metadata.items()
    assert "source" not in training.metadata


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A run started in the console follows the scheduler's rules, too.
        ({"timeout": "604801s"}, "the 7 days that a pipeline's task may last; set timeout"),
        ({"scheduling_strategy": "FLEX_START"}, "with accelerator_type='': it provides machines"),
        ({"class_floors": {"a": 0.5, "A ": 0.5}}, "'A ', which is not a class of the records"),
        ({"worker_count": 2, "batch_size": 64}, "can't be divided equally among 3 replicas"),
        ({"model": "wide_and_deep"}, "model='wide_and_deep' needs rows of a table, but"),
        ({"warmup_steps": 99}, "training ends after 20 steps, before the learning rate reaches"),
        ({"batch_size": 1000}, "90% of each step is padding; set batch_size=100 or less"),
        ({"batch_size": 100, "max_train_examples": 9, "worker_count": 1}, "set batch_size=8 or le"),
        ({"deploy_champion": True, "serving_image": PREBUILT}, " is Google's, which accepts none"),
        ({"serving_image": ""}, "registered models need an image that serves them, but serving_"),
    ],
)
def test_untrainable_configuration_is_refused(tmp_path, refused, changes, message):
    assert message in refused(plan, tmp_path, **changes)


@pytest.mark.parametrize("skip", [True, False])
def test_missing_or_empty_records_are_refused(tmp_path, refused, skip):
    error = refused(planned, tmp_path, records=tmp_path / "gone", skip_if_unchanged=skip)
    assert f"{tmp_path}/gone/dataset.json is missing: the cached records were deleted" in error
    assert "--no-cache" in error
    error = refused(plan, tmp_path, records=describe(tmp_path / "empty", train=0))
    assert "has no example to train on" in error


def test_patience_without_validation_is_refused(tmp_path, refused):
    records = describe(tmp_path / "records", validation=0)
    error = refused(plan, tmp_path, records=records, early_stopping_patience=1)
    assert error.startswith("early_stopping_patience=1 watches the validation split, which is emp")
    plan(tmp_path, records=records)


def test_batch_larger_than_the_training_split_is_warned_about(tmp_path, capsys):
    plan(tmp_path, batch_size=100)
    assert capsys.readouterr().out == ""
    plan(tmp_path, batch_size=400)
    assert capsys.readouterr().out == (
        "warning: batch_size=400, but the training split has 100 examples: 75% of each step is "
        "padding; set batch_size=100 or less\n"
    )
    # Workers with parameter servers repeat the split: no batch of theirs is padded.
    plan(tmp_path, batch_size=400, worker_count=1, ps_count=1)
    assert capsys.readouterr().out == ""


@pytest.fixture
def records(tmp_path):
    return describe(tmp_path / "records")


def job_of(pools):
    return parse(pools[0]["container_spec"]["args"], {})


def register(service, records, role, compared_with="", artifact_uri="", **changes):
    """Register a version as trained on `records` with the configuration planned for `changes`."""
    configuration = planned(records.parent, **changes)[0]["configuration"]
    uri = artifact_uri or f"gs://bucket/{len(service.sent('UploadModel'))}"
    labels = {"team": "vision", **training_labels(digest_dataset(str(records)), configuration)}
    if artifact_uri:
        labels[FILES_LABEL] = model_files.identify(artifact_uri)
    registry = registry_at(service.environment, "p", "us-central1")
    return registry.register("digits", candidate(uri, labels=labels), role, compared_with).name


def decided(records, folder=None, skip_if_unchanged=True, **changes):
    """Return the plan's decision to train, the reason and the version that it names."""
    changes["skip_if_unchanged"] = skip_if_unchanged
    outputs, _ = planned(folder or records.parent, records, **changes)
    return outputs["trains"], outputs["reason"], outputs["version"]


def test_unchanged_data_and_configuration_are_not_trained_again(service, records):
    assert decided(records) == ("yes", "", "")
    register(service, records, "champion")
    assert decided(records) == ("no", "nothing changed since digits@1", "digits@1")
    assert decided(records, skip_if_unchanged=False) == ("yes", "", "")
    describe(records, train=101)
    assert decided(records)[0] == "yes"


def test_drift_since_the_champion_starts_or_refuses_training(service, records, tmp_path, refused):
    counts = schema.load_dataset(str(records)).splits["train"].class_counts
    same = write_training_counts(tmp_path / "same", records, counts)
    register(service, records, "champion", artifact_uri=same)
    new = {"epochs": 11, "skip_if_unchanged": False}
    assert decided(records, max_drift=0.1, **new)[0] == "yes"
    reason = "no drift of min_drift=0.1 since digits@1"
    assert decided(records, min_drift=0.1, **new) == ("no", reason, "digits@1")
    changed = write_training_counts(tmp_path / "other", records, [500, 500])
    register(service, records, "champion", compared_with="digits@1", artifact_uri=changed)
    assert decided(records, min_drift=0.1, **new)[0] == "yes"
    error = refused(decided, records, max_drift=0.1, **new)
    assert "max_drift=0.1: the training data have drifted since digits@2: label " in error


@pytest.mark.parametrize(
    ("change", "trains"),
    [
        ({"epochs": 11}, "yes"),
        ({"model_options": {"dropout": 0.5}}, "yes"),
        ({"image_uri": "image:2"}, "yes"),
        # Machines and costs do not change the model.
        ({"chief_machine_type": "n1-standard-8"}, "no"),
        ({"worker_count": 3, "price_per_hour": 1.0}, "no"),
        ({"max_cost": 5.0, "rates": {}, "price_per_hour": 1.0}, "no"),
    ],
)
def test_changed_configuration_is_trained(service, records, change, trains):
    register(service, records, "champion")
    assert decided(records, **change)[0] == trains


@pytest.mark.parametrize("name", ["own_model", "own_package.model"])
def test_changed_code_of_an_own_model_is_trained(service, records, tmp_path, monkeypatch, name):
    file = tmp_path / f"{name.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text("def build(dataset): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = {"model": f"{name}:build", "model_options": {}}
    configuration = planned(tmp_path, **own, project=emulation.PROJECT)[0]["configuration"]
    assert planned(tmp_path, **own, project=emulation.PROJECT)[0]["configuration"] == configuration
    on_vertex = planned(tmp_path, **own)[0]["configuration"]
    file.write_text("def build(dataset): pass\n")
    assert planned(tmp_path, **own, project=emulation.PROJECT)[0]["configuration"] != configuration
    assert planned(tmp_path, **own)[0]["configuration"] == on_vertex  # The image's name counts.


def test_warm_start_copies_weights(service, tmp_path, digit_records, trained, capsys, refused):
    records, start = Path(digit_records.uri), {"warm_start": "champion"}
    pools, base, _ = plan(tmp_path, records=records, **start)
    assert job_of(pools).config.warm_start == ""
    assert "'digits' has no champion yet" in capsys.readouterr().out
    register(service, records, "champion", artifact_uri=f"{trained}/model", **start)
    pools, base, training = plan(tmp_path / "next", records=records, **start)
    copy = job_of(pools).config.warm_start
    assert copy == f"{base}/warm_start.keras"
    assert Path(copy).read_bytes() == (trained / "model.keras").read_bytes()
    assert training.metadata["warm_start"] == "champion"
    # The current champion is no part of the configuration: else every scheduled run would train.
    assert decided(records, tmp_path / "last", **start)[0] == "no"
    error = refused(plan, tmp_path, records=records, **start, model_options={"units": 64})
    assert error.startswith("the weights to start from do not fit the mo")
    turned = dataclasses.replace(digit_records, classes=digit_records.classes[::-1])
    (tmp_path / schema.FILE_NAME).write_text(turned.to_json())
    assert "their classes are" in refused(plan, tmp_path, records=tmp_path, **start)


@pytest.mark.parametrize("warm_start", [None, "", "warm_start.keras"])
def test_resumed_job_keeps_folder_and_start(service, tmp_path, digit_records, trained, warm_start):
    records = Path(digit_records.uri)
    register(service, records, "champion", artifact_uri=f"{trained}/model")
    interrupted = tmp_path / "interrupted"
    start = "" if warm_start == "" else str(interrupted / "warm_start.keras")
    # Without run.json, the job has not started, and gets the champion's weights.
    if warm_start is not None:
        (interrupted / "checkpoints").mkdir(parents=True)
        begun = checked_json.with_checksum({"warm_start": start})
        (interrupted / "checkpoints" / "run.json").write_text(json.dumps(begun))
    if warm_start:
        shutil.copy(trained / "model.keras", start)
    resumed = {"warm_start": "champion", "resume_from": f"{interrupted}/"}
    pools, base, training = plan(tmp_path, records=records, **resumed)
    assert job_of(pools).config.warm_start == start
    assert base == training.uri == job_of(pools).base_output_directory == str(interrupted)


def test_skip_names_the_champion_before_other_versions(service, records):
    first = register(service, records, "champion")
    register(service, records, "challenger", first)
    assert decided(records)[2] == "digits@1"
    third = register(service, records, "champion", first, epochs=3)
    assert (third, decided(records)[2]) == ("digits@3", "digits@2")
    assert decided(records, epochs=3)[2] == "digits@3"


def test_registry_error_ends_the_step_with_one_line(service, records, refused):
    service.fail("ListModelVersions", 403, "PERMISSION_DENIED", "no access")
    error = refused(decided, records)
    assert error.startswith("looking for a version of 'digits' trained on the same data: 403")
    assert "roles/aiplatform.user" in error
