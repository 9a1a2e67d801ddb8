"""Devices of a run on this machine, in place of Vertex AI's accelerators."""

from pathlib import Path

DEVICES = Path("/dev")


def in_place_of(accelerator_type: str, count: int, user: str, devices: Path = DEVICES) -> str:
    """Return a line that says what stands in for accelerators.

    Args:
        user: what would use them on Vertex AI.
        devices: folder where NVIDIA's driver has a file for each GPU.
    """
    gpus = len(list(devices.glob("nvidia[0-9]*")))
    here = f"{gpus} GPUs of this machine" if gpus else "the CPU of this machine"
    if not gpus and count > 1:
        here += f", divided into {count} devices"
    return f"in place of {count} x {accelerator_type} {user} uses {here}"
