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
    values |= {"timeout": "86400s", "max_cost": 0.0, "price_per_hour": 0.0, "rates": {}}
    pools, directory, _ = plan_training.python_func(
        records=records, training=training, **{**values, **changes}
    )
    return pools, directory, training


def test_max_cost_shortens_the_timeout_to_what_it_pays_for(tmp_path):
    rates = {"n1-standard-4": 0.2, "pd-ssd": 0.001}
    values = {**dataclasses.asdict(TrainingConfig()), **dataclasses.asdict(MachineOptions())}
    values |= {"worker_count": 1, "timeout": "86400s", "price_per_hour": 0.0, "rates": rates}
    records = dsl.Dataset(uri="gs://bucket/records")

    def timeout(**changes):
        training = artifact(dsl.Artifact, tmp_path / "training")
        arguments = {"records": records, "training": training, **values, **changes}
        return plan_training.python_func(**arguments)[2]

    # Two replicas of 0.20 and 100 GB of 0.001: 0.60 an hour.
    assert timeout(max_cost=0.0) == "86400s"
    assert timeout(max_cost=0.6) == "3600s"
    assert timeout(max_cost=0.1) == "600s"
    assert timeout(max_cost=100.0) == "86400s"
    assert timeout(max_cost=0.6, price_per_hour=1.2) == "1800s"
    with pytest.raises(SystemExit):
        timeout(max_cost=0.001)


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
