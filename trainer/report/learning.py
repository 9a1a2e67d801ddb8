"""The section of learning curves: loss, accuracy and learning rate over the epochs."""

import itertools
from typing import Any

from markupsafe import Markup

from trainer.report import plots
from trainer.report.markup import columns, count, facts, figure, number, section


def learning(training: dict[str, Any], history: list[dict[str, Any]]) -> Markup:
    """Loss, accuracy and learning rate over the epochs.

    Args:
        history: rows of history.csv, as numbers or as text; columns may be missing.
    """
    rows = [row for row in history if number(row.get("epoch")) is not None]
    if not rows:
        return section("learning", "Learning curves", lead="The run left no history.")
    epochs = [number(row["epoch"]) or 0.0 for row in rows]
    if len(rows) == 1:
        return _one_epoch(training, rows[0])
    best = number(training.get("best_epoch"))
    starts = _phase_starts(rows)
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
            legend = [(series, label) for series, label, _ in lines]
            drawn.append(figure(svg, metric.capitalize(), legend))
    rate = column(rows, "learning_rate")
    rates = {value for value in rate if value is not None}
    if len(rates) > 1:
        description = f"Learning rate by epoch: {_ends(rate)}"
        svg = plots.lines(
            epochs, [rate], y_label="learning rate", description=description, first_series=3
        )
        drawn.append(figure(svg, "Learning rate", [(3, "learning rate")]))
    lead = f"{count(len(rows), 'epoch')}."
    for phase, start in enumerate(starts, start=2):
        lead += f" Phase {phase} begins with epoch {start:.0f}, at the gray line."
    if best is not None:
        lead += f" The dotted line is the best one, {best:.0f}{in_phase(best, history)}."
    if len(rates) == 1:
        lead += f" The learning rate was {rates.pop():g} throughout."
    if None in (scored := column(rows, "validation_loss")) and set(scored) != {None}:
        lead += " Validation has a point where the evaluator scored a checkpoint."
    return section("learning", "Learning curves", columns(*drawn), lead=lead + _stopped(training))


def _one_epoch(training: dict[str, Any], row: dict[str, Any]) -> Markup:
    """What there is to say of a training of one epoch, of which no curve can be drawn."""
    names = [f"{part}{metric}" for metric in ("loss", "accuracy") for part in ("", "validation_")]
    known = [(name, number(row.get(name))) for name in names]
    pairs = [
        (name.replace("_", " ").capitalize(), f"{value:.4g}") for name, value in known if value
    ]
    lead = "1 epoch." + _stopped(training)
    return section("learning", "Learning curves", facts(pairs), lead=lead)


def _stopped(training: dict[str, Any]) -> str:
    phases = training.get("stopped_phases") or []
    if len(phases) < 2:
        text = training.get("stopped")
        return f" Training stopped early: {text}." if text else ""
    told = [(number, text) for number, text in enumerate(phases, start=1) if text]
    return "".join(f" Phase {number} stopped early: {text}." for number, text in told)


def _phase_starts(rows: list[dict[str, Any]]) -> list[float]:
    """The first epoch of each phase but the first."""
    return [
        number(row["epoch"]) or 0.0
        for before, row in itertools.pairwise(rows)
        if number(row.get("phase")) != number(before.get("phase"))
    ]


def in_phase(epoch: float, history: list[dict[str, Any]]) -> str:
    """The phase of an epoch in words; empty where the run has one phase."""
    phases = {number(row.get("epoch")): number(row.get("phase")) for row in history}
    phase = phases.get(epoch)
    return f" of phase {phase:.0f}" if phase is not None and len(set(phases.values())) > 1 else ""


def column(rows: list[dict[str, Any]], title: str) -> list[float | None]:
    """The numbers of a column of history.csv, by epoch; None where there is none."""
    return [number(row.get(title)) for row in rows]


def _ends(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"from {known[0]:.4g} to {known[-1]:.4g}"
