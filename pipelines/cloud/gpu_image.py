"""The image of replicas that have accelerators: a parameter of the run, or a setting."""

import dataclasses

from pipelines.cloud.settings import Settings
from trainer.machines.worker_pools import MachineOptions, check_gpu_image


def check(machines: MachineOptions, settings: Settings) -> None:
    """Raise InputError for a run on Vertex AI with accelerators and no image that uses them."""
    named = dataclasses.replace(
        machines, gpu_image_uri=machines.gpu_image_uri or settings.gpu_image
    )
    check_gpu_image(
        named,
        "give --set gpu_image_uri=IMAGE, set VERTEX_GPU_IMAGE, or write gpu_image = ... into "
        "vertex.toml",
    )
