"""Answers with a probability for each class; those of a classifier, and their figures by slice."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainer.metrics import BLOCK, classifier
from trainer.metrics.comparison import Scores, log_losses
from trainer.metrics.disk_columns import Answers, ColumnValues, spans
from trainer.metrics.slices import Cut, Figures
from trainer.tasks.base import Outputs
from trainer.tasks.label_kinds import CLASSIFICATION

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


class ClassAnswers(ProbabilityAnswers):
    """True classes and probabilities of a split's examples.

    Further columns: `label` and `predicted` (int32), `label_probability` (float32).
    """

    loss = CLASSIFICATION.loss

    def __init__(self, rows: int, classes: Sequence[str]) -> None:
        columns = {"label": np.int32, "predicted": np.int32, "label_probability": np.float32}
        super().__init__(rows, classes, columns)
        self.names = np.array(classes)

    def add_batch(self, labels: np.ndarray, outputs: Outputs, keys: list[bytes]) -> None:
        probabilities = outputs["probabilities"]
        columns: dict[Any, np.ndarray] = {
            "label": labels,
            "predicted": probabilities.argmax(axis=1),
            "label_probability": probabilities[np.arange(len(labels)), labels],
            **dict(enumerate(probabilities.T)),
        }
        self.add(columns, keys)

    def rate_badness(
        self, labels: np.ndarray, outputs: Outputs
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the confidence in a wrong class; 0 for right answers."""
        probabilities = outputs["probabilities"]
        predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        figures = {
            "label": self.names[labels],
            "predicted": self.names[predicted],
            "confidence": confidence,  # probability of the predicted class
            "label_probability": probabilities[np.arange(len(labels)), labels],
        }
        return np.where(predicted != labels, confidence, 0), figures

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield labels, int32 [m], probabilities, float32 [m, classes], and weights [m]."""
        for start, stop in self.block_spans():
            label, weights = self.read("label", start, stop), self.weigh(start, stop)
            yield label, self.read_probabilities(start, stop), weights

    def scores(self, start: int, stop: int) -> Scores:
        label, predicted, probability = (
            self.read(name, start, stop) for name in ("label", "predicted", "label_probability")
        )
        weights = self.weigh(start, stop)
        return Scores(label == predicted, log_losses(probability), weights=weights)

    def read_is_positive(self, number: int, start: int, stop: int) -> np.ndarray:
        return self.read("label", start, stop) == number

    def format_rows(self, start: int, stop: int) -> list[Sequence[Any]]:
        names = [self.names[self.read(name, start, stop)] for name in ("label", "predicted")]
        losses = log_losses(self.read("label_probability", start, stop)).tolist()
        return [*names, losses, *self.format_probabilities(start, stop)]


def measure_groups(
    cut: Cut, values: ColumnValues, answers: ClassAnswers
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return accuracy and, for two classes, the share of the second class and ROC AUC of groups."""
    sizes, figures = cut.average(values, _list_figures(answers))
    if len(answers.classes) == 2:
        figures["roc_auc"] = _compute_aucs(cut, sizes, values, answers)
    return sizes, figures


def _list_figures(answers: ClassAnswers) -> Iterator[Figures]:
    """Yield what is averaged over slices: whether answers are right and, of two, the class."""
    for start, stop in spans(answers.rows):
        label = answers.read("label", start, stop)
        figures = {"accuracy": label == answers.read("predicted", start, stop)}
        if len(answers.classes) == 2:
            figures["positive_rate"] = label == 1
        yield figures, answers.weigh(start, stop)


def _compute_aucs(
    cut: Cut, sizes: np.ndarray, values: ColumnValues, answers: ClassAnswers
) -> np.ndarray:
    """Return the ROC AUC of each group of rows, float64 [groups]; NaN if it is undefined."""
    # From pack_scores, group after group.
    examples = np.empty(answers.rows, np.uint64 if answers.is_weighted else np.uint32)
    ends = np.cumsum([0, *sizes])
    filled = ends[:-1].copy()
    for start, stop in spans(answers.rows):
        groups = cut.group_of(values.read(cut.column, start, stop))
        order = np.argsort(groups, kind="stable")
        positive = answers.read("label", start, stop) == 1
        packed = answers.pack_scores(positive, 1, start, stop)[order]
        counts = np.bincount(groups, minlength=len(sizes))
        for number, part in enumerate(np.split(packed, np.cumsum(counts)[:-1])):
            examples[filled[number] : filled[number] + len(part)] = part
        filled += counts
    rankings = [classifier.rank(part) for part in np.split(examples, ends[1:-1])]
    return np.array([ranking.roc_auc if ranking else math.nan for ranking in rankings])
