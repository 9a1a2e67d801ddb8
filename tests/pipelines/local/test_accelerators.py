"""The lines of a run that say what it uses instead of accelerators."""

from components.machines.worker_pools import MachineOptions
from pipelines.local.preflight import describe_substitutes

GPUS = MachineOptions(accelerator_type="NVIDIA_TESLA_T4", accelerator_count=2)


def test_cpu_or_gpus_of_this_machine_stand_in(tmp_path):
    start = "instead of 2 x NVIDIA_TESLA_T4, a replica uses "
    divided = f"{start}the CPU of this machine, divided into 2 devices"
    assert list(describe_substitutes(GPUS, "", tmp_path)) == [divided]
    assert list(describe_substitutes(MachineOptions(), "NVIDIA_L4", tmp_path)) == [
        "instead of 1 x NVIDIA_L4, the evaluation uses the CPU of this machine"
    ]
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (tmp_path / name).touch()
    assert list(describe_substitutes(GPUS, "", tmp_path)) == [f"{start}2 GPUs of this machine"]
