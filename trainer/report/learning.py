"""Learning curves: loss, accuracy and learning rate over the epochs."""

import itertools
from typing import Any

from trainer.report import plots
from trainer.report.formats import number


def learning(training: dict[str, Any], history: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the curves, and what to say of the epochs.

    Args:
        training: content of metrics.json; any key may be missing.
        history: rows of history.csv, as numbers or as text; columns may be missing.
    """
    rows = [row for row in history if number(row.get("epoch")) is not None]
    found: dict[str, Any] = {
        "epochs": len(rows),
        "phase_starts": [],
        "best": None,
        "rate": None,
        "scored_by_evaluator": False,
        "stopped": _stopped(training),
        "only_epoch": [],
        "figures": [],
    }
    if len(rows) == 1:
        return found | {"only_epoch": _figures(rows[0])}
    if not rows:
        return found
    best, starts = number(training.get("best_epoch")), _phase_starts(rows)
    if best is not None:
        found["best"] = f"{best:.0f}{in_phase(best, history)}"
    rates = {value for value in column(rows, "learning_rate") if value is not None}
    scored = column(rows, "validation_loss")
    return found | {
        "phase_starts": starts,
        "rate": rates.pop() if len(rates) == 1 else None,
        "scored_by_evaluator": None in scored and set(scored) != {None},
        "figures": _curves(rows, best, starts),
    }


def _curves(
    rows: list[dict[str, Any]], best: float | None, starts: list[float]
) -> list[dict[str, Any]]:
    """Return a figure a metric, and one of the learning rate unless it is constant."""
    epochs = [number(row["epoch"]) or 0.0 for row in rows]
    drawn = []
    for metric in ("loss", "accuracy"):
        lines = [(1, "train", column(rows, metric))]
        lines.append((2, "validation", column(rows, f"validation_{metric}")))
        lines = [line for line in lines if any(value is not None for value in line[2])]
        if lines:
            description = f"{metric.capitalize()} by epoch. " + " ".join(
                f"{label}: {_ends(values)}." for _, label, values in lines
            )
            svg = plots.lines(
                epochs,
                [values for _, _, values in lines],
                y_label=metric,
                best=best,
                phase_starts=starts,
                description=description,
                first_series=lines[0][0],
            )
            legend = [(series, label, None) for series, label, _ in lines]
            drawn.append({"drawing": svg, "caption": metric.capitalize(), "legend": legend})
    rate = column(rows, "learning_rate")
    if len({value for value in rate if value is not None}) > 1:
        description = f"Learning rate by epoch: {_ends(rate)}"
        svg = plots.lines(
            epochs, [rate], y_label="learning rate", description=description, first_series=3
        )
        legend = [(3, "learning rate", None)]
        drawn.append({"drawing": svg, "caption": "Learning rate", "legend": legend})
    return drawn


def _figures(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what there is to say of a training of one epoch, of which no curve can be drawn."""
    names = [f"{part}{metric}" for metric in ("loss", "accuracy") for part in ("", "validation_")]
    known = [(name, number(row.get(name))) for name in names]
    return [(name.replace("_", " ").capitalize(), f"{value:.4g}") for name, value in known if value]


def _stopped(training: dict[str, Any]) -> list[tuple[int, str]]:
    """Why phases stopped early, by number; 0 where there are no phases."""
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
    """Return the phase of an epoch in words; empty where the run has one phase."""
    phases = {number(row.get("epoch")): number(row.get("phase")) for row in history}
    phase = phases.get(epoch)
    return f" of phase {phase:.0f}" if phase is not None and len(set(phases.values())) > 1 else ""


def column(rows: list[dict[str, Any]], title: str) -> list[float | None]:
    """Return the numbers of a column of history.csv, by epoch; None where there is none."""
    return [number(row.get(title)) for row in rows]


def _ends(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"from {known[0]:.4g} to {known[-1]:.4g}"
