"""Several labels: an example has any number of classes, and an answer gives any number of them."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset
from trainer.metrics import label_sets
from trainer.metrics.classifier import ClassMetrics
from trainer.metrics.comparison import Scores, sign_flip_test
from trainer.metrics.disk_columns import ColumnValues
from trainer.metrics.label_sets import (
    ConstantSums,
    LabelSums,
    OutputCounts,
    example_f1,
    label_losses,
)
from trainer.metrics.metric import compute_metrics
from trainer.metrics.slices import Figures, measure_slices
from trainer.tasks.base import Evaluation, Finding, Outputs, Task
from trainer.tasks.class_answers import ProbabilityAnswers
from trainer.tasks.class_plots import color_cells, draw_precision_over_recall, list_balance
from trainer.tasks.label_kinds import MULTILABEL
from vertex.errors import InputError

SEPARATOR = ";"
"""Text between the labels of an example in predictions.csv and the report."""
_PAIRS_SHOWN = 10

# Shares above which something becomes a finding.
_OVERFITTING = 0.1


@dataclasses.dataclass(frozen=True)
class Multilabel(Task):
    """Labels are 0 or 1 for each class, int64 [n, classes]; outputs are logits.

    The loss is the sum of the classes' binary cross-entropies, in nats: the negative log-likelihood
    of an example's labels. `example_f1` is measured with probabilities of at least one half.
    """

    thresholds: tuple[float, ...] = ()  # of outputs, by class; empty: 0, a probability of one half

    metrics = MULTILABEL.metrics
    answered = ("probabilities", "labels")

    @property
    def outputs(self) -> int:
        return len(self.dataset.classes)

    def scores(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        labels, given = tf.cast(labels, tf.float32), tf.cast(outputs >= 0, tf.float32)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs)
        hits, sizes = tf.reduce_sum(labels * given, 1), tf.reduce_sum(labels + given, 1)
        f1 = tf.where(sizes > 0, 2 * hits / tf.maximum(sizes, 1.0), 1.0)
        return [tf.reduce_sum(losses, axis=1), f1]

    def make_objective(self, config: Any) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        return lambda labels, outputs: self.scores(labels, outputs)[0]

    def calibrate(
        self, validated: Iterator[tuple[np.ndarray, tf.Tensor, np.ndarray]]
    ) -> "Multilabel":
        """Choose the labels' thresholds, those with the highest micro F1 in validation."""
        counts = OutputCounts(self.outputs)
        for labels, outputs, weights in validated:
            counts.add(labels, np.asarray(outputs, np.float32), weights)
        return dataclasses.replace(self, thresholds=tuple(counts.choose_thresholds().tolist()))

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `probabilities`, float32 [n, classes], and `labels`, string [n, classes].

        A label that is not given is "" in its place.
        """
        outputs = tf.cast(outputs, tf.float32)
        thresholds = tf.constant(self.thresholds or [0.0] * self.outputs)
        labels = tf.where(outputs >= thresholds, tf.constant([self.dataset.classes]), "")
        return {"probabilities": tf.sigmoid(outputs), "labels": labels}

    def check_answers(self, outputs: Outputs, model: str) -> None:
        classes, values = self.dataset.classes, outputs["probabilities"]
        if values.ndim != 2 or values.shape[1] != len(classes):
            raise InputError(
                f"the model at {model} returns probabilities of shape {list(values.shape)}, but "
                f"{self.dataset.uri} has {len(classes)} labels: it was trained on other data"
            )
        if not (np.isfinite(values) & (values >= 0) & (values <= 1)).all():
            raise InputError(
                f"the model at {model} returns probabilities that are not from 0 to 1: its "
                "training diverged; lower learning_rate, or set gradient_clip_norm"
            )
        for index, (name, column) in enumerate(zip(classes, outputs["labels"].T, strict=True)):
            other = set(column.tolist()) - {b"", name.encode()}
            if other:
                raise InputError(
                    f"the model at {model} answers {min(other).decode(errors='replace')!r} where "
                    f"{self.dataset.uri} has label {index}, {name!r}: it was trained on other "
                    "labels, or on another order of them"
                )

    def open_answers(self, rows: int) -> "LabelAnswers":
        return LabelAnswers(rows, self.dataset.classes)

    def score_champion(self, labels: np.ndarray, outputs: Outputs) -> tuple[Scores, bool]:
        """Score names of labels; a label that the dataset does not have is wrong."""
        indices = {name.encode(): index for index, name in enumerate(self.dataset.classes)}
        given, unknown = np.zeros(labels.shape, bool), np.zeros(len(labels), int)
        for column in outputs["labels"].T:
            for name in {*column.tolist()} - {b""}:
                if name in indices:
                    given[:, indices[name]] |= column == name
                else:
                    unknown += column == name
        is_label = labels.astype(bool)
        correct = (given == is_label).all(axis=1) & (unknown == 0)
        losses = 1 - example_f1(is_label, given, unknown)
        return Scores(correct, losses), bool(given.any())

    def evaluate(self, answers: Any, values: ColumnValues, **fields: Any) -> "LabelEvaluation":
        classes = self.dataset.classes
        sums = LabelSums(answers)
        constants = ConstantSums(answers.rows, np.argsort(-sums.weights[0], kind="stable"))
        for labels, given, _, weights in answers.blocks():
            constants.add(labels, given, weights)
        return LabelEvaluation(
            declared=self.metrics,
            metrics=compute_metrics(self.metrics, sums),
            classes=classes,
            sums=sums,
            constants=constants,
            per_class=sums.per_class,
            slices=measure_slices(
                values,
                lambda cut: cut.average(values, _list_figures(answers)),
                "example_f1",
            ),
            **fields,
        )

    def is_overfitted(self, train: float, validation: float) -> bool:
        return train - validation > _OVERFITTING


class LabelAnswers(ProbabilityAnswers):
    """Labels and answers of a split's examples.

    Further columns: for each class, by ("code", index), 1 if the example has the label, plus 2 if
    the answer gives it (uint8).
    """

    loss = MULTILABEL.loss

    def __init__(self, rows: int, classes: Sequence[str]) -> None:
        super().__init__(rows, classes, {("code", n): np.uint8 for n in range(len(classes))})

    def add_batch(self, labels: np.ndarray, outputs: Outputs, keys: list[bytes]) -> None:
        codes = labels.astype(np.uint8) + 2 * (outputs["labels"] != b"").astype(np.uint8)
        columns: dict[Any, np.ndarray] = dict(enumerate(outputs["probabilities"].T))
        self.add(columns | {("code", number): code for number, code in enumerate(codes.T)}, keys)

    def read_labels(self, start: int, stop: int) -> np.ndarray:
        return self._read_codes(start, stop) & 1

    def rate_badness(
        self, labels: np.ndarray, outputs: Outputs
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the loss of examples whose labels are not exactly right; 0 for the others."""
        is_label, given = labels.astype(bool), outputs["labels"] != b""
        losses = label_losses(is_label, outputs["probabilities"])
        figures = {
            "labels": np.array(self._join(is_label)),
            "given": np.array(self._join(given)),
            "loss": losses,
        }
        return np.where((is_label != given).any(axis=1), losses, 0), figures

    def blocks(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield labels and given labels, bool, and probabilities, [m, classes], and weights [m]."""
        for start, stop in self.block_spans():
            codes = self._read_codes(start, stop)
            probabilities, weights = self.read_probabilities(start, stop), self.weigh(start, stop)
            yield (codes & 1).astype(bool), codes >= 2, probabilities, weights

    def scores(self, start: int, stop: int) -> Scores:
        codes = self._read_codes(start, stop)
        labels, given = (codes & 1).astype(bool), codes >= 2
        is_right, losses = (labels == given).all(axis=1), 1 - example_f1(labels, given)
        return Scores(is_right, losses, weights=self.weigh(start, stop))

    def read_is_positive(self, number: int, start: int, stop: int) -> np.ndarray:
        return (self.read(("code", number), start, stop) & 1).astype(bool)

    def format_rows(self, start: int, stop: int) -> list[Sequence[Any]]:
        codes = self._read_codes(start, stop)
        losses = self.scores(start, stop).losses
        assert losses is not None
        probabilities = self.format_probabilities(start, stop)
        return [self._join(codes & 1), self._join(codes >> 1), losses.tolist(), *probabilities]

    def _read_codes(self, start: int, stop: int) -> np.ndarray:
        columns = [self.read(("code", n), start, stop) for n in range(len(self.classes))]
        return np.stack(columns, axis=1)

    def _join(self, chosen: np.ndarray) -> list[str]:
        names: list[list[str]] = [[] for _ in chosen]
        for row, index in np.argwhere(chosen).tolist():
            names[row].append(self.classes[index])
        return [SEPARATOR.join(row) for row in names]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantLabels:
    """The best constant answer to a split, and how likely chance makes a model that good."""

    labels: str  # the commonest labels, joined
    example_f1: float
    # Probability of at least the model's advantage if it is no better (sign-flip test).
    p_value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelEvaluation(Evaluation):
    """The evaluation of answers that are sets of labels."""

    template = "multilabel.html.j2"
    schema = "classification_metrics_1.0.0"
    constant = "example_f1"

    classes: list[str]
    sums: LabelSums
    constants: ConstantSums
    per_class: list[ClassMetrics]

    @functools.cached_property
    def baseline(self) -> ConstantLabels:
        chosen, f1, gains = self.constants.best()
        return ConstantLabels(
            labels=SEPARATOR.join(self.classes[index] for index in chosen),
            example_f1=f1,
            p_value=sign_flip_test(gains, np.random.default_rng(0)),
        )

    def compare_with_baseline(self, confidence: float) -> tuple[bool, str]:
        is_above = self.baseline.p_value <= 1 - confidence + 1e-12
        return is_above, f"{'better' if is_above else 'not reliably better'} than {self._constant}"

    @property
    def _constant(self) -> str:
        answer = repr(self.baseline.labels) if self.baseline.labels else "no label"
        return f"always answering {answer} ({self.baseline.example_f1:.4f})"

    def explain_not_above(self, confidence: float) -> str:
        f1 = self.metrics["example_f1"].value
        return (
            f"example F1 {f1:.4f}, not better than {self._constant} at "
            f"{100 * confidence:g}% confidence, p {self.baseline.p_value:.3g}"
        )

    def registry_metrics(self) -> dict[str, Any]:
        blocks = (
            (labels, probabilities, weights)
            for labels, _, probabilities, weights in self.answers.blocks()
        )
        metrics = {
            "auPrc": self.metrics["mean_average_precision"],
            "auRoc": self.metrics["roc_auc"],
            "logLoss": self.metrics["log_loss"],
            "confidenceMetrics": label_sets.operating_points(blocks),
        }
        return {name: value for name, value in metrics.items() if value is not None}

    def find_findings(self) -> Iterator[Finding]:
        f1 = self.metrics["example_f1"]
        yield from self.find_uncertainty(f1.low, f1.high)
        if names := [row.name for row in self.per_class if row.support and not row.predicted]:
            yield Finding("never_given", True, {"names": names[:3], "more": len(names) - 3})
        given = [row for row in self.per_class if row.predicted and row.f1 is not None]
        if given:
            weakest = min(given, key=lambda row: (row.f1 or 0.0, -row.support))
            yield Finding("weakest", False, {"row": weakest})
        # Of a single example, from the interval of the mean.
        deviation = (f1.high - f1.low) / (2 * 1.96) * math.sqrt(self.examples)
        yield from self.find_weak_slice("example_f1", f1.value, deviation)

    def page(self, dataset: Dataset) -> dict[str, Any]:
        """Return the drawings of curves and of labels that occur together, and tables of labels."""
        weakest_first = sorted(self.per_class, key=lambda row: 2.0 if row.f1 is None else row.f1)
        splits = {name: split.examples for name, split in dataset.splits.items() if split.examples}
        by_split = dataset.feature("label").statistics["by_split"]
        counts = [[by_split[split][name] for name in dataset.classes] for split in splits]
        _, curves = self.sums.curves()
        # The share of each label's examples that have each other label.
        matrices = self.sums.together, self.sums.given_together
        return {
            "exact": self.sums.exact,
            "mean_sizes": self.sums.mean_sizes,
            "curves": draw_precision_over_recall(curves) if curves else None,
            "together": [
                color_cells(matrix / np.maximum(1, matrix.diagonal()[:, None]))
                for matrix in matrices
            ],
            "pairs": self._list_pairs(),
            "balance": list_balance(dataset.classes, counts, [*splits.values()]),
            "per_class": weakest_first,
        }

    def _list_pairs(self) -> list[tuple[str, str, int, int]]:
        """Return the pairs of labels that are most often together, with counts in answers."""
        pairs = np.triu(self.sums.together, 1)
        order = np.argsort(-pairs, axis=None, kind="stable")[:_PAIRS_SHOWN]
        indices = (divmod(int(index), len(pairs)) for index in order)
        return [
            (
                self.classes[first],
                self.classes[second],
                int(pairs[first, second]),
                int(self.sums.given_together[first, second]),
            )
            for first, second in indices
            if pairs[first, second]
        ]


def _list_figures(answers: LabelAnswers) -> Iterator[Figures]:
    """Yield the F1 and the number of labels of examples, and their weights, in blocks."""
    for labels, given, _, weights in answers.blocks():
        yield {"example_f1": example_f1(labels, given), "labels": labels.sum(axis=1)}, weights
