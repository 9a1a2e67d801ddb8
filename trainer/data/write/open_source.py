"""The base class of open sources, which turns their examples into records."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from trainer.data.schema import Feature
from trainer.data.source import Rejection
from trainer.data.totals import Totals
from trainer.data.write.record_options import RecordOptions
from trainer.data.write.spill import Spill
from trainer.data.write.written_labels import ClassIndices, TableLabels
from trainer.process_pool import Processes
from trainer.progress_lines import ProgressLines


class Piece(NamedTuple):
    """A part of a shard."""

    content: bytes | memoryview
    labels: dict[int, int]  # number of records by index of `labels.counted`
    rejections: list[Rejection]
    examples: int  # number of examples done


class OpenSource:
    """Base class of open sources; picklable, because each writing process gets a copy.

    `opened` is the result of `SourceKind.open`.
    """

    unit: str  # plural noun for examples, for messages
    features: list[Feature]  # of the examples; of a table, known after `conclude`
    labels: ClassIndices | TableLabels

    def __init__(self, opened: Any, options: RecordOptions) -> None:
        self.opened, self.options = opened, options
        self.name: str = opened.name
        self.location: str = opened.location  # URI that the source reads, if any
        self.details: dict[str, Any] = opened.details  # entries for dataset.json

    @property
    def classes(self) -> list[str]:
        """Return the classes in the order of label indices; empty for numbers."""
        return self.labels.classes

    def plan(self, lines: ProgressLines, processes: Processes) -> tuple[Totals, Spill]:
        """Read the source once; return its totals and the rows of the examples that are kept."""
        raise NotImplementedError

    def conclude(self, totals: Totals) -> None:
        """Set what only the totals of all examples determine; raise InputError as `plan` does."""
        self.labels.conclude(totals)

    def estimate_cost(self, totals: Totals) -> tuple[float, float]:
        """Return the mean size of a record in bytes, and the mean seconds to create one."""
        raise NotImplementedError

    def make_pieces(self, rows: Iterable[pa.Table], variants: int) -> Iterator[Piece]:
        """Yield the records of planned rows, each with `variants` augmented copies."""
        raise NotImplementedError
