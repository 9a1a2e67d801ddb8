"""Classification: a label is one of several classes, and an answer is a probability for each."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset
from trainer.metrics import COMPARISONS, classifier
from trainer.metrics.baseline import Baseline, compare_with_constants
from trainer.metrics.classifier import ClassMetrics
from trainer.metrics.comparison import Pairs, Scores, log_losses
from trainer.metrics.disk_columns import ColumnValues, spans
from trainer.metrics.intervals import Share, wilson_interval
from trainer.metrics.leakage import RANKED, compute_column_aucs
from trainer.metrics.slices import Cut, Figures, measure_slices
from trainer.tasks.base import Evaluation, Finding, Outputs, Task
from trainer.tasks.probabilities import (
    ProbabilityAnswers,
    color_cells,
    draw_class_curves,
    draw_precision_over_recall,
    list_balance,
)
from vertex.errors import InputError
from vertex.formats import percent

TIE_TOLERANCE = 1e-6  # between the largest probability and the probability of the named label
_SUM_TOLERANCE = 1e-3  # for a softmax that was computed in bfloat16 and cast to float32
_CONTRADICTION = 0.005
"""Difference of two accuracies of a model on the same records that no machine explains."""
_SCALARS = (
    "log_loss", "precision", "recall", "f1", "roc_auc", "pr_auc", "expected_calibration_error",
    "brier_score", "examples",
)  # fmt: skip

# Shares above which something becomes a finding.
_OVERFITTING = 0.05
_MISCALIBRATION = 0.05
_SINGLE_COLUMN = 0.9
"""Share of the model's AUC above chance that a column must reach to be a finding."""
_MIN_AUC = 0.75
"""Least AUC of such a column."""
_MATRIX_SHOWN = 20
_CONFUSIONS_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Labels are indices into the classes, outputs are logits; the loss is cross-entropy in nats.

    The loss excludes label smoothing and class weights, so that training and validation can be
    compared.
    """

    metrics = ("accuracy",)
    rising = frozenset(metrics)
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

    def open_answers(self, rows: int) -> "ClassAnswers":
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
        classes = self.dataset.classes
        return ClassEvaluation(
            answers=answers,
            classes=classes,
            column_areas=compute_column_aucs(values, answers, len(classes)),
            slices=measure_slices(
                values, lambda cut: _measure_groups(cut, values, answers), "accuracy"
            ),
            **_measure(answers, classes),
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


class ClassAnswers(ProbabilityAnswers):
    """True classes and probabilities of a split's examples.

    Further columns: `label` and `predicted` (int32), `label_probability` (float32).
    """

    loss = "log_loss"

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassEvaluation(Evaluation):
    """The evaluation of a classifier."""

    template = "classification.html.j2"
    schema = "classification_metrics_1.0.0"
    comparisons = COMPARISONS["log_loss"]

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
    per_class: list[ClassMetrics]
    # Examples; rows are true classes, columns are predicted classes.
    confusion_matrix: list[list[int]]
    confusion_weights: np.ndarray  # sums of their weights and of the squares, [2, classes, classes]
    calibration: list[classifier.Bin]
    roc_curves: list[classifier.Curve]
    pr_curves: list[classifier.Curve]  # a precision is valid from the previous recall to its own
    roc: classifier.RocCurve | None  # of the second of two classes
    answers: ClassAnswers
    column_areas: dict[str, float]  # ROC AUC of each column of a table alone; see leakage.py

    @property
    def headline(self) -> tuple[str, float]:
        return "accuracy", self.accuracy

    @functools.cached_property
    def baseline(self) -> Baseline:
        return compare_with_constants(
            self.confusion_weights,
            log_loss=self.log_loss,
            classes=self.classes,
            largest=self.answers.largest_weight,
        )

    @property
    def mean_confidence(self) -> float:
        """Return the mean confidence of all predictions, from the calibration bins."""
        total = sum((item.confidence or 0.0) * item.count for item in self.calibration)
        return total / sum(item.count for item in self.calibration)

    def compare_with_baseline(self, confidence: float) -> tuple[bool, str]:
        baseline, chance = self.baseline, 1 - confidence + 1e-12
        commonest = f"always answering {baseline.commonest!r} ({baseline.accuracy:.4f})"
        if baseline.accuracy_p_value <= chance:
            return True, f"better than {commonest}"
        if baseline.log_loss_p_value <= chance:
            return True, (
                f"log loss {self.log_loss:.4f} better than that of the class frequencies "
                f"({baseline.log_loss:.4f})"
            )
        return False, f"not better than {commonest}"

    def explain_not_above(self, confidence: float) -> str:
        baseline = self.baseline
        return (
            f"not better than always answering {baseline.commonest!r} at {100 * confidence:g}% "
            f"confidence: accuracy {self.accuracy:.4f} against {baseline.accuracy:.4f}, log loss "
            f"{self.log_loss:.4f} against {baseline.log_loss:.4f} of the class frequencies, "
            f"p {baseline.p_value:.3g}"
        )

    def scalars(self) -> dict[str, float]:
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

    def find_floor(self, gate: Mapping[str, Any]) -> float:
        return max(gate["min_accuracy"], gate["floors"].get("accuracy", 0.0))

    def find_missed_floors(self, gate: Mapping[str, Any]) -> list[str]:
        missed, least, by_class = [], gate["min_accuracy"], gate["class_floors"]
        if self.accuracy < least:
            missed.append(f"accuracy {self.accuracy:.4f} is below min_accuracy {least:.4f}")
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
            "auPrc": self.pr_auc,
            "auRoc": self.roc_auc,
            "logLoss": self.log_loss,
            "confidenceMetrics": classifier.operating_points(self.answers.blocks()),
            "confusionMatrix": {"annotationSpecs": specs, "rows": self.confusion_matrix},
        }
        return {name: value for name, value in metrics.items() if value is not None}

    def log_to_console(self, classification: Any) -> str:
        classification.log_confusion_matrix(self.classes, self.confusion_matrix)
        if curve := self.roc:
            classification.log_roc_curve(curve.fpr, curve.tpr, curve.thresholds)
        return f"the confusion matrix of {len(self.classes):,} classes"

    def find_findings(self) -> Iterator[Finding]:
        yield from self._find_leaking_column()
        yield from self.find_uncertainty(*self.accuracy_interval)
        yield from self._find_weak_classes()
        yield from self._find_miscalibration()
        accuracy = self.accuracy
        yield from self.find_weak_slice("accuracy", accuracy, math.sqrt(accuracy * (1 - accuracy)))

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
            for row, line in enumerate(self.confusion_matrix)
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
        areas, roc_auc, many = self.column_areas, self.roc_auc, len(self.classes) > 2
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
        accuracy, confidence = self.accuracy, self.mean_confidence
        if self.expected_calibration_error <= _MISCALIBRATION:
            return
        # Even a well-calibrated model has an error on a small split; ignore gaps within the
        # interval.
        low, high = self.accuracy_interval
        if abs(confidence - accuracy) <= max(high - accuracy, accuracy - low):
            return
        yield Finding("miscalibrated", True, {"confidence": confidence, "accuracy": accuracy})

    def page(self, dataset: Dataset) -> dict[str, Any]:
        """Return the drawings of confusion, curves and calibration, and the table of classes."""
        weakest_first = sorted(self.per_class, key=lambda row: 2.0 if row.f1 is None else row.f1)
        counts = [split.class_counts for split in dataset.splits.values() if split.examples]
        return {
            "right": sum(row.right for row in self.per_class),
            "confusion": self._draw_confusion(),
            "curves": self._draw_curves(),
            "calibration": self._draw_calibration(),
            "balance": list_balance(dataset.classes, counts, [*map(sum, counts)]),
            "per_class": weakest_first if len(self.classes) > _MATRIX_SHOWN else self.per_class,
        }

    def _draw_confusion(self) -> dict[str, Any] | None:
        """Return the matrix as a picture, with common mistakes; None for up to 20 classes."""
        matrix = np.array(self.confusion_matrix)
        if len(matrix) <= _MATRIX_SHOWN:
            return None
        shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
        wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
        order = np.argsort(-wrong, axis=None, kind="stable")[:_CONFUSIONS_SHOWN]
        commonest = []
        for true, predicted in (divmod(int(index), len(matrix)) for index in order):
            if times := int(wrong[true, predicted]):
                names = self.classes[true], self.classes[predicted]
                commonest.append((*names, times, shares[true, predicted]))
        return {"picture": color_cells(shares), "commonest": commonest}

    def _draw_curves(self) -> list[dict[str, Any]]:
        """Draw ROC and precision over recall; empty if undefined."""
        if not self.roc_curves:
            return []
        rates = "false positive rate", "true positive rate"
        roc = draw_class_curves("ROC", self.roc_curves, *rates)
        return [roc, draw_precision_over_recall(self.pr_curves)]

    def _draw_calibration(self) -> Any:
        """Draw the reliability diagram."""
        from trainer.drawing import plots  # imports Matplotlib

        error = percent(self.expected_calibration_error)
        description = f"Accuracy over confidence; the expected calibration error is {error}"
        return plots.draw_reliability(self.calibration, description)


def _measure(answers: ClassAnswers, classes: list[str]) -> dict[str, Any]:
    """Return the fields of ClassEvaluation that depend on labels and probabilities alone."""
    n, shape = answers.rows, (len(classes), len(classes))
    matrix, confusion = np.zeros(shape, int), np.zeros((2, *shape))
    k = None
    if len(classes) > 3:
        k = 5 if len(classes) > 5 else 3
    share, sums = Share(), np.zeros((3, classifier.CALIBRATION_BINS))
    within = losses = errors = 0.0
    for labels, probabilities, weights in answers.blocks():
        predicted, examples = probabilities.argmax(axis=1), np.arange(len(labels))
        np.add.at(matrix, (labels, predicted), 1)
        for cells, weight in zip(confusion, (weights, weights**2), strict=True):
            np.add.at(cells, (labels, predicted), weight)
        share.add(predicted == labels, weights)
        if k:
            within += float(weights @ (classifier.label_ranks(labels, probabilities) < k))
        losses += float(weights @ log_losses(probabilities[examples, labels]))
        errors += float(weights @ classifier.squared_errors(labels, probabilities))
        confidence = probabilities[examples, predicted]
        sums += classifier.calibration_sums(predicted == labels, confidence, weights)
    error, bins = classifier.calibration(sums)
    rankings = [answers.rank(number) for number in range(len(classes))]
    counts, of_classes = (
        np.stack([one.sum(axis=1), one.sum(axis=0), one.diagonal()])
        for one in (matrix, confusion[0])
    )
    rows = classifier.compute_class_metrics(classes, rankings, counts=counts, weights=of_classes)
    ranked = slice(1 if len(classes) == 2 else 0, None)  # Of two, the second is the positive one.
    ranked_rows = rows[ranked]
    roc_curves, pr_curves = classifier.curves(classes[ranked], rankings[ranked])
    second = rankings[1] if len(classes) == 2 else None
    return {
        "accuracy": share.value,
        "accuracy_interval": share.interval,
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
        "confusion_weights": confusion,
        "calibration": bins,
        "roc_curves": roc_curves,
        "pr_curves": pr_curves,
        "roc": second.roc if second else None,
    }


def _measure_groups(
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


def _is_mostly_wrong(right: int, total: int) -> bool:
    """Return True if none of `total` is right, or the share that is right is surely below half."""
    return right == 0 or wilson_interval(right, total)[1] < 0.5
