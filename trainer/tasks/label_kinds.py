"""Describe the tasks as far as needed before the data are read, without TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trainer.conditions import Condition
from trainer.data.schema import Dataset
from vertex.errors import InputError
from vertex.formats import suggest


@dataclasses.dataclass(frozen=True)
class LabelKind:
    """The metrics of a task, and the options that fit it."""

    task: str  # MODULE:CLASS in trainer.tasks
    labels: str  # what its labels are, for messages
    metrics: tuple[str, ...]  # of an evaluation, for floors and ceilings
    values: Mapping[str, tuple[str, ...]]  # values of options that depend on the task


CLASSIFICATION = LabelKind(
    task="classification:Classification",
    labels="classes",
    metrics=(
        "accuracy", "log_loss", "precision", "recall", "f1", "roc_auc", "pr_auc",
        "expected_calibration_error", "brier_score", "top_3_accuracy", "top_5_accuracy",
    ),
    values={"monitor": ("loss", "accuracy"), "champion_metric": ("auto", "accuracy", "log_loss")},
)  # fmt: skip
REGRESSION = LabelKind(
    task="regression:Regression",
    labels="numbers",
    metrics=("mae", "rmse", "r2", "coverage", "interval_width"),
    values={"monitor": ("loss", "mae"), "champion_metric": ("auto", "r2")},
)
MULTILABEL = LabelKind(
    task="multilabel:Multilabel",
    labels="several at once",
    metrics=(
        "example_f1", "micro_f1", "micro_precision", "micro_recall", "macro_f1",
        "mean_average_precision", "roc_auc", "exact_match", "log_loss",
    ),
    values={"monitor": ("loss", "example_f1"), "champion_metric": ("auto", "example_f1")},
)  # fmt: skip
KINDS = {"classes": CLASSIFICATION, "numeric": REGRESSION, "multilabel": MULTILABEL}
"""The kinds by the type of a label."""


def kind_of(label: Mapping[str, Any]) -> LabelKind:
    """Return the kind of task that a label of the records' options has."""
    return KINDS.get(label.get("type", ""), CLASSIFICATION)


def kind_of_records(dataset: Dataset) -> LabelKind:
    labels = [feature for feature in dataset.features if feature.kind == "label"]
    if any(label.shape for label in labels):
        return MULTILABEL
    return REGRESSION if any(label.dtype == "float32" for label in labels) else CLASSIFICATION


def labels_of(kind: str) -> Condition:
    """Return the condition that the labels are of `kind`, a key of KINDS."""
    wanted = KINDS[kind]
    words = f"labels that are {wanted.labels}"
    return Condition(("label",), lambda label: kind_of(label) is wanted, words)


def label_of_records(dataset: Dataset) -> dict[str, str]:
    """Return an option `label` of the same kind as the labels in records."""
    kind = kind_of_records(dataset)
    return {"type": next(name for name, known in KINDS.items() if known is kind)}


def check_label_options(kind: LabelKind, *groups: Any, task: str = "") -> None:
    """Raise InputError for a value in the dataclasses `groups` that does not fit the labels.

    Of a user's own `task`, the metrics are not known before it is imported.
    """
    for group in groups:
        for field in dataclasses.fields(group):
            name, value = field.name, getattr(group, field.name)
            allowed = kind.values.get(name, (value,))
            if value not in allowed:
                remedy = f"set {' or '.join(allowed)}"
                raise InputError(f"{name}={value!r}, but the labels are {kind.labels}; {remedy}")
            for metric in value if name in ("floors", "ceilings") else ():
                if metric not in kind.metrics and not task:
                    raise InputError(
                        f"{name}: {metric!r} is not a metric of {kind.labels}"
                        f"{suggest(metric, kind.metrics)}"
                    )
