"""Learning curves: loss, accuracy and learning rate over the epochs."""

import itertools
from typing import Any

from trainer.report import plots
from trainer.report.formats import number


def learning(training: dict[str, Any], history: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the curves and the facts about the epochs that the section shows.

    Args:
        training: content of metrics.json; any key may be missing.
        history: rows of history.csv, as numbers or as text; columns may be missing.
    """
    rows = [row for row in history if number(row.get("epoch")) is not None]
    best, starts = number(training.get("best_epoch")), _phase_starts(rows)
    rates, scored = set(known(rows, "learning_rate")), column(rows, "validation_loss")
    drawn = len(rows) > 1
    return {
        "epochs": len(rows),
        "phase_starts": starts,
        "best": f"{best:.0f}{in_phase(best, history)}" if drawn and best is not None else None,
        "rate": rates.pop() if drawn and len(rates) == 1 else None,
        "scored_by_evaluator": None in scored and set(scored) != {None},
        "stopped": _stopped(training),
        "only_epoch": _figures(rows[0]) if len(rows) == 1 else [],
        "figures": _curves(rows, best, starts) if drawn else [],
    }


def _curves(
    rows: list[dict[str, Any]], best: float | None, starts: list[float]
) -> list[dict[str, Any]]:
    """Draw one figure per metric, and one of the learning rate unless it is constant."""
    drawn = []
    for metric in ("loss", "accuracy"):
        lines = {1: ("train", metric), 2: ("validation", f"validation_{metric}")}
        if known(rows, metric) or known(rows, f"validation_{metric}"):
            drawn.append(_figure(rows, metric, lines, best=best, phase_starts=starts))
    if len(set(known(rows, "learning_rate"))) > 1:
        drawn.append(_figure(rows, "learning rate", {3: ("learning rate", "learning_rate")}))
    return drawn


def _figure(
    rows: list[dict[str, Any]], what: str, lines: dict[int, tuple[str, str]], **marks: Any
) -> dict[str, Any]:
    """Draw the columns that have values; `lines` are (label, column) by number of series."""
    lines = {series: line for series, line in lines.items() if known(rows, line[1])}
    ends = [(label, known(rows, title)) for label, title in lines.values()]
    ranges = [f"{label}: from {values[0]:.4g} to {values[-1]:.4g}." for label, values in ends]
    drawing = plots.lines(
        [number(row["epoch"]) or 0.0 for row in rows],
        [column(rows, title) for _, title in lines.values()],
        y_label=what,
        description=" ".join([f"{what.capitalize()} by epoch.", *ranges]),
        first_series=min(lines),
        **marks,
    )
    legend = [(series, label, None) for series, (label, _) in lines.items()]
    return {"drawing": drawing, "caption": what.capitalize(), "legend": legend}


def _figures(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return loss and accuracy of a single epoch, for which no curve is drawn."""
    names = [f"{part}{metric}" for metric in ("loss", "accuracy") for part in ("", "validation_")]
    values = [(name.replace("_", " ").capitalize(), number(row.get(name))) for name in names]
    return [(name, f"{value:.4g}") for name, value in values if value]


def _stopped(training: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the reasons why phases stopped early, with their number; 0 if there is one phase."""
    phases = training.get("stopped_phases") or []
    if len(phases) < 2:
        text = training.get("stopped")
        return [(0, text)] if text else []
    return [(number, text) for number, text in enumerate(phases, start=1) if text]


def _phase_starts(rows: list[dict[str, Any]]) -> list[float]:
    """Return the first epoch of each phase but the first."""
    return [
        number(row["epoch"]) or 0.0
        for before, row in itertools.pairwise(rows)
        if number(row.get("phase")) != number(before.get("phase"))
    ]


def in_phase(epoch: float, history: list[dict[str, Any]]) -> str:
    """Return the phase of an epoch in words; empty if the run has one phase."""
    phases = {number(row.get("epoch")): number(row.get("phase")) for row in history}
    phase = phases.get(epoch)
    return f" of phase {phase:.0f}" if phase is not None and len(set(phases.values())) > 1 else ""


def column(rows: list[dict[str, Any]], title: str) -> list[float | None]:
    """Return a column of history.csv as numbers, one per epoch; None for a missing one."""
    return [number(row.get(title)) for row in rows]


def known(rows: list[dict[str, Any]], title: str) -> list[float]:
    """Return a column of history.csv as numbers, without missing ones."""
    return [value for value in column(rows, title) if value is not None]
