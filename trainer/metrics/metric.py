"""Declare a metric: all that is known of it, in one object.

    Metric("brier_score", lambda sums: sums.squared_errors / sums.examples, rises=False)

Those of the tasks are in class_metrics.py, number_metrics.py and label_set_metrics.py of
trainer/tasks. What is evaluated, logged, shown, searched for, and named by floors and ceilings
derives from them, also in commands, which must not wait for NumPy.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A metric with its 95% interval."""

    value: float
    low: float
    high: float

    def flatten(self, name: str) -> dict[str, float]:
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


class Compared(enum.Enum):
    """The scores of two models on an example by which they are compared in a metric."""

    RIGHT = "whether the answer is right; the metric is its mean"
    LOSS = "the loss; the metric is its mean"
    GAIN = "the loss; the metric is 1 - its mean"
    EXPLAINED = "the loss; the metric is 1 - its mean / the variance of the labels"


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric of a split, or of training, where it is a mean over examples."""

    name: str
    # From the task's sums over a split: a number, an Estimate with an interval, or None where the
    # metric is undefined. It may take 8 bytes of memory an example.
    compute: Callable[[Any], Any] | None = None
    _: dataclasses.KW_ONLY
    # Instead, from sums over groups of examples, as arrays [...]; its interval is bootstrapped.
    resample: Callable[[Any], Any] | None = None
    unit: Literal["", "share", "nats", "label"] = ""  # label: that of the labels
    rises: bool = True  # whether higher is better
    monitored: bool = False  # whether training and validation measure it, by `Task.scores`
    compared: Compared | None = None  # None: models are not compared by it
    shown: bool = False  # whether commands print it with a run's results
    tile: str = ""  # title of its tile in the report's summary; empty: it has none
    # Text below its value, perhaps from the sums; empty: the interval, if there is one.
    note: str | Callable[[Any], str] = ""
    optional: bool = False  # whether the tile is left out where the metric is undefined


def compute_metrics(metrics: Iterable[Metric], sums: Any) -> dict[str, Any]:
    """Return the values of metrics by name; those of training alone have none."""
    declared = [metric for metric in metrics if metric.compute or metric.resample]
    resampled = {metric.name: metric.resample for metric in declared if metric.resample}
    estimates = sums.estimate(resampled) if resampled else {}
    return {
        metric.name: metric.compute(sums) if metric.compute else estimates[metric.name]
        for metric in declared
    }
