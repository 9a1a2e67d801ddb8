"""Test a planned job's price, timeout, image and labels."""

import pytest

from components.planning.worker_pools import MachineOptions
from tests.components.plans import plan, planned
from trainer.training.job import parse

RATES = {"n1-standard-4": 0.2, "n1-standard-8": 0.4, "NVIDIA_TESLA_T4": 0.5, "pd-ssd": 0.001}
GPUS = {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}
LIST = "at the list prices of us-central1, 2030-01-02, without discounts"


@pytest.mark.parametrize(
    ("changes", "machines", "per_hour", "basis"),
    [
        (
            {"rates": RATES, "worker_count": 3, "worker_machine_type": "n1-standard-8"},
            "1 x n1-standard-4 and 3 x n1-standard-8",
            # A replica of 0.20, three of 0.40, and four times 100 GB of 0.001.
            1.8,
            LIST,
        ),
        (
            {"rates": RATES, "worker_count": 1, "gpu_image_uri": "image:gpu", **GPUS},
            "2 x n1-standard-4 with 2 x NVIDIA_TESLA_T4 each",
            2 * (0.2 + 2 * 0.5 + 0.1),
            LIST,
        ),
        ({"price_per_hour": 7.0}, "1 x n1-standard-4", 7, "from the parameter price_per_hour"),
    ],
)
def test_price_of_the_job_is_metadata(tmp_path, changes, machines, per_hour, basis):
    _, training = planned(tmp_path, **changes)
    price = {"machines": machines, "per_hour": pytest.approx(per_hour), "basis": basis}
    assert training.metadata["price"] == price
    assert "price" not in planned(tmp_path)[1].metadata


def test_accelerators_need_a_gpu_image_except_locally(tmp_path, refused):
    assert refused(planned, tmp_path, **GPUS) == (
        "accelerator_type='NVIDIA_TESLA_T4' needs an image for GPUs, which `make push "
        "TARGET=gpu` builds; set gpu_image_uri\n"
    )
    pools, _, _ = plan(tmp_path, gpu_image_uri="image:gpu", **GPUS)
    assert pools[0]["container_spec"]["image_uri"] == "image:gpu"
    # A replica ends if TensorFlow sees fewer GPUs.
    assert parse(pools[0]["container_spec"]["args"], {}).accelerator_count == 2
    pools, _, _ = plan(tmp_path, project="local", **GPUS)
    assert pools[0]["container_spec"]["image_uri"] == MachineOptions().image_uri


def test_max_cost_shortens_the_timeout(tmp_path, refused):
    def timeout(**changes):
        return planned(tmp_path, worker_count=1, rates=RATES, **changes)[0]["timeout"]

    # Two replicas of 0.20 and 100 GB of 0.001: 0.60 an hour.
    assert timeout(max_cost=0.6) == "3600s"
    assert timeout(max_cost=0.1) == "600s"
    assert timeout(max_cost=100.0) == timeout(max_cost=0.0) == "86400s"
    assert timeout(max_cost=0.6, price_per_hour=1.2) == "1800s"
    assert refused(timeout, max_cost=0.001)


def test_labels_of_the_job_name_its_run_in_their_alphabet(tmp_path):
    run = "Digits 2.1: The/Run" + "x" * 99
    outputs, _ = planned(tmp_path, labels={"team": "vision"}, run=run)
    assert outputs["labels"] == {"team": "vision", "run": ("digits-2-1--the-run" + "x" * 99)[:63]}
