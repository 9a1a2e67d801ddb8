"""Machine options become worker pools as Vertex AI takes them, or one clear line."""

import pytest
from google.cloud.aiplatform_v1.types import AcceleratorType, WorkerPoolSpec
from google_cloud_pipeline_components.container.v1.gcp_launcher.utils import json_util

from components.planning.worker_pools import MachineOptions, build_worker_pool_specs
from tests.refusals import refused
from trainer import fields
from trainer.engine.cluster import check_strategy
from vertex.machines.machine_types import accelerators

T4 = "accelerator_type=NVIDIA_TESLA_T4"
GPUS = f"{T4} accelerator_count=2"
TWO_A100 = "accelerator_type=NVIDIA_TESLA_A100 accelerator_count=2"


def machines(text: str = "") -> MachineOptions:
    """Build the options of a text such as "worker_count=2 ps_count=1"."""
    return fields.build(MachineOptions, dict(word.split("=") for word in text.split()))


def test_chief_alone_is_one_pool_of_one_replica():
    assert build_worker_pool_specs(machines("image_uri=i:1"), ["--epochs=3"]) == [
        {
            "machine_spec": {"machine_type": "n1-standard-4"},
            "replica_count": 1,
            "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 100},
            "container_spec": {
                "image_uri": "i:1",
                "command": ["python3", "-m", "trainer.task"],
                "args": ["--epochs=3"],
            },
        }
    ]


def test_every_role_has_its_place_and_machines():
    options = machines(
        "worker_count=4 worker_machine_type=n1-standard-8 ps_count=1 ps_machine_type=n1-highmem-2 "
        f"evaluator_count=1 evaluator_machine_type=n1-highmem-4 {T4} accelerator_count=1 "
        "image_uri=i:1 gpu_image_uri=i:gpu"
    )
    pools = build_worker_pool_specs(options, ["--epochs=3"])
    # A chief that only schedules steps would leave an accelerator idle.
    assert [(pool["replica_count"], *pool["machine_spec"].values()) for pool in pools] == [
        (1, "n1-standard-4"),
        (4, "n1-standard-8", "NVIDIA_TESLA_T4", 1),
        (1, "n1-highmem-2"),
        (1, "n1-highmem-4"),
    ]
    images = [pool["container_spec"]["image_uri"] for pool in pools]
    assert images == ["i:1", "i:gpu", "i:1", "i:1"]
    assert options.training_image == "i:gpu"
    for pool in pools:
        more = ["--accelerator_count=1"] if "accelerator_type" in pool["machine_spec"] else []
        assert pool["container_spec"]["args"] == ["--epochs=3", "--evaluator_pool=3", *more]


def test_pools_without_accelerators_have_the_plain_image():
    options = machines("worker_count=1 ps_count=1 image_uri=i:1 gpu_image_uri=i:gpu")
    images = {pool["container_spec"]["image_uri"] for pool in build_worker_pool_specs(options)}
    assert images == {options.training_image} == {"i:1"}


def test_pools_are_what_the_proto_takes_and_the_launcher_keeps():
    options = machines(f"worker_count=3 worker_machine_type=n1-highmem-8 {GPUS}")
    pools = build_worker_pool_specs(options, ["--model_options={}", ""])
    assert json_util.recursive_remove_empty({"pools": pools}) == {"pools": pools}
    chief, workers = (WorkerPoolSpec(pool) for pool in pools)
    assert (chief.replica_count, workers.replica_count) == (1, 3)
    assert chief.machine_spec.machine_type == "n1-standard-4"
    assert workers.machine_spec.machine_type == "n1-highmem-8"
    for pool in (chief, workers):
        assert pool.machine_spec.accelerator_type == AcceleratorType.NVIDIA_TESLA_T4
        assert pool.machine_spec.accelerator_count == 2
    assert chief.container_spec.args == ["--model_options={}", "", "--accelerator_count=2"]
    assert workers.container_spec == chief.container_spec
    assert {kind.name for kind in AcceleratorType} >= set(accelerators())


@pytest.mark.parametrize(("worker_count", "place"), [(0, 1), (2, 2)])
def test_evaluator_pool_follows_the_others(worker_count, place):
    pools = build_worker_pool_specs(machines(f"worker_count={worker_count} evaluator_count=1"))
    assert len(pools) == place + 1
    assert all(f"--evaluator_pool={place}" in pool["container_spec"]["args"] for pool in pools)


@pytest.mark.parametrize(
    "options",
    [
        "chief_machine_type=n1-standard-32 accelerator_type=NVIDIA_TESLA_T4 accelerator_count=2",
        "chief_machine_type=g2-standard-24 accelerator_type=NVIDIA_L4 accelerator_count=2",
        "chief_machine_type=a3-highgpu-8g accelerator_type=NVIDIA_H100_80GB accelerator_count=8",
        "chief_machine_type=e2-standard-4",
    ],
)
def test_existing_machine_is_accepted(options):
    (pool,) = build_worker_pool_specs(machines(options))
    spec = " ".join(f"{name}={value}" for name, value in pool["machine_spec"].items())
    assert f"chief_{spec}" == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("accelerator_type=NVIDIA_L4", "set both, or neither"),
        ("accelerator_count=1", "set both, or neither"),
        (f"chief_machine_type=e2-standard-4 {GPUS}", "can't have 2 x NVIDIA_TESLA_T4; use n1-sta"),
        (
            f"worker_count=1 worker_machine_type=n2-standard-4 {GPUS}",
            "worker_machine_type='n2-standard-4'",
        ),
        ("accelerator_type=NVIDIA_L4 accelerator_count=1", "use g2-standard-4, g2-stan"),
        (f"{T4} accelerator_count=3", "3 x NVIDIA_TESLA_T4; set accelerator_count to 1, 2 or 4"),
        (f"chief_machine_type=n1-standard-32 {T4} accelerator_count=1", "set accelerator_count to"),
        ("chief_machine_type=n1-standard-2", "; did you mean 'n1-standard-"),
        ("chief_machine_type=ct6e-standard-4t", "is a TPU machine, on which this project"),
        ("chief_machine_type=a4x-highgpu-4g", "needs a shared reservation and an image for"),
        ("chief_machine_type=n4-standard-8", "(chief_machine_type); use hyperdisk-balanced"),
        ("boot_disk_type=hyperdisk-balanced", "(chief_machine_type); use pd-ssd or pd-standard"),
        ("chief_machine_type=n4-standard-8 evaluator_count=1", "have the same disk type; use"),
        ("chief_machine_type=g2-standard-4", "accelerator_type=NVIDIA_L4 and"),
        (f"chief_machine_type=a2-highgpu-4g {TWO_A100}", "comes with 4 x NVIDIA_TESLA_A100, but 2"),
        ("chief_machine_type=", "is not a machine type of training on Vertex AI (configure-"),
        ("image_uri=", "image_uri is empty"),
        ("worker_count=1 ps_count=1 ps_machine_type=g2-standard-4", "which a ps of this job does"),
        ("evaluator_count=1 evaluator_machine_type=big", "is not a machine type"),
    ],
)
def test_impossible_machines_are_refused(options, message):
    assert message in refused(machines, options)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("parameter_server", "worker_count=2", "does not fit the replicas (1 chief, 2 worker)"),
        ("parameter_server", "", "does not fit the replicas (1 chief)"),
        ("multi_worker_mirrored", "worker_count=2 ps_count=1", "2 worker, 1 ps"),
        ("one_device", "worker_count=1", "set strategy='auto', or change worker_count"),
        ("parameter_server", f"worker_count=1 ps_count=1 {GPUS}", "ps_count=1 and accelerator_cou"),
        ("auto", f"worker_count=1 ps_count=1 {GPUS}", "set accelerator_count=1 and"),
    ],
)
def test_strategy_that_does_not_fit_the_replicas_is_refused(strategy, options, message):
    pools = machines(options)
    assert message in refused(check_strategy, strategy, pools.replicas, pools.accelerator_count)
