"""The plan of a table, and what the writer asks of one: rows are written in blocks.

Nothing is kept of each row. A shard is a range of the rows of a split, in the order of their
digests, and the table itself knows where they are.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from trainer.data.sources import Rejection, Source
from trainer.data.write.process_pool import Spares
from trainer.data.write.writing_progress import ProgressLines

SECONDS_A_ROW = 1e-6
"""That a process takes to make a record of an encoded row."""

RECORD_BYTES = 36
"""Of a record, around the entries of its row: its frame and its label."""


@dataclasses.dataclass(frozen=True)
class RowTask:
    """A shard of a table: its file, and which of the equal ranges of digests of a split it is.

    Attributes:
        number, count: of the range, and of all ranges.
        carried: the rows themselves, where the source's own are out of reach.
    """

    file: str
    split: str
    number: int
    count: int
    carried: Any = None

    @property
    def examples(self) -> int:
        return 0 if self.carried is None else len(self.carried)


class Piece(NamedTuple):
    """A part of a shard: its bytes, records by label, rejections, and examples done."""

    content: bytes | memoryview
    labels: dict[int, int]
    rejections: list[Rejection]
    examples: int


class TableSource(Source, Protocol):
    """A source of rows."""

    def plan(self, lines: ProgressLines, spares: Spares) -> "RowPlan":
        """Reads the whole table, in as many processes as pay."""
        ...

    def pieces(self, task: RowTask) -> Iterator[Piece]:
        """Yield the records of a task, part by part."""
        ...

    def carried(self, task: RowTask) -> RowTask:
        """Return a task with its rows, for a machine without this one's disk."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowPlan:
    """The `trainer.data.write.split_plan.Plan` of a table, which keeps nothing of each row.

    Attributes:
        rejections: rows that can't be used.
        order: by split, as many places as it has rows.
        counts: rows of each class.
        content: changes with the content of the table, and with the names of its files.
        entry_bytes: of all rows.
    """

    rejections: list[Rejection]
    order: dict[str, range]
    counts: list[int]
    content: list[int | str]
    entry_bytes: int
    contradictions: tuple = ()

    @property
    def given(self) -> int:
        return sum(self.counts) + len(self.rejections)

    def class_counts(self, _: int) -> list[int]:
        return self.counts

    def fingerprint(self, circumstances: Any) -> str:
        """Return a digest of the whole plan and of `circumstances`, which json can write."""
        rejected = [[one.key, one.reason] for one in self.rejections]
        text = json.dumps([circumstances, self.content, rejected], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def cost(self, _: Any) -> tuple[float, float]:
        """Return the mean bytes of a record, and the seconds that one takes."""
        rows = max(1, sum(self.counts))
        return self.entry_bytes / rows + RECORD_BYTES, SECONDS_A_ROW

    def cut(self, _: str, count: int, __: Any) -> list[tuple[int, int]]:
        """Return the number of each shard, and how many there are."""
        return [(number, count) for number in range(count)]

    def task(self, file: str, split: str, chosen: tuple[int, int], _: int) -> RowTask:
        """Return the task of the shard `file`."""
        return RowTask(file, split, *chosen)
