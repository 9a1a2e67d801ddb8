"""Machine types for batch prediction and endpoints, which differ from the types for training."""

from vertex_facts import UsageError, tables

_VCPUS = tables.load("prediction_machines")["vcpus"]
MACHINE_TYPES = [f"{series}-{vcpus}" for series, sizes in _VCPUS.items() for vcpus in sizes]


def count_vcpus(name: str) -> int:
    """Return the number of vCPUs of a machine type for prediction."""
    return int(name.rpartition("-")[2])


def check_prediction_machine(option: str, name: str) -> None:
    """Raise UsageError if `name`, the value of `option`, is not a machine type for prediction."""
    if name not in MACHINE_TYPES:
        hint = tables.suggest(name, MACHINE_TYPES, "; use, for example, 'n1-standard-4'")
        raise UsageError(f"{option}={name!r} is not a machine type for prediction{hint}")
