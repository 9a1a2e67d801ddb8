"""Prepare the data of the sections on quality: confusion, curves and calibration."""

from typing import Any

import numpy as np
from markupsafe import Markup

from trainer.drawing import plots
from trainer.evaluation.scoring import Evaluation
from trainer.formats import percent

MATRIX_SHOWN = 20
CONFUSIONS_SHOWN = 10
_RIGHT, _WRONG = (40, 125, 200), (220, 105, 25)


def draw_confusion(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return the confusion matrix as a picture, with common mistakes; None for up to 20 classes."""
    matrix = np.array(evaluation.confusion_matrix)
    if len(matrix) <= MATRIX_SHOWN:
        return None
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:CONFUSIONS_SHOWN]
    commonest = []
    for true, predicted in (divmod(int(index), len(matrix)) for index in order):
        if times := int(wrong[true, predicted]):
            names = evaluation.classes[true], evaluation.classes[predicted]
            commonest.append((*names, times, shares[true, predicted]))
    return {"picture": _color_cells(shares), "commonest": commonest}


def _color_cells(shares: np.ndarray) -> np.ndarray:
    """Return one pixel per cell; empty cells are transparent, which fits light and dark mode."""
    pixels = np.zeros((*shares.shape, 4), np.uint8)
    pixels[..., :3] = _WRONG
    pixels[..., 3] = np.round(255 * np.sqrt(shares))
    diagonal = np.arange(len(shares))
    pixels[diagonal, diagonal, :3] = _RIGHT
    return pixels


def draw_curves(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Draw ROC and precision over recall, with areas in the legend; empty if undefined."""
    rates, over_recall = ("false positive rate", "true positive rate"), ("recall", "precision")
    kinds = (
        ("ROC", rates, evaluation.roc_curves),
        # Drawn as steps, which average precision sums.
        ("Precision over recall", over_recall, evaluation.pr_curves),
    )
    figures = []
    for caption, labels, drawn in kinds if evaluation.roc_curves else ():
        legend = [(n, curve.name or "mean", curve.area) for n, curve in enumerate(drawn, start=1)]
        areas = ", ".join(f"{name} has area {area:.3f}" for _, name, area in legend)
        description = f"{caption}: {areas}"
        drawing = plots.draw_curves(drawn, *labels, description, steps=labels is over_recall)
        figures.append({"drawing": drawing, "caption": caption, "legend": legend})
    return figures


def draw_calibration(evaluation: Evaluation) -> Markup:
    """Draw the reliability diagram."""
    error = percent(evaluation.expected_calibration_error)
    description = f"Accuracy over confidence; the expected calibration error is {error}"
    return plots.draw_reliability(evaluation.calibration, description)
