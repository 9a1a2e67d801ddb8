"""Regression: a label is a number, and an answer is a number with an interval."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.data.schema import Dataset
from trainer.metrics import regressor
from trainer.metrics.comparison import Pairs, Scores, sign_flip_test
from trainer.metrics.disk_columns import Answers, ColumnValues, spans
from trainer.metrics.metric import compute_metrics
from trainer.metrics.regressor import NumberSums, Part
from trainer.metrics.slices import Figures, measure_slices
from trainer.tasks.base import Evaluation, Finding, Outputs, Task
from trainer.tasks.label_kinds import REGRESSION
from vertex.errors import InputError

CONFIDENCE = 0.9
"""Share of new labels that an interval contains."""
_ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
"""The quantiles at the ends of an interval."""
LEAST_CALIBRATION = 50
"""Least examples of the validation split from which intervals are made."""
_LOSSES = {
    "squared": keras.losses.mean_squared_error,
    "absolute": keras.losses.mean_absolute_error,
    "huber": keras.losses.huber,
}
_CONTRADICTION = 0.005
"""Relative difference of two errors of a model on the same records that no machine explains."""
_DECILES = 10
_DRAWN = 1000

# Shares above which something becomes a finding.
_OVERFITTING = 1.5
"""Error in validation as a multiple of that in training."""


@dataclasses.dataclass(frozen=True)
class Regression(Task):
    """Labels are numbers; a model's output is the label in deviations from the training mean.

    With `log`, it is log(1 + label) that is standardized. The loss is the squared error of the
    output, whichever loss is minimized, so that training and validation can be compared. With
    `adaptive`, two more outputs are the ends of the interval, by quantile regression.
    """

    # By which the outputs' interval exceeds the output, or its learned ends; None: no interval.
    margin: float | None = None

    metrics = REGRESSION.metrics
    answered = ("value",)

    @property
    def outputs(self) -> int:
        return 3 if self._adaptive else 1

    def scores(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        errors = self.scale(labels) - outputs[:, 0]
        return [tf.square(errors), tf.abs(labels - self._unscale(outputs[:, 0]))]

    def make_objective(self, config: Any) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        loss = _LOSSES[config.loss]

        def objective(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
            scaled = self.scale(labels)[:, None]
            losses = loss(scaled, outputs[:, :1])
            if self._adaptive:
                # The pinball loss of quantiles (Koenker and Bassett 1978, Econometrica 46:33-50).
                errors, shares = scaled - outputs[:, 1:], tf.constant(_ENDS)
                losses += tf.reduce_sum(tf.maximum(shares * errors, (shares - 1) * errors), axis=1)
            return losses

        return objective

    def calibrate(
        self, validated: Iterator[tuple[np.ndarray, tf.Tensor, np.ndarray]]
    ) -> "Regression":
        """Make intervals from the errors in validation, if those are enough.

        Learned ends are moved so that as many labels are between them as promised (conformalized
        quantile regression: Romano, Patterson and Candes 2019, NeurIPS 32:3543-3553).
        """
        batches = []
        for labels, outputs, weights in validated:
            low, high = self._find_ends(outputs)
            scaled = self.scale(tf.constant(labels))
            batches.append((tf.maximum(low - scaled, scaled - high).numpy(), weights))
        if sum(len(weights) for _, weights in batches) < LEAST_CALIBRATION:
            return self
        errors, weights = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        margin = regressor.conformal_quantile(errors, weights / weights.mean(), CONFIDENCE)
        return dataclasses.replace(self, margin=margin)

    def answers(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `value` and, if calibrated, `low` and `high`: float32 [n], in the label's unit."""
        outputs = tf.cast(outputs, tf.float32)
        center = outputs[:, 0]
        answers = {"value": self._unscale(center)}
        if self.margin is not None:
            low, high = self._find_ends(outputs)
            answers["low"] = self._unscale(tf.minimum(low - self.margin, center))
            answers["high"] = self._unscale(tf.maximum(high + self.margin, center))
        return answers

    def _find_ends(self, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return what the margin is added to: the learned ends of the interval, or the output."""
        center = outputs[:, 0]
        return (outputs[:, 1], outputs[:, 2]) if self._adaptive else (center, center)

    def scale(self, labels: tf.Tensor) -> tf.Tensor:
        """Return labels as outputs have them: in deviations from the training mean."""
        mean, deviation = self._statistics["mean"], self._statistics["deviation"]
        return ((tf.math.log1p(labels) if self._log else labels) - mean) / deviation

    def _unscale(self, outputs: tf.Tensor) -> tf.Tensor:
        """Return numbers in the label's unit."""
        label = self._statistics
        values = outputs * label["deviation"] + label["mean"]
        if not self._log:
            return values
        # An exponential of an output far from any label would be senseless, or infinite.
        ends = math.log1p(label["minimum"]), math.log1p(label["maximum"])
        bounds = max(0.0, ends[0] - label["deviation"]), ends[1] + label["deviation"]
        return tf.math.expm1(tf.clip_by_value(values, *bounds))

    @property
    def _statistics(self) -> dict[str, Any]:
        return self.dataset.feature("label").statistics

    @property
    def _log(self) -> bool:
        return bool(self.dataset.feature("label").settings["log"])

    @property
    def _adaptive(self) -> bool:
        return bool(self.dataset.feature("label").settings.get("adaptive"))

    def check_answers(self, outputs: Outputs, model: str) -> None:
        for name, values in outputs.items():
            if values.ndim != 1:
                raise InputError(
                    f"the model at {model} returns {name} of shape {list(values.shape)} for "
                    f"{len(values)} examples; it must be a number for each"
                )
            if not np.isfinite(values).all():
                raise InputError(
                    f"the model at {model} returns a {name} that is NaN or infinite: its training "
                    "diverged; lower learning_rate, or set gradient_clip_norm"
                )

    def open_answers(self, rows: int) -> "NumberAnswers":
        return NumberAnswers(rows)

    def score_champion(self, labels: np.ndarray, outputs: Outputs) -> tuple[Scores, bool]:
        return _score(labels, outputs["value"]), True

    def find_contradiction(self, pairs: Pairs, recorded: Mapping[str, Any]) -> str:
        before = recorded.get("rootMeanSquaredError")
        if before is None:
            return ""
        now = math.sqrt(pairs.losses[1] / pairs.examples)
        if abs(now - before) <= _CONTRADICTION * max(now, before):
            return ""
        return (
            f"its RMSE on these records was {before:.6g} when it was registered, and now is "
            f"{now:.6g}"
        )

    def evaluate(self, answers: Any, values: ColumnValues, **fields: Any) -> "NumberEvaluation":
        sums = NumberSums(answers)
        if not sums.label_variance > 0:
            raise InputError(
                f"all labels of the test split of {self.dataset.uri} are {sums.label_mean:.6g}; "
                "use a larger split, for example by split_fractions"
            )
        return NumberEvaluation(
            declared=self.metrics,
            metrics=compute_metrics(self.metrics, sums),
            column=self.dataset.feature("label").settings["column"],
            sums=sums,
            calibrated=self.dataset.splits["validation"].examples,
            deciles=regressor.split_by_quantiles(
                answers.read("label"), _list_figures(answers), _DECILES
            ),
            slices=measure_slices(
                values,
                lambda cut: cut.average(values, _list_figures(answers)),
                "mae",
                rises=False,
            ),
            **fields,
        )

    def is_overfitted(self, train: float, validation: float) -> bool:
        return validation > _OVERFITTING * train


class NumberAnswers(Answers):
    """Labels and answers of a split's examples.

    Columns, all float32: `label`, `value`, and the interval `low` to `high`, NaN if there is none.
    """

    def __init__(self, rows: int) -> None:
        super().__init__(rows, dict.fromkeys(("label", "value", "low", "high"), np.float32))

    def add_batch(self, labels: np.ndarray, outputs: Outputs, keys: list[bytes]) -> None:
        none = np.full(len(labels), np.nan, np.float32)
        ends = {name: outputs.get(name, none) for name in ("low", "high")}
        self.add({"label": labels, "value": outputs["value"], **ends}, keys)

    def rate_badness(
        self, labels: np.ndarray, outputs: Outputs
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return the absolute error."""
        errors = np.abs(outputs["value"].astype(np.float64) - labels)
        return errors, {"label": labels, "value": outputs["value"], "error": errors}

    def blocks(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield label, value, low and high, float32 [m], and weights, of m examples."""
        for start, stop in spans(self.rows):
            names = ("label", "value", "low", "high")
            columns = (self.read(name, start, stop) for name in names)
            yield (*columns, self.weigh(start, stop))

    def scores(self, start: int, stop: int) -> Scores:
        scores = _score(self.read("label", start, stop), self.read("value", start, stop))
        return scores._replace(weights=self.weigh(start, stop))

    def titles(self) -> list[str]:
        return ["label", "prediction", REGRESSION.loss, "low", "high"]

    def format_rows(self, start: int, stop: int) -> list[Sequence[Any]]:
        label, value, low, high = (
            self.format_column(name, start, stop) for name in ("label", "value", "low", "high")
        )
        losses = self.scores(start, stop).losses
        assert losses is not None
        return [label, value, losses.tolist(), low, high]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantAnswer:
    """The best constant answer to a split, and how likely chance makes a model that good."""

    value: float  # the mean of the labels
    rmse: float
    # Probability of at least the model's advantage if it is no better (sign-flip test).
    p_value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberEvaluation(Evaluation):
    """The evaluation of answers that are numbers, in the label's unit."""

    template = "regression.html.j2"
    schema = "regression_metrics_1.0.0"
    constant = "rmse"

    column: str  # the label's name
    sums: NumberSums
    calibrated: int  # examples of the validation split, from which intervals are made
    deciles: list[Part]  # of the labels

    @functools.cached_property
    def baseline(self) -> ConstantAnswer:
        return ConstantAnswer(
            value=self.sums.label_mean,
            rmse=math.sqrt(self.sums.label_variance),
            p_value=sign_flip_test(self.sums.gains_over_mean(), np.random.default_rng(0)),
        )

    def compare_with_baseline(self, confidence: float) -> tuple[bool, str]:
        is_above = self.baseline.p_value <= 1 - confidence + 1e-12
        mean = f"always answering the mean ({self.baseline.rmse:.6g})"
        claim = "better" if is_above else "not reliably better"
        return is_above, f"RMSE {self.metrics['rmse'].value:.6g} {claim} than {mean}"

    def explain_not_above(self, confidence: float) -> str:
        baseline = self.baseline
        return (
            f"not better than always answering the mean, {baseline.value:.6g}, at "
            f"{100 * confidence:g}% confidence: RMSE {self.metrics['rmse'].value:.6g} against "
            f"{baseline.rmse:.6g}, p {baseline.p_value:.3g}"
        )

    def registry_metrics(self) -> dict[str, Any]:
        correlation = self.sums.correlation
        metrics = {
            "rootMeanSquaredError": self.metrics["rmse"].value,
            "meanAbsoluteError": self.metrics["mae"].value,
            # As Google's schema defines it, not 1 - squared error / variance.
            "rSquared": None if correlation is None else correlation**2,
        }
        return {name: value for name, value in metrics.items() if value is not None}

    def find_findings(self) -> Iterator[Finding]:
        r2, coverage = self.metrics["r2"], self.metrics["coverage"]
        yield from self.find_uncertainty(r2.low, r2.high)
        if coverage is None:
            yield Finding("no_intervals", True, {"least": LEAST_CALIBRATION})
        elif abs(coverage.value - CONFIDENCE) > self._chance_of_coverage():
            yield Finding("coverage", True, {"coverage": coverage, "confidence": CONFIDENCE})
        mae = self.metrics["mae"].value
        deviation = math.sqrt(max(0.0, self.metrics["rmse"].value ** 2 - mae**2))
        yield from self.find_weak_slice("mae", mae, deviation, rises=False)

    def _chance_of_coverage(self) -> float:
        """Return the deviation from CONFIDENCE that chance exceeds in one of twenty models."""
        # Both the calibration and the measurement are of samples.
        share = 1 / self.examples + 1 / self.calibrated
        return 1.96 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) * share)

    def page(self, dataset: Dataset) -> dict[str, Any]:
        """Return the drawings of answers over labels and of errors."""
        from trainer.drawing import plots  # imports Matplotlib

        step = -(-self.examples // _DRAWN)
        labels, values = (self.answers.read(name)[::step] for name in ("label", "value"))
        return {
            "drawn": len(labels),
            "answers": plots.draw_points(
                labels,
                values,
                f"{len(labels)} predictions by label; R2 {self.metrics['r2'].value:.3f}",
            ),
            "errors": plots.draw_histogram(
                values - labels,
                "error",
                f"Errors; their mean absolute value is {self.metrics['mae'].value:.6g}",
            ),
        }


def _score(labels: np.ndarray, values: np.ndarray) -> Scores:
    numbers = labels.astype(np.float64)
    return Scores(None, np.square(values - numbers), numbers)


def _list_figures(answers: NumberAnswers) -> Iterator[Figures]:
    """Yield what is averaged over slices and deciles: label, errors, and whether it is covered."""
    for labels, predicted, low, high, weights in answers.blocks():
        errors = predicted - labels.astype(np.float64)
        covered = np.where(np.isnan(low), np.nan, (low <= labels) & (labels <= high))
        yield {"mean": labels, "mae": np.abs(errors), "bias": errors, "coverage": covered}, weights
