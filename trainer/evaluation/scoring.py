"""Evaluate a SavedModel on a held-out split.

    evaluation = evaluate("gs://bucket/run/model", "gs://bucket/records")
    evaluation.accuracy, evaluation.accuracy_interval  # 0.972, (0.949, 0.985)

Only the SavedModel and the records are read, so the evaluation covers exactly what will serve:
the model's own parsing, decoding, preprocessing and class names.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
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
from trainer.evaluation.ranking import rank
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
    """The evaluation of a model; a metric that the split leaves undefined is None.

    Attributes:
        model, dataset: URIs.
        split: name of the split.
        examples: number of examples in the split.
        seconds: time of prediction, without loading the model.
        classes: class names, in the order of label indices.
        accuracy_interval: 95% interval of accuracy (Wilson).
        top_k, top_k_accuracy: k is 5 or 3; None for three classes or fewer.
        log_loss: in nats.
        precision, recall, f1: means over the classes that have examples in the split.
        roc_auc, pr_auc: area of the second of two classes; with more, the mean of each class
            against the rest, over the classes that have examples in the split.
        expected_calibration_error: over 15 bins of equal width.
        brier_score: 0 to 1 for two classes, 0 to 2 for more.
        baseline_accuracy: accuracy of always predicting the split's most common class.
        per_class: one row per class.
        confusion_matrix: counts; rows are true classes, columns predicted ones.
        calibration: the bins of the calibration error.
        roc_curves, pr_curves: curves to draw, of at most 200 points each; a precision
            holds from the previous recall up to its own.
        roc: ROC curve of the second of two classes, with finite, falling thresholds, at most
            200 points; None for more classes, or if one of the two has no example.
        mistakes: most confident first.
        slices: metrics of a table's slices by column.
        column_areas: ROC AUC of each single column of a table with two classes, by name.
        answers: labels and probabilities from which the metrics are computed.
        keys: keys of the examples, in the order of the answers.
    """

    model: str
    dataset: str
    split: str
    examples: int
    seconds: float
    classes: list[str]
    accuracy: float
    accuracy_interval: tuple[float, float]
    top_k: int | None
    top_k_accuracy: float | None
    log_loss: float
    precision: float
    recall: float
    f1: float
    roc_auc: float | None
    pr_auc: float | None
    expected_calibration_error: float
    brier_score: float
    baseline_accuracy: float
    per_class: list[metrics.ClassMetrics]
    confusion_matrix: list[list[int]]
    calibration: list[metrics.Bin]
    roc_curves: list[metrics.Curve]
    pr_curves: list[metrics.Curve]
    roc: metrics.RocCurve | None
    mistakes: list[Mistake]
    slices: list[Slices]
    column_areas: dict[str, float]
    answers: Answers
    keys: list[bytes]

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


def evaluate(
    model_uri: str,
    dataset_uri: str,
    *,
    split: str = "test",
    batch_size: int = 0,
    slice_columns: Sequence[str] = (),
    progress: Callable[[str], None] = print,
) -> Evaluation:
    """Evaluate the SavedModel at `model_uri` on a split of the data set at `dataset_uri`.

    Memory holds the probabilities (float32 [n, classes]) and the keys, never the images.

    Args:
        model_uri: a SavedModel with a signature `serving_examples` from `examples`
            (serialized tf.train.Example, string [n]) to `probabilities` (float32
            [n, classes]) and `label` (string [n], the most probable class).
        dataset_uri: a folder with dataset.json and its shards.
        split: train, validation or test.
        batch_size: examples per call of the model; 0: 256 images, or 4,096 rows.
        slice_columns: columns of a table to slice the split by; see
            `trainer.evaluation.slices.slices`.
        progress: called with a progress line every few seconds.

    Raises:
        InputError: the model, data set or split does not exist, the split is empty, its records
            can't be read, or the outputs are not probabilities of these classes.
    """
    dataset = schema.load(dataset_uri)
    if split not in dataset.splits:
        raise InputError(
            f"split={split!r} is not in {dataset_uri}; it has {', '.join(dataset.splits)}"
        )
    total = dataset.splits[split].examples
    if not total:
        raise InputError(
            f"the {split} split of {dataset_uri} has no example to evaluate on; "
            "give it a share in split_fractions"
        )
    model = ServedModel(model_uri)
    start = time.monotonic()
    batch_size = batch_size or (4096 if dataset.is_table else 256)
    mistakes = MostConfident(MISTAKES_KEPT)
    labels, probabilities, keys = predict(model, dataset, split, batch_size, mistakes, progress)
    seconds = time.monotonic() - start
    progress(
        f"Evaluated {total:,} {split} examples in {seconds:.1f} s ({total / seconds:,.0f} a second)"
    )
    columns = read_columns(dataset, split)
    return Evaluation(
        model=model_uri,
        dataset=dataset_uri,
        split=split,
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
    k = metrics.top_k_of(len(classes))
    error, bins = metrics.calibration(correct, probabilities.max(axis=1))
    rankings = rank(labels, probabilities)
    rows = metrics.per_class(labels, probabilities, classes, rankings)
    judged = rows[1:] if len(classes) == 2 else rows
    roc_curves, pr_curves = metrics.curves(rows, rankings)
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
