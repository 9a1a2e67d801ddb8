"""What a reader should not miss: sentences drawn from the figures by plain rules."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from markupsafe import Markup

from trainer.data.schema import Dataset
from trainer.evaluation.metrics import wilson_interval
from trainer.evaluation.scoring import Evaluation
from trainer.report.markup import count, decimal, join, name, number, percent


class Finding(NamedTuple):
    """A sentence, and whether it is something to act on."""

    text: Markup
    warning: bool


# Gaps, as shares, from which something is worth a sentence.
OVERFITTING = 0.05
MISCALIBRATION = 0.05
WIDE_INTERVAL = 0.1
STARVED = 0.2
EMPTY = 0.95
ALONE = 0.9
"""Share of the model's AUC above chance from which one column tells the answer almost alone."""
_TELLING = 0.75
"""AUC from which a column tells much of the answer at all."""

_CHANCE = 3.5
"""Standard errors below the whole from which a slice is named: of a hundred slices that are as
good as the whole, one is so far below in one report of forty."""

_MOST = 6


def findings(
    evaluation: Evaluation,
    dataset: Dataset,
    training: dict[str, Any],
    history: list[dict[str, Any]],
) -> list[Finding]:
    """At most six, in the order of weight."""
    found = [
        *_of_single_columns(evaluation),
        *_of_evaluation(evaluation),
        *_of_slices(evaluation),
        *_of_training(dataset, training, history),
        *_of_columns(dataset),
        *_of_labels(dataset),
    ]
    found.sort(key=lambda finding: not finding.warning)
    return found[:_MOST]


def _of_evaluation(evaluation: Evaluation) -> Iterator[Finding]:
    low, high = evaluation.accuracy_interval
    commonest = max(evaluation.per_class, key=lambda row: row.support)
    baseline = percent(evaluation.baseline_accuracy)
    if low <= evaluation.baseline_accuracy:
        text = "Not reliably better than always answering {}, which would score {}."
        yield _warn(text, name(commonest.name), baseline)
    else:
        text = "Always answering {}, the commonest class, would score {}."
        yield _note(text, name(commonest.name), baseline)
    if high - low > WIDE_INTERVAL:
        yield _warn(
            "With {} the accuracy is known only within {} points: a larger split would tell more.",
            count(evaluation.examples, "example"),
            f"{100 * (high - low):.0f}",
        )
    absent = [row for row in evaluation.per_class if not row.support]
    if absent:
        named = join([name(row.name) for row in absent[:3]])
        listed = Markup(", ").join(name(row.name) for row in absent[:3]) if named else Markup()
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        yield _warn("No example of {}{}: nothing is known of such classes.", listed, more)
    yield from _weakest(evaluation)
    yield from _confidence(evaluation)


def _weakest(evaluation: Evaluation) -> Iterator[Finding]:
    present = [row for row in evaluation.per_class if row.recall is not None]
    weakest = min(present, key=lambda row: row.recall or 0.0)
    if weakest.recall is None or weakest.recall == 1:
        yield _note("Every example of every class was recognized.")
        return
    yield _note(
        "The weakest class is {}: {} of {} recognized.",
        name(weakest.name),
        f"{round(weakest.recall * weakest.support):,}",
        f"{weakest.support:,}",
    )
    times, true, predicted = max(
        (cell, row, column)
        for row, line in enumerate(evaluation.confusion_matrix)
        for column, cell in enumerate(line)
        if row != column
    )
    if times > 1:
        yield _note(
            "The commonest mistake: {} taken for {}, {}.",
            name(evaluation.classes[true]),
            name(evaluation.classes[predicted]),
            count(times, "time"),
        )
    least = min(
        evaluation.per_class, key=lambda row: 1.0 if row.precision is None else row.precision
    )
    if least.precision is not None and least.precision < 1:
        yield _note(
            "The least reliable answer is {}: right {} of {}.",
            name(least.name),
            f"{round(least.precision * least.predicted):,}",
            count(least.predicted, "time"),
        )


def _of_slices(evaluation: Evaluation) -> Iterator[Finding]:
    """The slice that is below the whole by the most standard errors, if that is no chance."""
    whole = evaluation.accuracy
    error = math.sqrt(whole * (1 - whole))
    if not error:
        return
    weak = [
        ((whole - part.accuracy) * math.sqrt(part.examples) / error, cut.column, part)
        for cut in evaluation.slices
        for part in cut.slices
    ]
    away, column, part = max(weak, key=lambda one: one[0], default=(0.0, "", None))
    if part is None or away < _CHANCE:
        return
    same = ""
    if part.positive_rate is not None:
        constant = max(part.positive_rate, 1 - part.positive_rate)
        same = f"; a constant answer would get {percent(constant)}"
    yield _warn(
        "Weakest where {} is {}: {} of {} right{}.",
        name(column),
        name(part.name),
        percent(part.accuracy),
        count(part.examples, "example"),
        same,
    )


def _of_single_columns(evaluation: Evaluation) -> Iterator[Finding]:
    """The column that separates the classes almost as well as the model does, if there is one."""
    areas = evaluation.column_areas
    if not areas or evaluation.roc_auc is None:
        return
    column = max(areas, key=lambda one: areas[one])
    if areas[column] < max(_TELLING, 0.5 + ALONE * (evaluation.roc_auc - 0.5)):
        return
    yield _warn(
        "{} tells the answer almost alone: ROC AUC {} by itself, {} of the model. Leave it out if "
        "it is not known when the model is asked.",
        name(column),
        decimal(areas[column]),
        decimal(evaluation.roc_auc),
    )


def _of_columns(dataset: Dataset) -> Iterator[Finding]:
    for feature in dataset.features:
        missing = feature.statistics.get("missing", {}).get("train", 0.0)
        if missing > EMPTY:
            text = "{} has no value in {} of the training rows: the model learns little from it."
            yield _warn(text, name(feature.name), percent(missing))


def _of_labels(dataset: Dataset) -> Iterator[Finding]:
    if found := dataset.creation.get("contradictions"):
        text = "Equal under two labels: {}; {} in all. No model can be right about both."
        pair = Markup(" = ").join(name(one) for one in found["first"][0])
        yield _warn(text, pair, count(found["count"], "pair"))


def _confidence(evaluation: Evaluation) -> Iterator[Finding]:
    error = evaluation.expected_calibration_error
    gap = mean_confidence(evaluation) - evaluation.accuracy
    if error <= MISCALIBRATION:
        return
    # A small split has an error by chance alone; a gap beyond the interval is no chance.
    low, high = evaluation.accuracy_interval
    if abs(gap) <= max(high - evaluation.accuracy, evaluation.accuracy - low):
        return
    yield _warn(
        "The model is {}confident: its mean confidence is {}, and {} of its answers are right.",
        "over" if gap > 0 else "under",
        percent(evaluation.accuracy + gap),
        percent(evaluation.accuracy),
    )


def _of_training(
    dataset: Dataset, training: dict[str, Any], history: list[dict[str, Any]]
) -> Iterator[Finding]:
    train = number((training.get("train") or {}).get("accuracy"))
    validation = number((training.get("validation") or {}).get("accuracy"))
    if train is not None and validation is not None and _overfits(dataset, train, validation):
        yield _warn(
            "Overfitting: {} right in training, {} in validation. Augmentation, weight decay or "
            "early stopping may help.",
            percent(train),
            percent(validation),
        )
    losses = [number(row.get("validation_loss")) for row in history]
    known = [loss for loss in losses if loss is not None]
    if len(known) > 1 and losses[-1] == min(known) and not training.get("stopped"):
        yield _note("The validation loss was lowest in the last epoch: more epochs may help.")
    waits = [number(row.get("input_wait_fraction")) for row in history]
    waited = [wait for wait in waits if wait is not None]
    if waited and sum(waited) / len(waited) > STARVED:
        encoded = any(feature.encoding == "jpeg" for feature in dataset.features)
        yield _warn(
            "{} of the training time went into waiting for input: {}faster storage or "
            "more CPU cores may help.",
            percent(sum(waited) / len(waited), 0),
            "raw records, " if encoded else "",
        )


def _overfits(dataset: Dataset, train: float, validation: float) -> bool:
    """Return whether the accuracies differ by more than chance on the validation split explains."""
    split = dataset.splits.get("validation")
    best = validation
    if split and split.examples:
        best = wilson_interval(round(validation * split.examples), split.examples)[1]
    return train - validation > OVERFITTING and train > best


def mean_confidence(evaluation: Evaluation) -> float:
    """Of all predictions, from the calibration's bins."""
    total = sum((one.confidence or 0.0) * one.count for one in evaluation.calibration)
    return total / evaluation.examples


def _warn(text: str, *values: Any) -> Finding:
    return Finding(Markup(text).format(*values), True)  # noqa: S704 - a sentence from above


def _note(text: str, *values: Any) -> Finding:
    return Finding(Markup(text).format(*values), False)  # noqa: S704 - a sentence from above
