"""Evaluate a SavedModel on a held-out split.

    evaluation = evaluate("gs://bucket/run/model", "gs://bucket/records")
    evaluation.accuracy, evaluation.accuracy_interval  # 0.972, (0.949, 0.985)

Only the SavedModel and the records are read, so the evaluation covers exactly what will be served:
the model's parsing, decoding, preprocessing and class names.
"""

import dataclasses
import functools
import time
from typing import Any

import numpy as np

from trainer.data import schema
from trainer.errors import InputError
from trainer.evaluation.prediction import ServedModel, predict
from trainer.metrics import classifier
from trainer.metrics.baseline import Baseline, compare_with_constants
from trainer.metrics.comparison import log_losses
from trainer.metrics.disk_columns import Answers, ColumnValues
from trainer.metrics.leakage import compute_column_aucs
from trainer.metrics.mistakes import Mistake, MostConfident
from trainer.metrics.slices import Slices, slice_answers

MISTAKES_KEPT = 24
_SCALARS = (
    "log_loss", "precision", "recall", "f1", "roc_auc", "pr_auc", "expected_calibration_error",
    "brier_score", "examples",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation of a model; a metric that is undefined on the split is None."""

    model: str  # URI
    dataset: str  # URI
    examples: int
    seconds: float  # duration of the prediction, without loading the model
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
    # Areas of the second of two classes; with more classes, means of each class against the rest.
    roc_auc: float | None
    pr_auc: float | None
    expected_calibration_error: float
    brier_score: float  # 0 to 1 for two classes, 0 to 2 for more
    per_class: list[classifier.ClassMetrics]
    confusion_matrix: list[list[int]]  # rows are true classes, columns are predicted classes
    calibration: list[classifier.Bin]
    roc_curves: list[classifier.Curve]
    pr_curves: list[classifier.Curve]  # a precision is valid from the previous recall to its own
    roc: classifier.RocCurve | None  # of the second of two classes
    mistakes: list[Mistake]  # most confident first
    slices: list[Slices]
    column_areas: dict[str, float]  # ROC AUC of each column of a table alone; see leakage.py
    answers: Answers

    @functools.cached_property
    def baseline(self) -> Baseline:
        """Return the best constant answers, compared with the model."""
        return compare_with_constants(
            self.confusion_matrix, log_loss=self.log_loss, classes=self.classes
        )

    def scalars(self) -> dict[str, float]:
        """Return the defined metrics that are single numbers, by name."""
        low, high = self.accuracy_interval
        values = {
            "accuracy": self.accuracy,
            "accuracy_low": low,
            "accuracy_high": high,
            f"top_{self.top_k}_accuracy": self.top_k_accuracy,
            **{name: getattr(self, name) for name in _SCALARS},
            "baseline_accuracy": self.baseline.accuracy,
        }
        return {name: float(value) for name, value in values.items() if value is not None}


def evaluate(model_uri: str, dataset_uri: str) -> Evaluation:
    """Evaluate the SavedModel at `model_uri` on the test split of the dataset at `dataset_uri`.

    The model has the signature `serving_examples` of trainer/training/export.py. Answers and
    columns are on the local disk: for each example its key, 12 bytes, 4 bytes per class, and 4 or
    8 bytes per column. Memory grows by 4 bytes per example while a class is ranked, and by 8 while
    a column is ranked.
    """
    dataset = schema.load_dataset(dataset_uri)
    total = dataset.splits["test"].examples
    if not total:
        raise InputError(f"the test split of {dataset_uri} is empty; change split_fractions")
    values = ColumnValues(dataset, "test")
    model = ServedModel(model_uri)
    start = time.monotonic()
    mistakes = MostConfident(MISTAKES_KEPT)
    answers = predict(model, dataset, mistakes, values)
    seconds = time.monotonic() - start
    print(f"Evaluated {total:,} test examples in {seconds:.1f} s ({total / seconds:,.0f} a second)")
    return Evaluation(
        model=model_uri,
        dataset=dataset_uri,
        examples=total,
        seconds=seconds,
        classes=dataset.classes,
        mistakes=mistakes.list_mistakes(dataset),
        column_areas=compute_column_aucs(values, answers, len(dataset.classes)),
        slices=slice_answers(values, answers),
        answers=answers,
        **_measure(answers, dataset.classes),
    )


def _measure(answers: Answers, classes: list[str]) -> dict[str, Any]:
    """Return the fields of Evaluation that depend on labels and probabilities alone."""
    n, matrix = answers.rows, np.zeros((len(classes), len(classes)), int)
    k = None
    if len(classes) > 3:
        k = 5 if len(classes) > 5 else 3
    within, losses, errors, sums = 0, 0.0, 0.0, np.zeros((3, classifier.CALIBRATION_BINS))
    for labels, probabilities in answers.blocks():
        predicted, examples = probabilities.argmax(axis=1), np.arange(len(labels))
        np.add.at(matrix, (labels, predicted), 1)
        within += int((classifier.label_ranks(labels, probabilities) < k).sum()) if k else 0
        losses += float(log_losses(probabilities[examples, labels]).sum())
        errors += classifier.squared_errors(labels, probabilities)
        confidence = probabilities[examples, predicted]
        sums += classifier.calibration_sums(predicted == labels, confidence)
    error, bins = classifier.calibration(sums)
    correct = int(matrix.trace())
    rankings = [answers.rank(number) for number in range(len(classes))]
    rows = classifier.compute_class_metrics(classes, matrix, rankings)
    ranked_rows = rows[1:] if len(classes) == 2 else rows
    roc_curves, pr_curves = classifier.curves(classes, rankings)
    second = rankings[1] if len(classes) == 2 else None
    return {
        "accuracy": correct / n,
        "accuracy_interval": classifier.wilson_interval(correct, n),
        "top_k": k,
        "top_k_accuracy": within / n if k else None,
        "log_loss": losses / n,
        "precision": classifier.mean([row.precision for row in rows]),
        "recall": classifier.mean([row.recall for row in rows]),
        "f1": classifier.mean([row.f1 for row in rows]),
        "roc_auc": classifier.mean([row.roc_auc for row in ranked_rows]),
        "pr_auc": classifier.mean([row.pr_auc for row in ranked_rows]),
        "expected_calibration_error": error,
        "brier_score": errors / n,
        "per_class": rows,
        "confusion_matrix": matrix.tolist(),
        "calibration": bins,
        "roc_curves": roc_curves,
        "pr_curves": pr_curves,
        "roc": second.roc if second else None,
    }
