"""Derive findings that a reader should not miss from the metrics, by fixed rules.

The sentence of each kind of finding is in findings.html.j2, or in the template of the task.
"""

from collections.abc import Iterator
from typing import Any

from trainer.data.dataset_warnings import list_warnings
from trainer.data.schema import Dataset
from trainer.evaluation.drift import Drifts
from trainer.report.learning import Rows, column, known_values
from trainer.tasks import task_of
from trainer.tasks.base import Evaluation, Finding

# Shares above which something becomes a finding.
INPUT_BOUND = 0.2
EMPTY = 0.95

_MAX_FINDINGS = 6


def list_findings(
    evaluation: Evaluation,
    dataset: Dataset,
    training: dict[str, Any],
    history: Rows,
    *,
    drifts: Drifts | None = None,
    in_time: Drifts | None = None,
) -> list[Finding]:
    """Return at most six findings: warnings first, then the others, both by importance."""
    findings = [
        *evaluation.find_findings(),
        *(Finding("records", True, {"text": text}) for text in list_warnings(dataset)),
        *_find_in_training(dataset, training, history),
        *_find_empty_columns(dataset),
        *_find_drift("drift", drifts),
        *_find_drift("drift_in_time", in_time),
        *_find_contradictions(dataset),
    ]
    findings.sort(key=lambda finding: not finding.warning)
    return findings[:_MAX_FINDINGS]


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


def _find_in_training(
    dataset: Dataset, training: dict[str, Any], history: Rows
) -> Iterator[Finding]:
    if overfitting := task_of(dataset).find_overfitting(training):
        yield overfitting
    losses = known_values(history, "validation_loss")
    last = column(history, "validation_loss")[-1:]
    if len(losses) > 1 and last == [min(losses)] and not training["stopped"]:
        yield Finding("more_epochs", False, {})
    waits = known_values(history, "input_wait_fraction")
    if waits and (share := sum(waits) / len(waits)) > INPUT_BOUND:
        encoded = any(feature.encoding == "jpeg" for feature in dataset.features)
        yield Finding("starved", False, {"share": share, "encoded": encoded})


def _find_drift(kind: str, drifts: Drifts | None) -> Iterator[Finding]:
    """Yield the largest drift, if any is beyond chance."""
    drifted = [drift for drift in drifts.columns if drift.is_drift] if drifts else []
    if drifted:
        yield Finding(kind, True, {"largest": drifted[0], "others": len(drifted) - 1})
