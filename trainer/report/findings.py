"""Derive findings that a reader should not miss from the metrics, by fixed rules.

The sentence of each kind of finding is in findings.html.j2.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from trainer.data.schema import Dataset
from trainer.evaluation.drift import Drift
from trainer.evaluation.scoring import Evaluation
from trainer.metrics.classifier import wilson_interval
from trainer.metrics.leakage import RANKED
from trainer.report.learning import Rows, column, known_values


class Finding(NamedTuple):
    """A finding; the template has a sentence for each kind."""

    kind: str
    warning: bool  # whether it requires action
    values: dict[str, Any]  # values in the sentence


# Shares above which something becomes a finding.
OVERFITTING = 0.05
MISCALIBRATION = 0.05
WIDE_INTERVAL = 0.1
INPUT_BOUND = 0.2
EMPTY = 0.95
CHANCE = 0.05
"""P-value above which a model may be no better than a constant answer."""
SINGLE_COLUMN = 0.9
"""Share of the model's AUC above chance that a column must reach to be a finding."""
_MIN_AUC = 0.75
"""Least AUC of such a column."""

_MIN_STANDARD_ERRORS = 3.5
"""A slice is named if it is this number of standard errors below the whole split.

By chance alone, one of a hundred equally good slices is so far below in one of forty reports."""

_MAX_FINDINGS = 6


def list_findings(
    evaluation: Evaluation,
    dataset: Dataset,
    training: dict[str, Any],
    history: Rows,
    drifts: Sequence[Drift] = (),
) -> list[Finding]:
    """Return at most six findings: warnings first, then the others, both by importance."""
    findings = [
        *_find_leaking_column(evaluation),
        *_find_in_evaluation(evaluation),
        *_find_weak_slice(evaluation),
        *_find_in_training(dataset, training, history),
        *_find_empty_columns(dataset),
        *_find_drift(drifts),
        *_find_contradictions(dataset),
    ]
    findings.sort(key=lambda finding: not finding.warning)
    return findings[:_MAX_FINDINGS]


def _find_in_evaluation(evaluation: Evaluation) -> Iterator[Finding]:
    low, high = evaluation.accuracy_interval
    baseline = evaluation.baseline
    by_chance = baseline.p_value > CHANCE
    kind = "not_above_baseline" if by_chance else "baseline"
    values: dict[str, Any] = {"commonest": baseline.commonest, "baseline": baseline.accuracy}
    yield Finding(kind, by_chance, values)
    if high - low > WIDE_INTERVAL:
        values = {"examples": evaluation.examples, "points": 100 * (high - low)}
        yield Finding("wide_interval", True, values)
    if absent := [row.name for row in evaluation.per_class if not row.support]:
        yield Finding("absent_classes", True, {"names": absent[:3], "more": len(absent) - 3})
    yield from _find_weak_classes(evaluation)
    yield from _find_miscalibration(evaluation)


def _find_weak_classes(evaluation: Evaluation) -> Iterator[Finding]:
    present = [row for row in evaluation.per_class if row.recall is not None]
    weakest = min(present, key=lambda row: (row.recall or 0.0, -row.support))
    if weakest.recall is None or weakest.recall == 1:
        yield Finding("all_recognized", False, {})
        return
    right = round(weakest.recall * weakest.support)
    values: dict[str, Any] = {"name": weakest.name, "right": right, "of": weakest.support}
    others = sum(_is_mostly_wrong(row.recall, row.support) for row in present) - 1
    yield Finding("weakest_class", others >= 0, {**values, "others": others})
    times, true, predicted = max(
        (cell, row, column)
        for row, line in enumerate(evaluation.confusion_matrix)
        for column, cell in enumerate(line)
        if row != column
    )
    if times > 1:
        pair = {"true": evaluation.classes[true], "predicted": evaluation.classes[predicted]}
        yield Finding("commonest_mistake", False, {**pair, "times": times})
    # A class that is never predicted has precision 0, but no answer to be unreliable.
    answered = [row for row in present if row.predicted]
    least_precise = min(
        answered, key=lambda row: (row.precision or 0.0, -row.predicted), default=None
    )
    if least_precise and least_precise.precision is not None and least_precise.precision < 1:
        right = round(least_precise.precision * least_precise.predicted)
        values = {"name": least_precise.name, "right": right, "of": least_precise.predicted}
        is_wrong = _is_mostly_wrong(least_precise.precision, least_precise.predicted)
        yield Finding("least_reliable", is_wrong, values)


def _is_mostly_wrong(rate: float | None, total: int) -> bool:
    """Return True if none of `total` is right, or the share that is right is surely below half."""
    right = round((rate or 0.0) * total)
    return right == 0 or wilson_interval(right, total)[1] < 0.5


def _find_weak_slice(evaluation: Evaluation) -> Iterator[Finding]:
    """Yield the slice that is most standard errors below the whole split, if beyond chance."""
    whole = evaluation.accuracy
    error = math.sqrt(whole * (1 - whole))
    if not error:
        return
    weak = [
        ((whole - part.accuracy) * math.sqrt(part.examples) / error, cut.column, part)
        for cut in evaluation.slices
        for part in cut.slices
    ]
    away, column, part = max(weak, key=lambda item: item[0], default=(0.0, "", None))
    if part is None or away < _MIN_STANDARD_ERRORS:
        return
    rate = part.positive_rate
    constant = None if rate is None else max(rate, 1 - rate)
    yield Finding("weak_slice", True, {"column": column, "part": part, "constant": constant})


def _find_leaking_column(evaluation: Evaluation) -> Iterator[Finding]:
    """Yield the column that separates the classes almost as well as the model, if there is one."""
    areas, roc_auc, many = evaluation.column_areas, evaluation.roc_auc, len(evaluation.classes) > 2
    if not areas or roc_auc is None:
        return
    if many:
        commonest = sorted(evaluation.per_class, key=lambda row: -row.support)[:RANKED]
        total = sum(row.support for row in commonest)
        roc_auc = sum(row.support * (row.roc_auc or 0.0) for row in commonest) / total
    column = max(areas, key=areas.__getitem__)
    if areas[column] < max(_MIN_AUC, 0.5 + SINGLE_COLUMN * (roc_auc - 0.5)):
        return
    values = {"column": column, "area": areas[column], "roc_auc": roc_auc, "many": many}
    yield Finding("single_column", True, values)


def _find_empty_columns(dataset: Dataset) -> Iterator[Finding]:
    for feature in dataset.features:
        missing = feature.statistics.get("missing", {}).get("train", 0.0)
        if missing > EMPTY:
            yield Finding("empty_column", True, {"name": feature.name, "missing": missing})


def _find_contradictions(dataset: Dataset) -> Iterator[Finding]:
    if contradictions := dataset.creation.get("contradictions"):
        yield Finding(
            "contradictions",
            True,
            {"names": contradictions["first"][0], "count": contradictions["count"]},
        )


def _find_miscalibration(evaluation: Evaluation) -> Iterator[Finding]:
    accuracy, confidence = evaluation.accuracy, mean_confidence(evaluation)
    if evaluation.expected_calibration_error <= MISCALIBRATION:
        return
    # Even a well-calibrated model has an error on a small split; ignore gaps within the interval.
    low, high = evaluation.accuracy_interval
    if abs(confidence - accuracy) <= max(high - accuracy, accuracy - low):
        return
    yield Finding("miscalibrated", True, {"confidence": confidence, "accuracy": accuracy})


def _find_in_training(
    dataset: Dataset, training: dict[str, Any], history: Rows
) -> Iterator[Finding]:
    train, validation = training["train"]["accuracy"], training["validation"].get("accuracy")
    if validation is not None and _is_overfitted(dataset, train, validation):
        yield Finding("overfitting", True, {"train": train, "validation": validation})
    losses = known_values(history, "validation_loss")
    last = column(history, "validation_loss")[-1:]
    if len(losses) > 1 and last == [min(losses)] and not training["stopped"]:
        yield Finding("more_epochs", False, {})
    waits = known_values(history, "input_wait_fraction")
    if (share := sum(waits) / len(waits)) > INPUT_BOUND:
        encoded = any(feature.encoding == "jpeg" for feature in dataset.features)
        yield Finding("starved", True, {"share": share, "encoded": encoded})


def _is_overfitted(dataset: Dataset, train: float, validation: float) -> bool:
    """Return True if the gap is too large to be chance on the validation split."""
    split = dataset.splits.get("validation")
    best = validation
    if split and split.examples:
        best = wilson_interval(round(validation * split.examples), split.examples)[1]
    return train - validation > OVERFITTING and train > best


def mean_confidence(evaluation: Evaluation) -> float:
    """Return the mean confidence of all predictions, from the calibration bins."""
    total = sum((item.confidence or 0.0) * item.count for item in evaluation.calibration)
    return total / evaluation.examples


def _find_drift(drifts: Sequence[Drift]) -> Iterator[Finding]:
    """Yield the largest drift since the champion's data, if any is beyond chance."""
    drifted = [drift for drift in drifts if drift.is_drift]
    if drifted:
        yield Finding("drift", True, {"largest": drifted[0], "others": len(drifted) - 1})
