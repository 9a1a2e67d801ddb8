"""The quality of the model: data of the sections on confusion, curves and calibration."""

from typing import Any

import numpy as np

from trainer.evaluation.metrics import Curve
from trainer.evaluation.scoring import Evaluation
from trainer.report import plots
from trainer.report.findings import mean_confidence
from trainer.report.formats import percent

MATRIX_SHOWN = 20
CONFUSIONS_SHOWN = 10
_RIGHT, _WRONG = (40, 125, 200), (220, 105, 25)


def confusion(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return the confusion matrix as a picture, with the commonest mistakes; None up to 20 classes,
    of which the page has a table."""
    matrix = np.array(evaluation.confusion_matrix)
    if len(matrix) <= MATRIX_SHOWN:
        return None
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:CONFUSIONS_SHOWN]
    commonest = []
    for true, predicted in (divmod(int(place), len(matrix)) for place in order):
        if times := int(wrong[true, predicted]):
            names = evaluation.classes[true], evaluation.classes[predicted]
            commonest.append((*names, times, shares[true, predicted]))
    return {"picture": _heat(shares), "commonest": commonest}


def _heat(shares: np.ndarray) -> np.ndarray:
    """Return a pixel a cell, transparent where it is empty: it fits light and dark alike."""
    pixels = np.zeros((*shares.shape, 4), np.uint8)
    pixels[..., :3] = _WRONG
    pixels[..., 3] = np.round(255 * np.sqrt(shares))
    diagonal = np.arange(len(shares))
    pixels[diagonal, diagonal, :3] = _RIGHT
    return pixels


def curves(evaluation: Evaluation) -> dict[str, Any]:
    """ROC and precision over recall, with every area in the legend; empty where undefined."""
    roc, pr = evaluation.roc_curves, evaluation.pr_curves
    if not roc:
        return {}
    return {
        "roc": {"drawing": plots.roc(roc, f"ROC: {_areas(roc)}"), "legend": _legend(roc)},
        "pr": {
            "drawing": plots.precision_recall(pr, f"Precision over recall: {_areas(pr)}"),
            "legend": _legend(pr),
        },
    }


def _areas(drawn: list[Curve]) -> str:
    return ", ".join(f"{curve.name or 'mean'} has area {curve.area:.3f}" for curve in drawn)


def _legend(drawn: list[Curve]) -> list[tuple[int, str, float]]:
    return [
        (number, curve.name or "mean", curve.area) for number, curve in enumerate(drawn, start=1)
    ]


def calibration(evaluation: Evaluation) -> dict[str, Any]:
    """Return the reliability diagram, and the mean confidence."""
    error = percent(evaluation.expected_calibration_error)
    description = f"Accuracy over confidence; the expected calibration error is {error}"
    return {
        "drawing": plots.reliability(evaluation.calibration, description),
        "confidence": mean_confidence(evaluation),
    }
