"""A run on this machine says what it uses in place of accelerators."""

from pipelines.local.accelerators import substitutes
from trainer.machines.worker_pools import MachineOptions

GPUS = MachineOptions(accelerator_type="NVIDIA_TESLA_T4", accelerator_count=2)


def test_a_cpu_that_is_divided_or_the_gpus_that_there_are_stand_in(tmp_path):
    start = "in place of 2 x NVIDIA_TESLA_T4 a replica uses "
    assert list(substitutes(GPUS, "", tmp_path)) == [
        f"{start}the CPU of this machine, divided into 2 devices"
    ]
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    assert list(substitutes(GPUS, "", tmp_path)) == [f"{start}2 GPUs of this machine"]


def test_the_evaluation_has_its_own_line(tmp_path):
    assert list(substitutes(MachineOptions(), "NVIDIA_L4", tmp_path)) == [
        "in place of 1 x NVIDIA_L4 the evaluation uses the CPU of this machine"
    ]
