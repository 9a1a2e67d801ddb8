"""Machine options become worker pools as Vertex AI takes them, or one clear line."""

import pytest
from google.cloud.aiplatform_v1 import AcceleratorType
from google.cloud.aiplatform_v1.types import WorkerPoolSpec
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils import json_util

from trainer.errors import InputError
from trainer.machines.machine_types import accelerators
from trainer.machines.worker_pools import MachineOptions, check_strategy, worker_pool_specs

GPUS = {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 2}


def test_a_chief_alone_is_one_pool_of_one_replica():
    (pool,) = worker_pool_specs(MachineOptions(image_uri="i:1"), ["--epochs=3"])
    assert pool == {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100},
        "container_spec": {
            "image_uri": "i:1",
            "command": ["python3", "-m", "trainer.task"],
            "args": ["--epochs=3"],
        },
    }


def test_workers_are_the_second_pool_with_the_same_command_and_their_own_machines():
    machines = MachineOptions(worker_count=3, worker_machine_type="n1-highmem-8", **GPUS)
    chief, workers = worker_pool_specs(machines, ["--epochs=3"])
    assert workers["replica_count"] == 3
    assert workers["machine_spec"] == {"machine_type": "n1-highmem-8", **GPUS}
    assert chief["machine_spec"] == {"machine_type": "n1-standard-4", **GPUS}
    assert workers["container_spec"] == chief["container_spec"]


def test_replicas_with_accelerators_have_the_image_for_gpus():
    options = {"worker_count": 1, "ps_count": 1, "image_uri": "i:1", "gpu_image_uri": "i:gpu"}
    with_gpus = MachineOptions(**options, **{**GPUS, "accelerator_count": 1})
    images = [pool["container_spec"]["image_uri"] for pool in worker_pool_specs(with_gpus, [])]
    assert images == ["i:1", "i:gpu", "i:1"]
    assert with_gpus.training_image == "i:gpu"
    plain = MachineOptions(**options)
    images = {pool["container_spec"]["image_uri"] for pool in worker_pool_specs(plain, [])}
    assert images == {plain.training_image} == {"i:1"}


def test_the_pools_are_what_the_official_proto_takes_and_the_launcher_leaves_alone():
    pools = worker_pool_specs(MachineOptions(worker_count=1, **GPUS), ["--model_options={}", ""])
    assert json_util.recursive_remove_empty({"worker_pool_specs": pools})["worker_pool_specs"] == (
        pools
    )
    parsed = [WorkerPoolSpec(pool) for pool in pools]
    assert [pool.replica_count for pool in parsed] == [1, 1]
    assert parsed[1].machine_spec.accelerator_type == AcceleratorType.NVIDIA_TESLA_T4
    assert parsed[0].container_spec.args == ["--model_options={}", "", "--accelerator_count=2"]


def test_every_accelerator_is_one_that_the_api_knows():
    assert {kind.name for kind in AcceleratorType} >= set(accelerators())


@pytest.mark.parametrize(
    ("machine_type", "accelerator_type", "accelerator_count"),
    [
        ("n1-standard-32", "NVIDIA_TESLA_T4", 2),
        ("g2-standard-24", "NVIDIA_L4", 2),
        ("a3-highgpu-8g", "NVIDIA_H100_80GB", 8),
        ("e2-standard-4", "", 0),
    ],
)
def test_machines_that_exist_are_planned(machine_type, accelerator_type, accelerator_count):
    machines = MachineOptions(
        chief_machine_type=machine_type,
        accelerator_type=accelerator_type,
        accelerator_count=accelerator_count,
    )
    assert worker_pool_specs(machines, [])[0]["machine_spec"]["machine_type"] == machine_type


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accelerator_type": "NVIDIA_L4"}, "give both, or neither"),
        ({"accelerator_count": 1}, "give both, or neither"),
        (
            {"chief_machine_type": "e2-standard-4", **GPUS},
            "chief_machine_type='e2-standard-4' can't have 2 x NVIDIA_TESLA_T4; use n1-sta",
        ),
        ({"worker_machine_type": "n2-standard-4", **GPUS}, "worker_machine_type='n2-standard-4'"),
        ({"accelerator_type": "NVIDIA_L4", "accelerator_count": 1}, "use g2-standard-4, g2-stan"),
        (
            {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 3},
            "can't have 3 x NVIDIA_TESLA_T4; set accelerator_count to 1, 2 or 4",
        ),
        (
            {"chief_machine_type": "n1-standard-32", **GPUS, "accelerator_count": 1},
            "'n1-standard-32' can't have 1 x NVIDIA_TESLA_T4; set accelerator_count to 2 or 4",
        ),
        ({"chief_machine_type": "n1-standard-2"}, "; did you mean 'n1-standard-"),
        ({"chief_machine_type": "ct6e-standard-4t"}, "is a TPU machine, on which this project"),
        ({"chief_machine_type": "a4x-highgpu-4g"}, "needs a shared reservation and an image for"),
        (
            {"chief_machine_type": "n4-standard-8"},
            "boot_disk_type='pd-ssd' is not available on n4-standard-8 (chief_machine_type); use "
            "hyperdisk-balanced",
        ),
        (
            {"boot_disk_type": "hyperdisk-balanced"},
            "is not available on n1-standard-4 (chief_machine_type); use pd-ssd or pd-standard",
        ),
        (
            {"chief_machine_type": "n4-standard-8", "evaluator_count": 1},
            "all replicas have the same disk type; use machines that share one",
        ),
        ({"chief_machine_type": "g2-standard-4"}, "accelerator_type=NVIDIA_L4 and"),
        (
            {
                "chief_machine_type": "a2-highgpu-4g",
                "accelerator_type": "NVIDIA_TESLA_A100",
                "accelerator_count": 2,
            },
            "comes with 4 x NVIDIA_TESLA_A100, but 2 x NVIDIA_TESLA_A100",
        ),
        ({"chief_machine_type": ""}, "is not a machine type of training on Vertex AI (configure-"),
        ({"image_uri": " "}, "names no image"),
        ({"ps_count": 1}, "set worker_count=1 or more, or ps_count=0"),
        (
            {"worker_count": 1, "ps_count": 1, "ps_machine_type": "g2-standard-4"},
            "comes with accelerators, which a ps of this job does not use",
        ),
        ({"evaluator_count": 1, "evaluator_machine_type": "big"}, "is not a machine type"),
    ],
)
def test_machines_that_do_not_exist_are_refused(options, message):
    with pytest.raises(InputError) as raised:
        MachineOptions(**options)
    assert message in str(raised.value)


def test_every_role_has_the_place_and_the_machines_that_are_its_own():
    machines = MachineOptions(
        worker_count=4,
        worker_machine_type="n1-standard-8",
        ps_count=1,
        ps_machine_type="n1-highmem-2",
        evaluator_count=1,
        evaluator_machine_type="n1-highmem-4",
        accelerator_type="NVIDIA_TESLA_T4",
        accelerator_count=1,
    )
    pools = worker_pool_specs(machines, ["--epochs=3"])
    # A chief that only schedules steps would leave an accelerator idle.
    assert [(pool["replica_count"], *pool["machine_spec"].values()) for pool in pools] == [
        (1, "n1-standard-4"),
        (4, "n1-standard-8", "NVIDIA_TESLA_T4", 1),
        (1, "n1-highmem-2"),
        (1, "n1-highmem-4"),
    ]
    for pool in pools:
        told = ["--accelerator_count=1"] if "accelerator_type" in pool["machine_spec"] else []
        assert pool["container_spec"]["args"] == ["--epochs=3", "--evaluator_pool=3", *told]


@pytest.mark.parametrize(("worker_count", "place"), [(0, 1), (2, 2)])
def test_without_parameter_servers_all_are_told_where_the_evaluator_stands(worker_count, place):
    pools = worker_pool_specs(MachineOptions(worker_count=worker_count, evaluator_count=1), [])
    assert len(pools) == place + 1
    assert all(f"--evaluator_pool={place}" in pool["container_spec"]["args"] for pool in pools)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("parameter_server", {"worker_count": 2}, "does not fit the replicas (1 chief, 2 worker)"),
        ("parameter_server", {}, "does not fit the replicas (1 chief)"),
        ("multi_worker_mirrored", {"worker_count": 2, "ps_count": 1}, "2 worker, 1 ps"),
        ("one_device", {"worker_count": 1}, "set strategy='auto', or change worker_count"),
        ("parameter_server", {"worker_count": 1, "ps_count": 1, **GPUS}, "accelerator_count=1 and"),
        ("auto", {"worker_count": 1, "ps_count": 1, **GPUS}, "ps_count=1 and accelerator_count=2"),
    ],
)
def test_a_strategy_that_does_not_fit_the_replicas_is_refused(strategy, options, message):
    machines = MachineOptions(**options)
    with pytest.raises(InputError) as raised:
        check_strategy(strategy, machines.replicas, machines.accelerator_count)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        ("auto", {"worker_count": 1, "ps_count": 1}),
        ("parameter_server", {"worker_count": 1, "ps_count": 1}),
        ("multi_worker_mirrored", {"worker_count": 1, "evaluator_count": 1}),
        ("one_device", {"evaluator_count": 1}),
    ],
)
def test_a_strategy_that_fits_the_replicas_is_planned(strategy, options):
    check_strategy(strategy, MachineOptions(**options).replicas)
