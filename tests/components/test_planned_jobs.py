"""The plan of a job has its price, its longest time, its image and its labels."""

import pytest

from tests.components.plans import plan, planned
from trainer.machines.worker_pools import MachineOptions
from trainer.training.job import parse


def test_the_price_of_the_job_goes_with_its_folder_where_it_is_known(tmp_path):
    rates = {"n1-standard-4": 0.2, "n1-standard-8": 0.4, "NVIDIA_TESLA_T4": 0.5, "pd-ssd": 0.001}
    machines = {"worker_count": 3, "worker_machine_type": "n1-standard-8"}
    _, training = planned(tmp_path, rates=rates, **machines)
    # A replica of 0.20, three of 0.40, and four times 100 GB of 0.001.
    assert training.metadata["price"] == {
        "machines": "1 x n1-standard-4 and 3 x n1-standard-8",
        "per_hour": pytest.approx(1.8),
        "basis": "at the list prices of us-central1, 2030-01-02, without discounts",
    }
    gpus = {"worker_count": 1, "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}
    _, training = planned(tmp_path, rates=rates, gpu_image_uri="image:gpu", **gpus)
    assert training.metadata["price"]["machines"] == (
        "2 x n1-standard-4 with 2 x NVIDIA_TESLA_T4 each"
    )
    assert training.metadata["price"]["per_hour"] == pytest.approx(2 * (0.2 + 2 * 0.5 + 0.1))
    _, training = planned(tmp_path, price_per_hour=7.0)
    assert training.metadata["price"]["per_hour"] == 7
    assert training.metadata["price"]["basis"] == "by the parameter price_per_hour"
    _, training = planned(tmp_path)
    assert "price" not in training.metadata


def test_accelerators_without_an_image_for_them_end_the_step_except_on_this_machine(
    tmp_path, refused
):
    gpus = {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}
    assert refused(planned, tmp_path, **gpus) == (
        "accelerator_type='NVIDIA_TESLA_T4' needs an image for GPUs, which `make push "
        "TARGET=gpu` builds; give it as gpu_image_uri\n"
    )
    pools, _, _ = plan(tmp_path, gpu_image_uri="image:gpu", **gpus)
    assert pools[0]["container_spec"]["image_uri"] == "image:gpu"
    # By which a replica ends where TensorFlow sees fewer GPUs.
    assert parse(pools[0]["container_spec"]["args"], {}).accelerator_count == 2
    pools, _, _ = plan(tmp_path, project="local", **gpus)
    assert pools[0]["container_spec"]["image_uri"] == MachineOptions().image_uri


def test_max_cost_shortens_the_timeout_to_what_it_pays_for(tmp_path, refused):
    rates = {"n1-standard-4": 0.2, "pd-ssd": 0.001}

    def timeout(**changes):
        return planned(tmp_path, worker_count=1, rates=rates, **changes)[0]["timeout"]

    # Two replicas of 0.20 and 100 GB of 0.001: 0.60 an hour.
    assert timeout(max_cost=0.0) == "86400s"
    assert timeout(max_cost=0.6) == "3600s"
    assert timeout(max_cost=0.1) == "600s"
    assert timeout(max_cost=100.0) == "86400s"
    assert timeout(max_cost=0.6, price_per_hour=1.2) == "1800s"
    assert refused(timeout, max_cost=0.001)


def test_the_jobs_labels_tell_the_run_that_it_belongs_to(tmp_path):
    outputs, _ = planned(tmp_path, labels={"team": "vision"}, run="Digits.1")
    assert outputs["labels"] == {"team": "vision", "run": "digits-1"}
