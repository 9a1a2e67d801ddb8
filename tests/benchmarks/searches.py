"""Measure 2,000 simulated searches: what they find, and how often luck is taken for progress.

A trial's examples have the losses of a function of its values, with noise of their own and noise
that all trials share. Without an effect, that function is constant.
"""

import concurrent.futures
import functools
import math
import statistics
from typing import Any

import numpy as np
import threadpoolctl
from google.cloud.aiplatform_v1 import types
from scipy import stats

from components.planning.search_options import SearchOptions, build_study_spec
from tests.benchmarks.measuring import Row
from trainer.metrics.comparison import Pairs, Scores, compare
from trainer.tasks.label_kinds import CLASSIFICATION
from trainer.training.config import TrainingConfig
from vertex.emulator import tuning_search

SEARCHES, TRIALS, EXAMPLES = 2000, 12, 1000
_, LOG_LOSS = CLASSIFICATION.comparisons
CONFIDENCE = 0.95
LEAST = round(stats.binom.ppf(0.01, SEARCHES, CONFIDENCE) / SEARCHES / CONFIDENCE, 3)
PARAMETERS = {
    "learning_rate": {"min": 1e-4, "max": 1e-1, "scale": "log"},
    "label_smoothing": {"min": 0, "max": 0.5},
    "batch_size": [32, 64, 128],
}
DEFAULTS = {"learning_rate": 0.01, "label_smoothing": 0.1, "batch_size": 128}


def _true_loss(values: dict[str, Any], *, has_effect: bool) -> float:
    """Return the loss of trainings with some values: 0.1 at best, or always."""
    if not has_effect:
        return 0.1
    rate = math.log10(values["learning_rate"]) + 2.7
    smoothing = values["label_smoothing"] - 0.2
    return 0.1 + 0.02 * rate**2 + 0.1 * smoothing**2 + 0.005 * abs(values["batch_size"] - 64) / 32


def _search(algorithm: str, seed: int, *, has_effect: bool) -> tuple[float, bool]:
    """Return the true loss of the best trial, and whether it is called better than the defaults."""
    options = SearchOptions(
        parameters=PARAMETERS, trials=TRIALS, parallel=1, metric="loss", algorithm=algorithm
    )
    spec = types.StudySpec(build_study_spec(options, TrainingConfig()))
    generator = np.random.default_rng(seed)
    shared = generator.normal(0, 0.1, EXAMPLES)

    def draw(loss: float) -> np.ndarray:
        return loss + shared + generator.normal(0, 0.1, EXAMPLES)

    trials, losses = [], []
    for number in range(TRIALS):
        values = tuning_search.ask(spec, trials, str(seed))
        assert values
        loss = _true_loss(values, has_effect=has_effect)
        examples = draw(loss)
        measured = {"metric_id": "validation_loss", "value": examples.mean()}
        parameters = [{"parameter_id": name, "value": value} for name, value in values.items()]
        trial = {"id": str(number), "state": "SUCCEEDED", "parameters": parameters}
        trials.append(types.Trial({**trial, "final_measurement": {"metrics": [measured]}}))
        losses.append((examples.mean(), loss, examples))
    _, best, examples = min(losses, key=lambda one: one[0])
    known = draw(_true_loss(DEFAULTS, has_effect=has_effect))
    pairs = Pairs.from_scores(Scores(None, examples), Scores(None, known))
    confidence = 1 - (1 - CONFIDENCE) / TRIALS
    return best, compare(pairs, metric=LOG_LOSS, confidence=confidence).is_better


def rows() -> list[Row]:
    found = {}
    one_thread = functools.partial(threadpoolctl.threadpool_limits, 1)
    with concurrent.futures.ProcessPoolExecutor(initializer=one_thread) as processes:
        for algorithm, has_effect in (("default", True), ("random", True), ("random", False)):
            run = functools.partial(_search, algorithm, has_effect=has_effect)
            found[algorithm, has_effect] = [*processes.map(run, range(SEARCHES), chunksize=50)]
    own, at_random = (
        statistics.fmean(loss for loss, _ in found[name, True]) for name in ("default", "random")
    )
    power = statistics.fmean(is_better for _, is_better in found["default", True])
    alarms = statistics.fmean(is_better for _, is_better in found["random", False])
    figures = f"{own:.4f} instead of {at_random:.4f}; {power:.2f} are called better"
    return [
        (
            "search: loss above the least, random / default",
            (at_random - 0.1) / (own - 0.1),
            1,
            figures,
        ),
        (
            "search: without an effect, no winner / 0.95",
            (1 - alarms) / CONFIDENCE,
            LEAST,
            f"{alarms:.4f} of {SEARCHES:,} searches call the best trial better",
        ),
    ]
