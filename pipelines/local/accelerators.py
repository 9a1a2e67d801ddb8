"""The devices that stand in for Vertex AI's accelerators in a run on this machine."""

from collections.abc import Iterator
from pathlib import Path

from trainer.machines.worker_pools import MachineOptions

DEVICES = Path("/dev")


def describe_substitutes(
    machines: MachineOptions, evaluation: str, devices: Path = DEVICES
) -> Iterator[str]:
    """Yield a line for each use of accelerators: by replicas, and by the evaluation.

    In the folder `devices`, NVIDIA's driver has a file per GPU.
    """
    gpus = len(list(devices.glob("nvidia[0-9]*")))
    users = {"a replica": (machines.accelerator_type, machines.accelerator_count)}
    users["the evaluation"] = (evaluation, 1)
    for user, (accelerator, count) in users.items():
        substitute = f"{gpus} GPUs of this machine" if gpus else "the CPU of this machine"
        if not gpus and count > 1:
            substitute += f", divided into {count} devices"
        if accelerator:
            yield f"instead of {count} x {accelerator}, {user} uses {substitute}"
