"""A web page about a search: its verdict, its trials, and what each option has changed."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.drawing import plots
from trainer.evaluation.search_verdict import SearchVerdict, Trial
from trainer.report.learning import draw_histories
from trainer.report.page import render
from trainer.tasks.label_kinds import is_rising

_SPREAD = 5.0
"""Largest value of an option by its smallest, from which it is drawn on a logarithmic scale."""


def render_search(title: str, verdict: SearchVerdict, recipe: Mapping[str, Any]) -> str:
    """Return the page as one HTML file without scripts or external resources.

    `recipe` has the recipe's values of the options that were searched.
    """
    metric = verdict.metric.replace("_", " ")
    label = f"validation {metric}"
    finished = {at: trial for at, trial in enumerate(verdict.trials, 1) if trial.is_finished}
    values = [trial.value for trial in finished.values()]
    over_time = plots.draw_trials(
        [*finished],
        values,
        x_label="trial",
        y_label=label,
        description=f"{label} of each trial, and the best so far",
        best=[*itertools.accumulate(values, max if is_rising(verdict.metric) else min)],
    )
    names = [*dict.fromkeys(name for trial in verdict.trials for name in trial.values)]
    return render(
        "search.html.j2",
        title=title,
        subtitle="Search for hyperparameters",
        verdict=verdict,
        metric=metric,
        names=names,
        rows=[
            (trial, [_format_value((trial.values or recipe).get(name, "")) for name in names])
            for trial in (verdict.defaults, *verdict.trials)
        ],
        over_time=over_time,
        effects=[(name, _draw_effect(name, [*finished.values()], label)) for name in names],
        curves=draw_histories(
            [verdict.defaults.history, verdict.best.history], f"validation_{verdict.metric}"
        ),
    )


def _format_value(value: Any) -> str:
    """Format a value that may be text, a number with four digits."""
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)


def _draw_effect(name: str, trials: Sequence[Trial], label: str) -> Any:
    """Draw the metric by the values of one option, in the trials that have it."""
    having = [trial for trial in trials if name in trial.values]
    texts = [trial.values[name] for trial in having]
    try:
        x: list[Any] = [float(text) for text in texts]
        is_log = min(x) > 0 and max(x) / min(x) > _SPREAD
    except ValueError:
        x, is_log = texts, False
    return plots.draw_trials(
        x,
        [trial.value for trial in having],
        x_label=name.replace("_", " "),
        y_label=label,
        description=f"{label} by {name}",
        is_log=is_log,
    )
