"""Machine types for batch prediction and endpoints, which differ from the types for training.

The types without accelerators, from machine-learning/predictions/configure-compute, August 2026:
https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/configure-compute
"""

from vertex_facts import UsageError
from vertex_facts.tables import suggest

_VCPUS = {
    "e2-standard": (2, 4, 8, 16, 32),
    "e2-highmem": (2, 4, 8, 16),
    "e2-highcpu": (2, 4, 8, 16, 32),
    "n1-standard": (2, 4, 8, 16, 32),
    "n1-highmem": (2, 4, 8, 16, 32),
    "n1-highcpu": (4, 8, 16, 32),
    "n2-standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "n2-highmem": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "n2-highcpu": (2, 4, 8, 16, 32, 48, 64, 80, 96),
    "n2d-standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224),
    "n2d-highmem": (2, 4, 8, 16, 32, 48, 64, 80, 96),
    "n2d-highcpu": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224),
    "c2-standard": (4, 8, 16, 30, 60),
    "c2d-standard": (2, 4, 8, 16, 32, 56, 112),
    "c2d-highcpu": (2, 4, 8, 16, 32, 56, 112),
    "c2d-highmem": (2, 4, 8, 16, 32, 56, 112),
    "c3-highcpu": (4, 8, 22, 44, 88, 176),
}
MACHINE_TYPES = [f"{series}-{vcpus}" for series, sizes in _VCPUS.items() for vcpus in sizes]


def check_prediction_machine(option: str, name: str) -> None:
    """Raise UsageError if `name`, the value of `option`, is not a machine type for prediction."""
    if name not in MACHINE_TYPES:
        hint = suggest(name, MACHINE_TYPES, "; use, for example, 'n1-standard-4'")
        raise UsageError(f"{option}={name!r} is not a machine type for prediction{hint}")
