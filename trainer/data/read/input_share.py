"""The part of a global batch that a worker reads."""

import dataclasses
import math

from trainer.errors import InputError

LANES = 8
"""Preferred number of lanes. If the batch size is a multiple of 8, the order of examples is the
same for 1, 2, 4 and 8 workers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputShare:
    """The part of every global batch that a worker reads.

    Raises InputError if a global batch can't be divided equally among the replicas.
    """

    batch_size: int  # number of examples in a global batch
    worker: int = 0  # index of this worker
    workers: int = 1  # number of workers
    local_replicas: int = 1  # number of this worker's devices, which share its batch equally

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size, self.workers * self.local_replicas)

    @property
    def lanes(self) -> int:
        return math.lcm(math.gcd(self.batch_size, LANES), self.workers)

    @property
    def worker_batch_size(self) -> int:
        return self.batch_size // self.workers

    @property
    def replica_batch_size(self) -> int:
        return self.worker_batch_size // self.local_replicas


def check_batch_size(batch_size: int, replicas: int) -> None:
    """Raise InputError if a global batch can't be divided equally among `replicas` devices."""
    if batch_size % replicas:
        below = batch_size - batch_size % replicas
        choices = " or ".join(str(size) for size in (below, below + replicas) if size)
        raise InputError(
            f"batch_size={batch_size} can't be divided equally among {replicas} replicas; use "
            f"{choices}"
        )
