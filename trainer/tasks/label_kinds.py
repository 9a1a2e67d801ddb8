"""Describe the tasks as far as needed before the data are read, without TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trainer.conditions import Condition
from trainer.data.schema import Dataset
from trainer.metrics.metric import Metric
from trainer.tasks import class_metrics, label_set_metrics, number_metrics
from vertex.errors import InputError
from vertex.formats import suggest

LOSS = "loss"
AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class LabelKind:
    """The metrics of a task, and the values of options that fit it."""

    task: str  # MODULE:CLASS in trainer.tasks
    labels: str  # what its labels are, for messages
    metrics: tuple[Metric, ...]  # of an evaluation, the headline first
    loss: str  # of an example, in predictions.csv

    @property
    def bounded(self) -> list[str]:
        """Return the names that floors and ceilings may have."""
        return [metric.name for metric in self.metrics]

    @property
    def monitors(self) -> list[str]:
        return [LOSS, *(metric.name for metric in self.metrics if metric.monitored)]

    @property
    def comparisons(self) -> list[Metric]:
        """Return the metrics in which models are compared, the default first."""
        return [metric for metric in self.metrics if metric.compared]

    @property
    def values(self) -> dict[str, list[str]]:
        """Return the values of options that depend on the task."""
        compared = [AUTO, *(metric.name for metric in self.comparisons)]
        return {"monitor": self.monitors, "champion_metric": compared}


CLASSIFICATION = LabelKind(
    "classification:Classification", "classes", class_metrics.METRICS, "log_loss"
)
REGRESSION = LabelKind("regression:Regression", "numbers", number_metrics.METRICS, "squared_error")
MULTILABEL = LabelKind(
    "multilabel:Multilabel", "several at once", label_set_metrics.METRICS, "f1_loss"
)
KINDS = {"classes": CLASSIFICATION, "numeric": REGRESSION, "multilabel": MULTILABEL}
"""The kinds by the type of a label."""
HEADLINES = [kind.metrics[0].name for kind in KINDS.values()]
"""The metric of each kind that sums up an evaluation."""
METRICS = [metric for kind in KINDS.values() for metric in kind.metrics]
MONITORS = list(dict.fromkeys(name for kind in KINDS.values() for name in kind.monitors))
COMPARISONS = [metric for kind in KINDS.values() for metric in kind.comparisons]


def is_rising(name: str) -> bool:
    """Return whether a monitored metric is better if it is higher."""
    return any(metric.rises for metric in METRICS if metric.name == name)


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
                if metric not in kind.bounded and not task:
                    raise InputError(
                        f"{name}: {metric!r} is not a metric of {kind.labels}"
                        f"{suggest(metric, kind.bounded)}"
                    )
