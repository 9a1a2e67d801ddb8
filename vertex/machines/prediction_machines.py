"""Machine types for batch prediction and endpoints, which differ from the types for training."""

from vertex.errors import InputError
from vertex.formats import suggest
from vertex.machines.machine_types import serving_types


def count_vcpus(name: str) -> int:
    """Return the number of vCPUs of a machine type for prediction."""
    return serving_types()[name].vcpus


def check_prediction_machine(option: str, name: str) -> None:
    """Raise InputError if `name`, the value of `option`, is not a machine type for prediction."""
    if name not in serving_types():
        known = serving_types()
        hint = suggest(name, known, f"; use one such as {next(iter(known))!r}")
        raise InputError(f"{option}={name!r} is not a machine type for prediction{hint}")
