"""Evaluate a SavedModel on a held-out split.

    evaluation = evaluate("gs://bucket/run/model", "gs://bucket/records")
    evaluation.accuracy, evaluation.accuracy_interval  # 0.972, (0.949, 0.985)

Only the SavedModel and the records are read, so the evaluation covers exactly what will serve:
the model's own parsing, decoding, preprocessing and class names.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import confusion_matrix

from trainer.data import schema
from trainer.errors import InputError
from trainer.evaluation import metrics
from trainer.evaluation.comparison import log_losses
from trainer.evaluation.leakage import single_columns
from trainer.evaluation.mistakes import Mistake, MostConfident
from trainer.evaluation.prediction import ServedModel, predict
from trainer.evaluation.slices import Slices, read_columns, slices

MISTAKES_KEPT = 24
_SCALARS = (
    *("log_loss", "precision", "recall", "f1", "roc_auc", "pr_auc", "expected_calibration_error"),
    *("brier_score", "baseline_accuracy", "examples"),
)


class Answers(NamedTuple):
    """True classes, int64 [n], and a model's probabilities, float32 [n, classes]."""

    labels: np.ndarray
    probabilities: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation of a model; a metric that the split leaves undefined is None."""

    model: str  # URI
    dataset: str  # URI
    examples: int
    seconds: float  # of prediction, without loading the model
    classes: list[str]  # in the order of label indices
    accuracy: float
    accuracy_interval: tuple[float, float]  # 95% (Wilson)
    top_k: int | None  # 5 or 3; None for three classes or fewer
    top_k_accuracy: float | None
    log_loss: float  # in nats
    # Means over the classes that have examples in the split.
    precision: float
    recall: float
    f1: float
    # Areas of the second of two classes; with more, means of each class against the rest.
    roc_auc: float | None
    pr_auc: float | None
    expected_calibration_error: float
    brier_score: float  # 0 to 1 for two classes, 0 to 2 for more
    baseline_accuracy: float  # of always predicting the split's most common class
    per_class: list[metrics.ClassMetrics]
    confusion_matrix: list[list[int]]  # rows are true classes, columns predicted ones
    calibration: list[metrics.Bin]
    roc_curves: list[metrics.Curve]
    pr_curves: list[metrics.Curve]  # a precision holds from the previous recall up to its own
    roc: metrics.RocCurve | None  # of the second of two classes
    mistakes: list[Mistake]  # most confident first
    slices: list[Slices]
    column_areas: dict[str, float]  # ROC AUC of each single column of a table with two classes
    answers: Answers
    keys: list[bytes]  # in the order of the answers

    def scalars(self) -> dict[str, float]:
        """Return the defined metrics that are single numbers, by name."""
        low, high = self.accuracy_interval
        values = {
            "accuracy": self.accuracy,
            "accuracy_low": low,
            "accuracy_high": high,
            f"top_{self.top_k}_accuracy": self.top_k_accuracy,
            **{name: getattr(self, name) for name in _SCALARS},
        }
        return {name: float(value) for name, value in values.items() if value is not None}


def evaluate(model_uri: str, dataset_uri: str, *, slice_columns: Sequence[str] = ()) -> Evaluation:
    """Evaluate the SavedModel at `model_uri` on the test split of the data set at `dataset_uri`.

    Memory holds the probabilities (float32 [n, classes]) and the keys, never the images.

    Args:
        model_uri: a SavedModel with the signature `serving_examples` of trainer/training/export.py.
        slice_columns: columns of a table to slice the split by; see `slices.slices`.
    """
    dataset = schema.load(dataset_uri)
    total = dataset.splits["test"].examples
    if not total:
        raise InputError(
            f"the test split of {dataset_uri} has no example to evaluate on; "
            "give it a share in split_fractions"
        )
    model = ServedModel(model_uri)
    start = time.monotonic()
    mistakes = MostConfident(MISTAKES_KEPT)
    labels, probabilities, keys = predict(model, dataset, mistakes)
    seconds = time.monotonic() - start
    print(f"Evaluated {total:,} test examples in {seconds:.1f} s ({total / seconds:,.0f} a second)")
    columns = read_columns(dataset, "test")
    return Evaluation(
        model=model_uri,
        dataset=dataset_uri,
        examples=total,
        seconds=seconds,
        classes=dataset.classes,
        mistakes=mistakes.mistakes(dataset),
        column_areas=single_columns(columns, labels) if len(dataset.classes) == 2 else {},
        slices=slices(dataset, columns, labels, probabilities, slice_columns),
        answers=Answers(labels, probabilities),
        keys=keys,
        **_measure(labels, probabilities, dataset.classes),
    )


def _measure(labels: np.ndarray, probabilities: np.ndarray, classes: list[str]) -> dict[str, Any]:
    """Return the fields of Evaluation that depend on labels and probabilities alone."""
    predicted = probabilities.argmax(axis=1)
    correct = predicted == labels
    k = 5 if len(classes) > 5 else 3 if len(classes) > 3 else None
    error, bins = metrics.calibration(correct, probabilities.max(axis=1))
    rankings = [metrics.rank(labels == one, probabilities[:, one]) for one in range(len(classes))]
    rows = metrics.per_class(labels, probabilities, classes, rankings)
    judged = rows[1:] if len(classes) == 2 else rows
    roc_curves, pr_curves = metrics.curves(classes, rankings)
    matrix = confusion_matrix(labels, predicted, labels=range(len(classes)))
    binary = len(classes) == 2 and rows[1].roc_auc is not None
    return {
        "accuracy": float(correct.mean()),
        "accuracy_interval": metrics.wilson_interval(int(correct.sum()), len(labels)),
        "top_k": k,
        "top_k_accuracy": metrics.top_k_accuracy(labels, probabilities, k) if k else None,
        "log_loss": float(log_losses(labels, probabilities).mean()),
        "precision": metrics.mean([row.precision for row in rows]),
        "recall": metrics.mean([row.recall for row in rows]),
        "f1": metrics.mean([row.f1 for row in rows]),
        "roc_auc": metrics.mean([row.roc_auc for row in judged]),
        "pr_auc": metrics.mean([row.pr_auc for row in judged]),
        "expected_calibration_error": error,
        "brier_score": metrics.brier_score(labels, probabilities),
        "baseline_accuracy": max(row.support for row in rows) / len(labels),
        "per_class": rows,
        "confusion_matrix": matrix.tolist(),
        "calibration": bins,
        "roc_curves": roc_curves,
        "pr_curves": pr_curves,
        "roc": metrics.roc_curve(labels == 1, probabilities[:, 1]) if binary else None,
    }
