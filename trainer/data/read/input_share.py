"""The part of a global batch that a worker reads."""

import dataclasses
import math

from vertex.errors import InputError

LANES = 8
"""Preferred number of lanes. If the batch size is a multiple of 8, the order of examples is the
same for 1, 2, 4 and 8 workers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputShare:
    """The part of every global batch that a worker reads.

    Raises InputError if a global batch can't be divided equally among the replicas with which the
    run began. If it goes on with another number of workers, their shares may differ.
    """

    batch_size: int  # number of examples in a global batch
    worker: int = 0  # index of this worker
    workers: int = 1  # number of workers
    local_replicas: int = 1  # number of this worker's devices, which share its batch equally
    began: int = 0  # number of workers with which the run began; 0: as many

    def __post_init__(self) -> None:
        if self._first_workers == self.workers:
            check_batch_size(self.batch_size, self.workers * self.local_replicas)

    @property
    def _first_workers(self) -> int:
        return self.began or self.workers

    @property
    def lanes(self) -> int:
        return math.lcm(math.gcd(self.batch_size, LANES), self._first_workers)

    @property
    def lane_size(self) -> int:
        """Return the number of a lane's examples in a global batch."""
        return self.batch_size // self.lanes

    @property
    def shuffled_together(self) -> int:
        """Return the number of lanes that share the memory for shuffling."""
        return self.lanes // self._first_workers

    @property
    def own_lanes(self) -> range:
        first, last = (
            worker * self.lanes // self.workers for worker in (self.worker, self.worker + 1)
        )
        return range(first, last)

    @property
    def worker_batch_size(self) -> int:
        """Return the number of rows of a worker's batches, which is the same for all workers."""
        return self.replica_batch_size * self.local_replicas

    @property
    def replica_batch_size(self) -> int:
        largest = -(-self.lanes // self.workers) * self.lane_size
        return -(-largest // self.local_replicas)

    def rows_at(self, position: int, examples: int) -> tuple[int, int, int]:
        """Return the offset of this worker's first example in a global batch, the number of its
        examples, and that of the batch.

        Args:
            position: position of the batch in a pass over the split.
            examples: number of examples of the split.
        """
        size = min(self.batch_size, examples - position * self.batch_size)
        own = self.own_lanes
        first, end = (lane * size // self.lanes for lane in (own.start, own.stop))
        return first, end - first, size


def check_batch_size(batch_size: int, replicas: int) -> None:
    """Raise InputError if a global batch can't be divided equally among `replicas` devices."""
    if batch_size % replicas:
        below = batch_size - batch_size % replicas
        choices = " or ".join(str(size) for size in (below, below + replicas) if size)
        raise InputError(
            f"batch_size={batch_size} can't be divided equally among {replicas} replicas; use "
            f"{choices}"
        )
