"""Judge a search: whether its best trial is better than the training with the recipe's values.

The best of many trials is lucky, too. So it must be better in a paired test on the validation
split, at a level that is divided by the number of trials (Bonferroni): if no trial is truly
better, one is called better with a probability of at most 1 - confidence.
"""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.data import storage
from trainer.data.read.model_inputs import parse_weights
from trainer.data.schema import Dataset
from trainer.data.storage import join
from trainer.evaluation.prediction import ServedModel, parse_labels_and_keys
from trainer.exported.results import HISTORY, METRICS, TRIAL, load, parse_history
from trainer.metrics.comparison import Comparison, Pairs, Scores, compare
from trainer.metrics.intervals import GroupSums
from trainer.metrics.metric import Compared, Metric
from trainer.tasks.label_kinds import COMPARISONS, is_rising
from vertex import checked_json
from vertex.errors import InputError
from vertex.formats import count

_RESAMPLES = 1_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """A training of a search: with values of its own or, without a name, with the recipe's."""

    name: str  # its number, after that of its run if there are several
    directory: str
    values: dict[str, str]
    history: list[dict[str, float | None]]
    value: float  # of the metric, of the weights that it kept; NaN if it has not finished

    @property
    def is_finished(self) -> bool:
        return not math.isnan(self.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchVerdict:
    """The trials of a search, in order, and what was found of the best of them."""

    metric: str
    defaults: Trial
    trials: list[Trial]
    best: Trial
    comparison: Comparison  # of the best trial with the recipe's values, on the validation split
    optimism: float  # by how much the best of the trials is better by luck, expected

    @property
    def chosen(self) -> Trial:
        """Return the trial whose values are trained with."""
        return self.best if self.comparison.is_better else self.defaults

    @property
    def reason(self) -> str:
        """Return the verdict in one line."""
        best = self.best
        shown, is_better = self.metric.replace("_", " "), self.comparison.is_better
        return (
            f"trial {best.name} is {'' if is_better else 'not '}significantly better than the "
            f"recipe's values: validation {shown} {best.value:.4f} against "
            f"{self.defaults.value:.4f}, p {self.comparison.p_value:.2g} (the best of "
            f"{count(count_measured(self.trials), 'trial')} needs "
            f"{1 - self.comparison.confidence:.2g} or less)"
        )


def judge_search(
    dataset: Dataset,
    defaults_uri: str,
    trials_uri: str,
    *,
    metric: str,
    confidence: float,
) -> SearchVerdict:
    """Judge the trials in a folder; raise InputError if none has finished.

    Args:
        defaults_uri: base_output_directory of the training with the recipe's values.
        trials_uri: folder with one for each run that has searched, in which each trial has one.
        metric: validation metric that decides which trial is the best.
    """
    defaults = read_trial(defaults_uri, metric)
    runs = _list(trials_uri)
    read = [
        read_trial(
            join(trials_uri, run, number), metric, f"{run}/{number}" if len(runs) > 1 else number
        )
        for run in runs
        for number in sorted(filter(str.isdigit, _list(join(trials_uri, run))), key=int)
    ]
    finished = [trial for trial in read if trial.is_finished]
    if not finished or not defaults.is_finished:
        raise InputError(f"no trial in {trials_uri} has finished with a validation {metric}")
    best = (max if is_rising(metric) else min)(finished, key=lambda trial: trial.value)
    # Unless right answers are compared, the losses are: nats, squared errors or 1 - F1.
    exact = (one for one in COMPARISONS if one.compared is Compared.RIGHT and one.name == metric)
    compared = next(exact, Metric("log_loss", compared=Compared.LOSS))
    base = _score(defaults, dataset)
    sums = []
    for trial in finished:
        scores = _score(trial, dataset)
        sums.append(_sum_groups(scores, compared))
        if trial is best:
            pairs = Pairs.from_scores(scores, base)
    level = (1 - confidence) / count_measured(read)
    return SearchVerdict(
        metric=metric,
        defaults=defaults,
        trials=read,
        best=best,
        comparison=compare(pairs, metric=compared, confidence=1 - level),
        optimism=estimate_optimism(np.array(sums), dataset.splits["validation"].examples),
    )


def count_measured(trials: list[Trial]) -> int:
    """Return the number of trials of which the best was chosen, also of those stopped early."""
    return sum(bool(trial.history) for trial in trials)


def read_trial(directory: str, metric: str, name: str = "") -> Trial:
    """Return the trial in a folder or, without a `name`, the training with the recipe's values.

    Raise InputError if a file of it is damaged.
    """
    history = storage.read_text(join(directory, HISTORY)) or ""
    value: Any = math.nan
    if storage.exists(file := join(directory, METRICS)):
        measured = load(directory).metrics.get("validation")
        value = measured.get(metric, math.nan) if isinstance(measured, dict) else None
        if type(value) not in (int, float):
            raise InputError(
                f"{file} is damaged (validation: {metric} is {json.dumps(value)[:80]} instead of a "
                "number); restore it, or search again"
            )
    return Trial(
        name=name,
        directory=directory,
        values=_read_values(join(directory, TRIAL), finished=not math.isnan(value)) if name else {},
        history=parse_history(history.encode(), directory),
        value=value,
    )


def _read_values(uri: str, *, finished: bool) -> dict[str, str]:
    """Return the values that a trial was given; none if it was killed before it wrote them."""
    text = storage.read_text(uri)
    if text is None and not finished:
        return {}
    try:
        values = dict(checked_json.parse(text or "")["values"])
        for name, value in values.items():
            if not isinstance(value, str):
                raise TypeError(f"values: {name} is {json.dumps(value)[:80]} instead of text")
        return values
    except (ValueError, KeyError, TypeError) as error:
        problem = f"damaged ({error})" if text else "missing"
        raise InputError(f"{uri} is {problem}; restore it, or search again") from None


def estimate_optimism(sums: np.ndarray, examples: int) -> float:
    """Return by how much the mean of the best row exceeds its expectation, by the bootstrap.

    Each resample of the columns chooses a row; how much better that row is there than in the whole
    is the luck of being chosen (Efron and Tibshirani 1993, chapter 17).

    Args:
        sums: scores of each trial that are better if higher, float64 [trials, groups of examples].
    """
    blocks = sums.shape[1]
    generator = np.random.default_rng(0)
    counts = generator.multinomial(blocks, np.full(blocks, 1 / blocks), _RESAMPLES)
    resampled = sums @ counts.T / examples
    chosen = resampled.argmax(axis=0)
    luck = resampled[chosen, np.arange(_RESAMPLES)] - sums.sum(axis=1)[chosen] / examples
    return float(luck.mean())


def _list(folder: str) -> list[str]:
    try:
        return sorted(name.strip("/") for name in tf.io.gfile.listdir(folder))
    except tf.errors.NotFoundError:
        return []


def _score(trial: Trial, dataset: Dataset) -> Scores:
    """Return the scores of a trial's model on the validation split, in stored order."""
    model = ServedModel(join(trial.directory, "model"), dataset)
    answers = model.task.open_answers(dataset.splits["validation"].examples)
    for batch in model.read_stored_batches("validation"):
        labels, keys = parse_labels_and_keys(batch, dataset)
        answers.add_batch(labels, model.answer(batch), keys)
        if dataset.weight:
            answers.add_weights(parse_weights(batch, dataset.weight).numpy())
    return answers.scores(0, answers.rows)


def _sum_groups(scores: Scores, metric: Metric) -> np.ndarray:
    """Return sums of the scores of neighboring examples, better if higher, float64 [groups]."""
    is_exact = metric.compared is Compared.RIGHT
    values: Any = scores.correct if is_exact else -np.asarray(scores.losses)
    sums = GroupSums(len(values), 1)
    sums.add([values * (1.0 if scores.weights is None else scores.weights)])
    return sums.groups[:, 0]
