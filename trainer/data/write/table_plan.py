"""What the writer asks of a source of rows, which are planned and written in blocks.

Nothing is kept of each row. A shard is a range of the rows of a split, in the order of their
digests, and the table itself knows where they are.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from trainer.data.sources import Rejection, Source
from trainer.data.write.process_pool import Spares
from trainer.data.write.totals import Totals
from trainer.data.write.writing_progress import ProgressLines


@dataclasses.dataclass(frozen=True)
class RowTask:
    """A shard of a table: its file, and which of the equal ranges of digests of a split it is.

    Attributes:
        number, count: of the range, and of all ranges.
        rows: all of them in their order, where they are at hand.
    """

    file: str
    split: str
    number: int
    count: int
    rows: Any = None


class Piece(NamedTuple):
    """A part of a shard: its bytes, records by label, rejections, and examples done."""

    content: bytes | memoryview
    labels: dict[int, int]
    rejections: list[Rejection]
    examples: int


class TableSource(Source, Protocol):
    """A source of rows."""

    def plan(self, lines: ProgressLines, spares: Spares) -> Totals:
        """Reads the whole table, in as many processes as pay."""
        ...

    def cut(self, split: str, count: int, covered: Any) -> list[tuple[int, int]]:
        """Return the number of each of a split's shards, and how many there are."""
        ...

    def task(self, file: str, split: str, chosen: tuple[int, int], variants: int) -> RowTask:
        """Return the task of the shard `file`."""
        ...

    def pieces(self, task: RowTask) -> Iterator[Piece]:
        """Yield the records of a task, part by part."""
        ...
