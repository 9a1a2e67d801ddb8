"""Code shared by tasks that answer with a probability for each class."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainer.metrics import BLOCK
from trainer.metrics.classifier import Curve
from trainer.metrics.disk_columns import Answers, spans

MOST_PROBABILITIES = 10_000_000
"""Most probabilities in predictions.csv, which take 3 s of CPU time and 0.13 GB; a million examples
of 1,000 classes would be 13 GB."""
_RIGHT, _WRONG = (40, 125, 200), (220, 105, 25)
"""Colors of a matrix' diagonal and of its other cells."""


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


def draw_class_curves(
    caption: str, curves: Sequence[Curve], x_label: str, y_label: str, *, steps: bool = False
) -> dict[str, Any]:
    """Draw curves of classes; return the drawing and its legend, which has their areas."""
    from trainer.drawing import plots  # imports Matplotlib

    legend = [(n, curve.name or "mean", curve.area) for n, curve in enumerate(curves, 1)]
    areas = ", ".join(f"{name} has area {area:.3f}" for _, name, area in legend)
    drawing = plots.draw_curves(curves, x_label, y_label, f"{caption}: {areas}", steps=steps)
    return {"drawing": drawing, "caption": caption, "legend": legend}


def draw_precision_over_recall(curves: Sequence[Curve]) -> dict[str, Any]:
    """Draw PR curves as steps, which average precision sums."""
    return draw_class_curves("Precision over recall", curves, "recall", "precision", steps=True)


def color_cells(shares: np.ndarray) -> np.ndarray:
    """Return RGBA pixels of shares [n, n], one pixel for each; empty cells are transparent."""
    pixels = np.zeros((*shares.shape, 4), np.uint8)
    pixels[..., :3] = np.where(np.eye(len(shares), dtype=bool)[..., None], _RIGHT, _WRONG)
    pixels[..., 3] = np.round(255 * np.sqrt(shares))
    return pixels


def list_balance(
    classes: Sequence[str], counts: npt.ArrayLike, totals: npt.ArrayLike
) -> list[tuple[str, list[tuple[int, float, float]]]]:
    """Return each class with its count, share and bar length in every split.

    Args:
        counts: numbers of examples, int [splits, classes].
        totals: numbers of which the counts are shares, int [splits].
    """
    by_class = np.array(counts).T
    shares = by_class / np.maximum(1, totals)
    columns = by_class.tolist(), shares.tolist(), (shares / max(shares.max(), 1e-9)).tolist()
    cells = [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]
    return list(zip(classes, cells, strict=True))
