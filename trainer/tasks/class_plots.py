"""Pictures and tables of a report on answers that have a probability for each class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.metrics.classifier import Bin, Curve
from vertex.formats import percent

_RIGHT, _WRONG = (40, 125, 200), (220, 105, 25)
"""Colors of a matrix' diagonal and of its other cells."""
_CONFUSIONS_SHOWN = 10


def draw_confusion(matrix: np.ndarray, classes: Sequence[str]) -> dict[str, Any]:
    """Return a confusion matrix as a picture, with the most common mistakes."""
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_CONFUSIONS_SHOWN]
    commonest = []
    for true, predicted in (divmod(int(index), len(matrix)) for index in order):
        if times := int(wrong[true, predicted]):
            commonest.append((classes[true], classes[predicted], times, shares[true, predicted]))
    return {"picture": color_cells(shares), "commonest": commonest}


def draw_roc_and_pr(roc: Sequence[Curve], pr: Sequence[Curve]) -> list[dict[str, Any]]:
    """Draw ROC and precision over recall; empty if undefined."""
    if not roc:
        return []
    rates = "false positive rate", "true positive rate"
    return [draw_class_curves("ROC", roc, *rates), draw_precision_over_recall(pr)]


def draw_calibration(bins: list[Bin], error: float) -> Any:
    """Draw the reliability diagram."""
    from trainer.drawing import plots  # imports Matplotlib

    description = "Accuracy over confidence; the expected calibration error is "
    return plots.draw_reliability(bins, description + percent(error))


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
