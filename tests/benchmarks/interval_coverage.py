"""Measure how often intervals contain the truth, and how often the gate takes chance for progress.

Splits are drawn 2,000 times from populations whose metrics are known from four million examples:
skewed numbers, whose errors grow with them, and six labels, common and rare. A share counts as
reached if it is within what chance explains in one of a hundred benchmarks.
"""

import concurrent.futures
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

from tests.benchmarks.measuring import Row
from trainer.metrics.comparison import Pairs, Scores, compare
from trainer.metrics.label_sets import LabelSums, example_f1
from trainer.metrics.metric import compute_metrics
from trainer.metrics.regressor import NumberSums
from trainer.tasks.label_kinds import MULTILABEL, REGRESSION, LabelKind

DRAWS, EXAMPLES, POPULATION = 2000, 1000, 4_000_000
CONFIDENCE = 0.95
LEAST = round(stats.binom.ppf(0.01, DRAWS, CONFIDENCE) / DRAWS / CONFIDENCE, 3)
_RATES = np.array([0.4, 0.25, 0.15, 0.08, 0.04, 0.02])


def _draw_numbers(generator: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    """Return labels, and the answers of two equally good models."""
    labels = generator.lognormal(0, 0.5, n)
    return labels, *(labels + generator.normal(0, 0.3, n) * labels for _ in range(2))


def _draw_labels(generator: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
    """Return labels, and those that two equally good models give."""
    labels = generator.random((n, len(_RATES))) < _RATES
    return labels, *(
        np.where(generator.random(labels.shape) < 0.7, labels, generator.random(labels.shape) < 0.1)
        for _ in range(2)
    )


def _measure_numbers(labels: np.ndarray, answers: np.ndarray) -> dict[str, tuple[float, ...]]:
    sums = NumberSums(_Answers(labels, answers, answers, answers, np.ones(len(labels))))
    return _measure(REGRESSION, sums, ("mae", "rmse", "r2"))


def _measure_labels(labels: np.ndarray, given: np.ndarray) -> dict[str, tuple[float, ...]]:
    sums = LabelSums(_Answers(labels, given, given.astype(np.float32), np.ones(len(labels))))
    return _measure(MULTILABEL, sums, ("example_f1", "micro_f1", "micro_precision", "micro_recall"))


class _Answers:
    """Answers to a split, in one block."""

    classes = ("",) * len(_RATES)

    def __init__(self, *columns: np.ndarray) -> None:
        self.rows, self._columns = len(columns[0]), columns

    def blocks(self) -> list[tuple[np.ndarray, ...]]:
        return [self._columns]


def _measure(kind: LabelKind, sums: Any, names: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    found = compute_metrics((metric for metric in kind.metrics if metric.name in names), sums)
    return {name: (one.value, one.low, one.high) for name, one in found.items()}


def _score_numbers(labels: np.ndarray, answers: np.ndarray) -> Scores:
    return Scores(None, np.square(answers - labels), labels)


def _score_labels(labels: np.ndarray, given: np.ndarray) -> Scores:
    return Scores((labels == given).all(axis=1), 1 - example_f1(labels, given))


TASKS: dict[str, tuple[Callable, Callable, Callable, LabelKind]] = {
    "numbers": (_draw_numbers, _measure_numbers, _score_numbers, REGRESSION),
    "several labels": (_draw_labels, _measure_labels, _score_labels, MULTILABEL),
}


def _judge_once(task: str, seed: int) -> tuple[dict[str, tuple[float, ...]], bool]:
    """Return the estimates on a split, and whether the gate prefers one of two equal models."""
    draw, measure, score, kind = TASKS[task]
    (metric,) = kind.comparisons
    labels, one, other = draw(np.random.default_rng(seed), EXAMPLES)
    pairs = Pairs.from_scores(score(labels, one), score(labels, other))
    return measure(labels, one), compare(pairs, metric=metric, confidence=CONFIDENCE).is_better


def rows() -> list[Row]:
    found: list[Row] = []
    for task, (draw, measure, _, _) in TASKS.items():
        truth = measure(*draw(np.random.default_rng(DRAWS), POPULATION)[:2])
        with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as processes:
            judge = functools.partial(_judge_once, task)
            results = list(processes.map(judge, range(DRAWS), chunksize=50))
        for name, (value, _, _) in truth.items():
            hits = sum(of[name][1] <= value <= of[name][2] for of, _ in results) / DRAWS
            figures = f"{hits:.3f} of {DRAWS:,} intervals contain {value:.4f}"
            found.append((f"{task}: coverage of {name} / 0.95", hits / CONFIDENCE, LEAST, figures))
        alarms = sum(alarm for _, alarm in results) / DRAWS
        figures = f"{alarms:.3f} of equally good models are judged better"
        right = (1 - alarms) / CONFIDENCE
        found.append((f"{task}: gate without false alarm / 0.95", right, LEAST, figures))
    return found
