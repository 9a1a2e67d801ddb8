"""Compare two runs: the parameters that differ, and whether one is better beyond chance."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.runs import run_files
from pipelines.runs.run import Run
from trainer.data.storage import is_object, join
from trainer.evaluation import prediction_file
from trainer.evaluation.prediction_file import Predictions
from trainer.exported import model_files
from trainer.exported.results import HISTORY, parse_history
from trainer.metrics import COMPARISONS, comparison
from trainer.metrics.comparison import Pairs
from vertex.errors import InputError, first_line
from vertex.facts.json_numbers import to_whole_numbers

if TYPE_CHECKING:
    from trainer.report.learning import Rows  # imports Matplotlib

CONFIDENCE = 0.95
_ONE_SIDED = 1 - (1 - CONFIDENCE) / 2
"""Confidence of each bound of an interval whose confidence is CONFIDENCE."""
_NOT_COMPARED = ("labels",)
"""Parameters that name a run, its template and its commit; they have no effect on training."""
_BOUNDS = ("_low", "_high")


@dataclasses.dataclass(frozen=True)
class Value:
    """A metric of a run, with its 95% interval if known."""

    value: float | None
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        text = _format_number(self.value)
        if self.interval:
            text += f" ({_format_number(self.interval[0])} to {_format_number(self.interval[1])})"
        return text


def _format_number(value: float) -> str:
    """Format a number with 4 digits; 0.99996 becomes 0.9999, so that 1 means exactly 1."""
    return f"{min(value, 0.9999) if 0.5 < value < 1 else value:.4g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunComparison:
    """A comparison of the second run with the first."""

    first: Run
    second: Run
    # Parameters that differ: name, value of the first, value of the second, as --set takes them.
    parameters: list[tuple[str, str, str]]
    # Metrics of either run, those of the validation split first: name, value of the first, value
    # of the second.
    metrics: list[tuple[str, Value, Value]]
    # A line for each metric that was compared pair by pair, or one line that says why none was.
    verdicts: list[str]
    histories: "list[Rows]"  # rows of history.csv of each run; empty without one


def compare(first: Run, second: Run, client: Any = None) -> RunComparison:
    """Compare two runs by their parameters, metrics, predictions and curves.

    Files of runs on Vertex AI are read by `client`, of Cloud Storage.
    """
    answers = [_read_predictions(run, client) for run in (first, second)]
    # Metrics that can be tested come first.
    tested = [name for names in COMPARISONS.values() for name in names]
    others = sorted({*first.metrics, *second.metrics} - {*tested})
    names = [name for name in tested if name in first.metrics | second.metrics]
    metrics = [
        (name, _build_value(first, answers[0], name), _build_value(second, answers[1], name))
        for name in [*names, *others]
        if not name.endswith(_BOUNDS)
    ]
    validation = [
        (
            f"validation {name}",
            Value(first.validation.get(name)),
            Value(second.validation.get(name)),
        )
        for name in first.validation | second.validation
        if name != "epoch"
    ]
    return RunComparison(
        first=first,
        second=second,
        parameters=find_differing_parameters(first, second),
        metrics=[*validation, *metrics],
        verdicts=_describe_differences(first, second, *answers),
        histories=[_read_history(run, client) for run in (first, second)],
    )


def find_differing_parameters(first: Run, second: Run) -> list[tuple[str, str, str]]:
    """Return the parameters that differ: name, value in `first`, value in `second`, as text."""
    names = dict.fromkeys([*first.parameters, *second.parameters])
    pairs = [(name, first.parameters.get(name), second.parameters.get(name)) for name in names]
    return [
        (name, _format_value(old), _format_value(new))
        for name, old, new in pairs
        if old != new and name not in _NOT_COMPARED
    ]


def _format_value(value: Any) -> str:
    """Format a parameter's value as --set takes it."""
    return value if isinstance(value, str) and value else json.dumps(to_whole_numbers(value))


def _read_predictions(run: Run, client: Any) -> Predictions | None:
    content = _read(run, run.predictions, client)
    if not content:
        return None
    try:
        return prediction_file.parse(content)
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{run.predictions} is damaged ({first_line(error)}); restore it, or run "
            f"{run.recipe} again"
        ) from None


def _read_history(run: Run, client: Any) -> "Rows":
    uri = run.training and join(run.training, HISTORY)
    content = _read(run, uri, client)
    if uri and not is_object(uri):
        model = join(run.training, "model")
        run_files.check(run.link, join(model, model_files.LIST))
        model_files.check_beside(model, HISTORY)
    return parse_history(content, uri) if content else []


def _read(run: Run, uri: str, client: Any) -> bytes | None:
    if not uri:
        return None
    run_files.check(run.link, uri)
    return run_files.read(uri, client if run.on_vertex else None)


def _build_value(run: Run, answers: Predictions | None, name: str) -> Value:
    low, high = (run.metrics.get(f"{name}{bound}") for bound in _BOUNDS)
    if low is not None and high is not None:
        return Value(run.metrics.get(name), (low, high))
    if name == "log_loss" and answers and answers.scores.losses is not None:
        generator = np.random.default_rng(0)
        losses = answers.scores.losses * answers.scores.weights
        interval = comparison.bootstrap_interval(losses, _ONE_SIDED, generator)
        return Value(run.metrics.get(name), interval)
    return Value(run.metrics.get(name))


def _describe_differences(
    first: Run,
    second: Run,
    first_answers: Predictions | None,
    second_answers: Predictions | None,
) -> list[str]:
    pairs = ((first, first_answers), (second, second_answers))
    missing = [run.name for run, answers in pairs if answers is None]
    if not first_answers or not second_answers:
        reason = f"{' and '.join(missing)} kept no predictions of the test records"
    elif first_answers.examples != second_answers.examples:
        reason = "the runs were evaluated on different test records"
    else:
        return [
            _describe_difference(first, second, first_answers, second_answers, metric)
            for metric in COMPARISONS[first_answers.loss]
        ]
    return [f"The difference can't be tested: {reason}. Compare the intervals."]


def _describe_difference(
    first: Run,
    second: Run,
    first_answers: Predictions,
    second_answers: Predictions,
    metric: str,
) -> str:
    forward, backward = (
        comparison.compare(Pairs.from_scores(*scores), metric=metric, confidence=_ONE_SIDED)
        for scores in (
            (second_answers.scores, first_answers.scores),
            (first_answers.scores, second_answers.scores),
        )
    )
    p_value = min(1.0, 2 * min(forward.p_value, backward.p_value))
    title = metric.replace("_", " ").capitalize()
    if not forward.difference:
        return f"{title}: equal on the same {forward.examples:,} test records"
    better, result = (second, forward) if forward.difference > 0 else (first, backward)
    noise = "more than noise" if p_value <= 1 - CONFIDENCE else "within the noise"
    return (
        f"{title}: {better.name} is better by {result.difference:.4g} ({result.low:.4g} to "
        f"{result.high:.4g}), {noise} (p {p_value:.2g}, paired on {result.examples:,} test records)"
    )
