"""Machine types for batch prediction and endpoints, which differ from the types for training."""

from vertex_facts import UsageError, tables
from vertex_facts.machine_types import serving_types


def count_vcpus(name: str) -> int:
    """Return the number of vCPUs of a machine type for prediction."""
    return serving_types()[name].vcpus


def check_prediction_machine(option: str, name: str) -> None:
    """Raise UsageError if `name`, the value of `option`, is not a machine type for prediction."""
    if name not in serving_types():
        hint = tables.suggest(name, serving_types(), "; use, for example, 'n1-standard-4'")
        raise UsageError(f"{option}={name!r} is not a machine type for prediction{hint}")
