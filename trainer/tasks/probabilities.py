"""Answers that have a probability for each class."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainer.metrics import BLOCK
from trainer.metrics.disk_columns import Answers, spans

MOST_PROBABILITIES = 10_000_000
"""Most probabilities in predictions.csv, which take 3 s of CPU time and 0.13 GB; a million examples
of 1,000 classes would be 13 GB."""


class ProbabilityAnswers(Answers):
    """Answers of which the probability of each class is a column, float32, named by its index."""

    loss: ClassVar[str]
    """Title of an example's loss in predictions.csv."""

    def __init__(
        self, rows: int, classes: Sequence[str], dtypes: Mapping[Any, npt.DTypeLike]
    ) -> None:
        super().__init__(rows, {**dict.fromkeys(range(len(classes)), np.float32), **dtypes})
        self.classes = list(classes)

    def block_spans(self) -> Iterator[tuple[int, int]]:
        """Yield the starts and ends of blocks of examples, fewer of them with many classes."""
        return spans(self.rows, max(1, 4 * BLOCK // len(self.classes)))

    def read_probabilities(self, start: int, stop: int) -> np.ndarray:
        """Return probabilities, float32 [stop - start, classes]."""
        return np.stack([self.read(n, start, stop) for n in range(len(self.classes))], axis=1)

    def titles(self) -> list[str]:
        if not self._shown:
            print(f"predictions.csv holds no probabilities: more than {MOST_PROBABILITIES:,}")
        return ["label", "prediction", self.loss, *(f"probability_{name}" for name in self._shown)]

    def format_probabilities(self, start: int, stop: int) -> list[Sequence[Any]]:
        """Return the columns of predictions.csv with probabilities."""
        return [self.format_column(number, start, stop) for number in range(len(self._shown))]

    @property
    def _shown(self) -> list[str]:
        """Return the classes whose probabilities are in predictions.csv: all or none."""
        return self.classes if self.rows * len(self.classes) <= MOST_PROBABILITIES else []
