"""Draw learning curves: loss, metrics and learning rate over the epochs.

Throughout, `training` is the content of metrics.json, and `history` the rows of history.csv.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from trainer.drawing import plots

Rows = list[dict[str, float | None]]


def summarize_learning(
    training: dict[str, Any], history: Rows, measured: Sequence[str]
) -> dict[str, Any]:
    """Return the curves and facts about the epochs for the report's section.

    `measured` are the loss and the metrics of the task.
    """
    best, kept = training["best_epoch"], training.get("kept_epoch")
    pairs = itertools.pairwise(history)
    starts = [row["epoch"] or 0.0 for before, row in pairs if row["phase"] != before["phase"]]
    rates, scored = set(known_values(history, "learning_rate")), column(history, "validation_loss")
    drawn = len(history) > 1
    return {
        "epochs": len(history),
        "phase_starts": starts,
        "best": f"{best}{format_phase(best, history)}" if drawn and best is not None else None,
        # Only if another epoch was the best.
        "kept": kept if best and kept != best else None,
        "rate": rates.pop() if drawn and len(rates) == 1 else None,
        "scored_by_evaluator": None in scored and set(scored) != {None},
        "stopped": _find_early_stops(training),
        "only_epoch": [] if drawn else _format_epoch(history[0], measured),
        "figures": _draw_curves(history, measured, best, starts) if drawn else [],
    }


def _draw_curves(
    history: Rows, measured: Sequence[str], best: float | None, starts: list[float]
) -> list[dict[str, Any]]:
    """Draw one figure per metric, and one for the learning rate unless it is constant."""
    drawn = []
    for metric in measured:
        lines = {1: ("train", metric), 2: ("validation", f"validation_{metric}")}
        if not any(known_values(history, title) for _, title in lines.values()):
            continue  # A program may measure other metrics.
        drawn.append(_draw_figure(history, metric, lines, best=best, phase_starts=starts))
    if len(set(known_values(history, "learning_rate"))) > 1:
        drawn.append(
            _draw_figure(history, "learning rate", {3: ("learning rate", "learning_rate")})
        )
    return drawn


def _draw_figure(
    history: Rows, what: str, lines: dict[int, tuple[str, str]], **marks: Any
) -> dict[str, Any]:
    """Draw the columns that have values; `lines` are (label, column) by number of the series."""
    lines = {series: line for series, line in lines.items() if known_values(history, line[1])}
    ends = [(label, known_values(history, title)) for label, title in lines.values()]
    ranges = [f"{label}: from {values[0]:.4g} to {values[-1]:.4g}." for label, values in ends]
    drawing = plots.draw_lines(
        known_values(history, "epoch"),
        [column(history, title) for _, title in lines.values()],
        y_label=what,
        description=" ".join([f"{what.capitalize()} by epoch.", *ranges]),
        first_series=min(lines),
        **marks,
    )
    legend = [(series, label, None) for series, (label, _) in lines.items()]
    return {"drawing": drawing, "caption": what.capitalize(), "legend": legend}


def draw_histories(histories: Sequence[Rows], title: str) -> Markup:
    """Draw a column of several trainings by epoch, a line for each."""
    label = title.replace("_", " ")
    lines = [column(rows, title) for rows in histories]
    epochs = range(1, max(map(len, lines)) + 1)
    return plots.draw_lines(epochs, lines, y_label=label, description=f"{label} by epoch")


def _format_epoch(row: dict[str, float | None], measured: Sequence[str]) -> list[tuple[str, str]]:
    """Return loss and metrics of a run's only epoch, for which no curve is drawn."""
    names = [f"{split}{name}" for name in measured for split in ("", "validation_")]
    values = [(name.replace("_", " ").capitalize(), row.get(name)) for name in names]
    return [(name, f"{value:.4g}") for name, value in values if value is not None]


def _find_early_stops(training: dict[str, Any]) -> list[tuple[int, str]]:
    """Return (phase, reason) for each phase that stopped early; phase 0 if there is only one."""
    phases = training["stopped_phases"]
    first = 1 if len(phases) > 1 else 0
    return [(number, text) for number, text in enumerate(phases, start=first) if text]


def format_phase(epoch: float, history: Rows) -> str:
    """Return the phase of an epoch in words; empty if the run has only one phase."""
    phases = {row["epoch"]: row["phase"] for row in history}
    return f" of phase {phases[epoch]:.0f}" if len(set(phases.values())) > 1 else ""


def column(history: Rows, title: str) -> list[float | None]:
    """Return a column of history.csv, one value per epoch; missing values are None."""
    return [row.get(title) for row in history]


def known_values(history: Rows, title: str) -> list[float]:
    """Return a column of history.csv without missing values."""
    return [value for value in column(history, title) if value is not None]
