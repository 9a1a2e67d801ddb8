"""Devices of a run on this machine, in place of Vertex AI's accelerators."""

from collections.abc import Iterator
from pathlib import Path

from trainer.machines.worker_pools import MachineOptions

DEVICES = Path("/dev")


def in_place_of(
    machines: MachineOptions, evaluation: str, devices: Path = DEVICES
) -> Iterator[str]:
    """Yield a line for replicas and one for the evaluation, if they would have accelerators.

    Args:
        evaluation: accelerator type of that step; empty: none.
        devices: folder where NVIDIA's driver has a file for each GPU.
    """
    gpus = len(list(devices.glob("nvidia[0-9]*")))
    users = {"a replica": (machines.accelerator_type, machines.accelerator_count)}
    users["the evaluation"] = (evaluation, 1)
    for user, (accelerator, count) in users.items():
        here = f"{gpus} GPUs of this machine" if gpus else "the CPU of this machine"
        if not gpus and count > 1:
            here += f", divided into {count} devices"
        if accelerator:
            yield f"in place of {count} x {accelerator} {user} uses {here}"
