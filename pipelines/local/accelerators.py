"""Devices of a run on this machine, in place of Vertex AI's accelerators."""

from pathlib import Path

from trainer.machines.worker_pools import MachineOptions

DEVICES = Path("/dev")


def in_place_of(machines: MachineOptions, devices: Path = DEVICES) -> str:
    """Return a line that says what stands in for the accelerators of each replica.

    Args:
        devices: folder where NVIDIA's driver has a file for each GPU.
    """
    count = machines.accelerator_count
    gpus = len(list(devices.glob("nvidia[0-9]*")))
    here = f"{gpus} GPUs of this machine" if gpus else "the CPU of this machine"
    if not gpus and count > 1:
        here += f", divided into {count} devices"
    return f"in place of {count} x {machines.accelerator_type} a replica uses {here}"
