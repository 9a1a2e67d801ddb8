"""The plan is a whole list of worker pools whose replicas can read their command line."""

import dataclasses

import pytest
from kfp import dsl

from components.plan_training import plan_training
from pipelines.lint import check_worker_pools
from tests.components.artifacts import artifact
from trainer.config import TrainingConfig, parse
from trainer.worker_pools import MachineOptions


def plan(tmp_path, **changes):
    values = {**dataclasses.asdict(TrainingConfig()), **dataclasses.asdict(MachineOptions())}
    training = artifact(dsl.Artifact, tmp_path / "training")
    records = dsl.Dataset(uri="gs://bucket/records")
    result = plan_training.python_func(records=records, training=training, **{**values, **changes})
    return *result, training


def test_each_replica_is_told_config_records_and_the_runs_own_directory(tmp_path):
    pools, directory, _ = plan(tmp_path, worker_count=2, epochs=3, model_options={"units": 8})
    check_worker_pools(pools)
    assert [pool["replica_count"] for pool in pools] == [1, 2]
    assert directory == str(tmp_path / "training")
    for pool in pools:
        job = parse(pool["container_spec"]["args"], {})
        assert job.dataset == "gs://bucket/records"
        assert job.base_output_directory == directory
        assert job.config == TrainingConfig(epochs=3, model_options={"units": 8})


def test_numbers_that_kfp_hands_over_as_floats_are_integers_in_the_plan(tmp_path):
    pools, _, _ = plan(tmp_path, worker_count=1.0, boot_disk_size_gb=200.0, epochs=3.0)
    check_worker_pools(pools)
    assert pools[1]["disk_spec"]["boot_disk_size_gb"] == 200


def test_the_parameters_of_the_job_are_metadata_of_its_directory(tmp_path):
    _, _, training = plan(tmp_path, epochs=3, worker_count=1)
    assert training.metadata["epochs"] == 3
    assert training.metadata["worker_count"] == 1


def test_a_machine_that_does_not_exist_ends_the_step_with_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        plan(tmp_path, accelerator_count=1)
    assert ended.value.code == 2
    assert "give both, or neither" in capsys.readouterr().err
