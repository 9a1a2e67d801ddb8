"""Classification: a label is one of several classes, and an answer is a probability for each."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset
from trainer.metrics import classifier
from trainer.metrics.baseline import Baseline, compare_with_constants
from trainer.metrics.class_sums import ClassSums
from trainer.metrics.classifier import ClassMetrics
from trainer.metrics.comparison import Pairs, Scores, log_losses
from trainer.metrics.disk_columns import ColumnValues
from trainer.metrics.intervals import wilson_interval
from trainer.metrics.leakage import RANKED, compute_column_aucs
from trainer.metrics.metric import compute_metrics
from trainer.metrics.slices import measure_slices
from trainer.tasks.base import Evaluation, Finding, Outputs, Task
from trainer.tasks.class_answers import ClassAnswers, measure_groups
from trainer.tasks.class_plots import (
    draw_calibration,
    draw_confusion,
    draw_roc_and_pr,
    list_balance,
)
from trainer.tasks.label_kinds import CLASSIFICATION
from vertex.errors import InputError

TIE_TOLERANCE = 1e-6  # between the largest probability and the probability of the named label
_SUM_TOLERANCE = 1e-3  # for a softmax that was computed in bfloat16 and cast to float32
_CONTRADICTION = 0.005
"""Difference of two accuracies of a model on the same records that no machine explains."""

# Shares above which something becomes a finding.
_OVERFITTING = 0.05
_MISCALIBRATION = 0.05
_SINGLE_COLUMN = 0.9
"""Share of the model's AUC above chance that a column must reach to be a finding."""
_MIN_AUC = 0.75
"""Least AUC of such a column."""
_MATRIX_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Labels are indices into the classes, outputs are logits; the loss is cross-entropy in nats.

    The loss excludes label smoothing and class weights, so that training and validation can be
    compared.
    """

    metrics = CLASSIFICATION.metrics
    answered = ("probabilities", "label")

    @property
    def outputs(self) -> int:
        return len(self.dataset.classes)

    def scores(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
        return [losses, tf.cast(tf.equal(tf.argmax(outputs, -1), labels), tf.float32)]

    def make_objective(self, config: Any) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        weights, smoothing = self._weigh_classes(config.class_weights), config.label_smoothing

        def objective(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
            targets = tf.one_hot(labels, self.outputs)
            targets = targets * (1 - smoothing) + smoothing / self.outputs
            losses = tf.nn.softmax_cross_entropy_with_logits(targets, outputs)
            return losses * tf.gather(weights, labels)

        return objective

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `probabilities`, float32 [n, classes], and `label`, string [n]: the likeliest."""
        probabilities = tf.nn.softmax(tf.cast(outputs, tf.float32))
        best = tf.argmax(probabilities, axis=-1)
        return {"probabilities": probabilities, "label": tf.gather(self.dataset.classes, best)}

    def check_answers(self, outputs: Outputs, model: str) -> None:
        values, dataset = outputs["probabilities"], self.dataset
        if values.ndim != 2 or values.shape[1] != len(dataset.classes):
            raise InputError(
                f"the model at {model} returns probabilities of shape {list(values.shape)}, but "
                f"{dataset.uri} has {len(dataset.classes)} classes: it was trained on other data"
            )
        if not np.isfinite(values).all():
            raise InputError(
                f"the model at {model} returns probabilities that are NaN or infinite: its "
                "training diverged; lower learning_rate, or set gradient_clip_norm"
            )
        sums = values.sum(axis=1)
        worst = sums[np.abs(sums - 1).argmax()]
        if abs(worst - 1) > _SUM_TOLERANCE or values.min() < 0:
            raise InputError(
                f"the model at {model} returns probabilities that add up to {worst:.4g} (the "
                f"least is {values.min():.4g}); its output must be a softmax"
            )
        self._check_names(outputs["label"].tolist(), values, model)

    def _check_names(self, names: list[bytes], values: np.ndarray, model: str) -> None:
        """Raise InputError if class names or their order differ from the dataset's."""
        predicted = self._find_classes(names)
        of_name = values[np.arange(len(values)), predicted]
        wrong = np.flatnonzero((predicted < 0) | (of_name < values.max(axis=1) - TIE_TOLERANCE))
        if len(wrong):
            name, best = names[wrong[0]], int(values[wrong[0]].argmax())
            raise InputError(
                f"the model at {model} predicts {name.decode(errors='replace')!r} where "
                f"{self.dataset.uri} has {self.dataset.classes[best]!r}: it was trained on "
                "other classes, or on another order of them"
            )

    def _find_classes(self, names: Sequence[bytes]) -> np.ndarray:
        """Return the indices of classes, int [n]; -1 for unknown ones."""
        indices = {name.encode(): index for index, name in enumerate(self.dataset.classes)}
        return np.array([indices.get(name, -1) for name in names])

    def open_answers(self, rows: int) -> ClassAnswers:
        return ClassAnswers(rows, self.dataset.classes)

    def score_champion(self, labels: np.ndarray, outputs: Outputs) -> tuple[Scores, bool]:
        """Score class names; an example of a class that the champion does not know is wrong.

        Losses are undefined if its classes or their order differ.
        """
        predicted = self._find_classes(outputs["label"].tolist())
        probabilities = outputs["probabilities"]
        correct, rows = predicted == labels, np.arange(len(labels))
        knows_a_class = bool((predicted >= 0).any())
        if probabilities.shape[1] != self.outputs or (predicted < 0).any():
            return Scores(correct, None), knows_a_class
        # A tie may be resolved either way.
        if (probabilities[rows, predicted] < probabilities.max(axis=1) - TIE_TOLERANCE).any():
            return Scores(correct, None), knows_a_class
        return Scores(correct, log_losses(probabilities[rows, labels])), knows_a_class

    def find_contradiction(self, pairs: Pairs, recorded: Mapping[str, Any]) -> str:
        rows = recorded.get("confusionMatrix", {}).get("rows", [])
        total = sum(map(sum, rows))
        if not total:
            return ""
        before = sum(row[index] for index, row in enumerate(rows)) / total
        accuracy = float(pairs.right[:, 1].sum()) / pairs.examples
        # Another kind of machine may answer a few examples differently.
        if abs(accuracy - before) <= 1 / pairs.examples + _CONTRADICTION:
            return ""
        return (
            f"its accuracy on these records was {before:.4f} when it was registered, and now is "
            f"{accuracy:.4f}"
        )

    def evaluate(self, answers: Any, values: ColumnValues, **fields: Any) -> "ClassEvaluation":
        sums, classes = ClassSums(answers), self.dataset.classes
        return ClassEvaluation(
            declared=self.metrics,
            metrics=compute_metrics(self.metrics, sums),
            sums=sums,
            classes=classes,
            per_class=sums.per_class,
            column_areas=compute_column_aucs(values, answers, len(classes)),
            slices=measure_slices(
                values, lambda cut: measure_groups(cut, values, answers), "accuracy"
            ),
            **fields,
        )

    def is_overfitted(self, train: float, validation: float) -> bool:
        split, best = self.dataset.splits.get("validation"), validation
        if split and split.examples:
            # The gap may be chance on the validation split.
            best = wilson_interval(validation * split.examples, split.examples)[1]
        return train - validation > _OVERFITTING and train > best

    def _weigh_classes(self, rule: str) -> list[float]:
        """Return the weight of each class in the objective.

        "balanced" is scikit-learn's rule: examples / (classes x examples of the class). The weights
        are Python numbers, because they become constants of a step that runs on another machine.
        """
        counts = self.dataset.splits["train"].class_counts
        if rule == "none":
            return [1.0] * len(counts)
        return [sum(counts) / (len(counts) * max(1, count)) for count in counts]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassEvaluation(Evaluation):
    """The evaluation of a classifier."""

    template = "classification.html.j2"
    schema = "classification_metrics_1.0.0"
    constant = "accuracy"

    classes: list[str]  # in the order of label indices
    per_class: list[ClassMetrics]
    sums: ClassSums
    column_areas: dict[str, float]  # ROC AUC of each column of a table alone; see leakage.py

    @functools.cached_property
    def baseline(self) -> Baseline:
        return compare_with_constants(
            self.sums.confusion_weights,
            log_loss=self.metrics["log_loss"],
            classes=self.classes,
            largest=self.answers.largest_weight,
        )

    @property
    def mean_confidence(self) -> float:
        """Return the mean confidence of all predictions, from the calibration bins."""
        bins = self.sums.calibration
        total = sum((item.confidence or 0.0) * item.count for item in bins)
        return total / sum(item.count for item in bins)

    def compare_with_baseline(self, confidence: float) -> tuple[bool, str]:
        baseline, log_loss, chance = self.baseline, self.metrics["log_loss"], 1 - confidence + 1e-12
        commonest = f"always answering {baseline.commonest!r} ({baseline.accuracy:.4f})"
        if baseline.accuracy_p_value <= chance:
            return True, f"better than {commonest}"
        if baseline.log_loss_p_value <= chance:
            return True, (
                f"log loss {log_loss:.4f} better than that of the class frequencies "
                f"({baseline.log_loss:.4f})"
            )
        return False, f"not better than {commonest}"

    def explain_not_above(self, confidence: float) -> str:
        baseline, log_loss = self.baseline, self.metrics["log_loss"]
        accuracy = self.metrics["accuracy"].value
        return (
            f"not better than always answering {baseline.commonest!r} at {100 * confidence:g}% "
            f"confidence: accuracy {accuracy:.4f} against {baseline.accuracy:.4f}, log loss "
            f"{log_loss:.4f} against {baseline.log_loss:.4f} of the class frequencies, "
            f"p {baseline.p_value:.3g}"
        )

    def find_floor(self, gate: Mapping[str, Any]) -> float:
        return max(gate["min_accuracy"], gate["floors"].get("accuracy", 0.0))

    def find_missed_floors(self, gate: Mapping[str, Any]) -> list[str]:
        missed, least, by_class = [], gate["min_accuracy"], gate["class_floors"]
        accuracy = self.metrics["accuracy"].value
        if accuracy < least:
            missed.append(f"accuracy {accuracy:.4f} is below min_accuracy {least:.4f}")
        for row in self.per_class:
            floor = by_class.get(row.name, gate["min_recall"])
            if row.recall is not None and row.recall < floor:
                missed.append(
                    f"recall of {row.name!r} {row.recall:.4f} is below its floor {floor:.4f}"
                )
            elif row.recall is None and row.name in by_class:
                missed.append(f"{row.name!r} has a floor, but no test example")
        return missed

    def registry_metrics(self) -> dict[str, Any]:
        specs = [{"id": str(index), "displayName": name} for index, name in enumerate(self.classes)]
        metrics = {
            "auPrc": self.metrics["pr_auc"],
            "auRoc": self.metrics["roc_auc"],
            "logLoss": self.metrics["log_loss"],
            "confidenceMetrics": classifier.operating_points(self.answers.blocks()),
            "confusionMatrix": {"annotationSpecs": specs, "rows": self.sums.confusion.tolist()},
        }
        return {name: value for name, value in metrics.items() if value is not None}

    def log_to_console(self, classification: Any) -> str:
        classification.log_confusion_matrix(self.classes, self.sums.confusion.tolist())
        if len(self.classes) == 2 and (ranking := self.sums.rankings[1]):
            curve = ranking.roc
            classification.log_roc_curve(curve.fpr, curve.tpr, curve.thresholds)
        return f"the confusion matrix of {len(self.classes):,} classes"

    def find_findings(self) -> Iterator[Finding]:
        yield from self._find_leaking_column()
        accuracy = self.metrics["accuracy"]
        yield from self.find_uncertainty(accuracy.low, accuracy.high)
        yield from self._find_weak_classes()
        yield from self._find_miscalibration()
        share = accuracy.value
        yield from self.find_weak_slice("accuracy", share, math.sqrt(share * (1 - share)))

    def _find_weak_classes(self) -> Iterator[Finding]:
        present = [row for row in self.per_class if row.recall is not None]
        weakest = min(present, key=lambda row: (row.recall or 0.0, -row.support))
        if weakest.recall is None or weakest.recall == 1:
            yield Finding("all_recognized", False, {})
            return
        counts = {"right": weakest.right, "of": weakest.support}
        values: dict[str, Any] = {"name": weakest.name, **counts}
        others = sum(_is_mostly_wrong(row.right, row.support) for row in present) - 1
        yield Finding("weakest_class", others >= 0, {**values, "others": others})
        times, true, predicted = max(
            (cell, row, column)
            for row, line in enumerate(self.sums.confusion.tolist())
            for column, cell in enumerate(line)
            if row != column
        )
        if times > 1:
            pair = {"true": self.classes[true], "predicted": self.classes[predicted]}
            yield Finding("commonest_mistake", False, {**pair, "times": times})
        # A class that is never predicted has precision 0, but no answer to be unreliable.
        answered = [row for row in present if row.predicted]
        least_precise = min(
            answered, key=lambda row: (row.precision or 0.0, -row.predicted), default=None
        )
        if least_precise and least_precise.precision is not None and least_precise.precision < 1:
            row = least_precise
            values = {"name": row.name, "right": row.right, "of": row.predicted}
            is_wrong = _is_mostly_wrong(row.right, row.predicted)
            yield Finding("least_reliable", is_wrong, values)

    def _find_leaking_column(self) -> Iterator[Finding]:
        """Yield the column that separates the classes almost as well as the model, if any does."""
        areas, roc_auc, many = self.column_areas, self.metrics["roc_auc"], len(self.classes) > 2
        if not areas or roc_auc is None:
            return
        if many:
            commonest = sorted(self.per_class, key=lambda row: -row.support)[:RANKED]
            total = sum(row.support for row in commonest)
            roc_auc = sum(row.support * (row.roc_auc or 0.0) for row in commonest) / total
        column = max(areas, key=areas.__getitem__)
        if areas[column] < max(_MIN_AUC, 0.5 + _SINGLE_COLUMN * (roc_auc - 0.5)):
            return
        values = {"column": column, "area": areas[column], "roc_auc": roc_auc, "many": many}
        yield Finding("single_column", True, values)

    def _find_miscalibration(self) -> Iterator[Finding]:
        accuracy, confidence = self.metrics["accuracy"], self.mean_confidence
        if self.metrics["expected_calibration_error"] <= _MISCALIBRATION:
            return
        # Even a well-calibrated model has an error on a small split; ignore gaps within the
        # interval.
        share, low, high = accuracy.value, accuracy.low, accuracy.high
        if abs(confidence - share) <= max(high - share, share - low):
            return
        yield Finding("miscalibrated", True, {"confidence": confidence, "accuracy": share})

    def page(self, dataset: Dataset) -> dict[str, Any]:
        """Return the drawings of confusion, curves and calibration, and the table of classes."""
        weakest_first = sorted(self.per_class, key=lambda row: 2.0 if row.f1 is None else row.f1)
        counts = [split.class_counts for split in dataset.splits.values() if split.examples]
        is_large = len(self.classes) > _MATRIX_SHOWN
        error = self.metrics["expected_calibration_error"]
        return {
            "right": sum(row.right for row in self.per_class),
            "confusion": draw_confusion(self.sums.confusion, self.classes) if is_large else None,
            "curves": draw_roc_and_pr(*self.sums.curves(self.sums.positive)),
            "mean_is_drawn": len(self.classes) > classifier.CURVES_SHOWN,
            "calibration": draw_calibration(self.sums.calibration, error),
            "balance": list_balance(dataset.classes, counts, [*map(sum, counts)]),
            "per_class": weakest_first if is_large else self.per_class,
        }


def _is_mostly_wrong(right: int, total: int) -> bool:
    """Return True if none of `total` is right, or the share that is right is surely below half."""
    return right == 0 or wilson_interval(right, total)[1] < 0.5
