"""Options of the machines that serve a model."""

import dataclasses

from trainer.fields import option
from trainer.machines.prediction_machines import check_prediction_machine


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """Machines of a version at an endpoint, billed while it is deployed."""

    machine_type: str = option("n1-standard-4", help="Machine type.")
    min_replicas: int = option(1, help="Least number of machines.", minimum=1)
    max_replicas: int = option(
        1, help="Largest number of machines, added as the load rises.", minimum=1
    )

    def __post_init__(self) -> None:
        check_prediction_machine("machine_type", self.machine_type)
