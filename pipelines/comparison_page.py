"""The comparison of two runs as a web page: their curves over each other, and the tables."""

import pathlib
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from pipelines.run_comparison import RunComparison, Value, shown
from pipelines.run_history import PastRun
from trainer.errors import InputError
from trainer.evaluation.results import load
from trainer.report import plots
from trainer.report.learning import column
from trainer.report.markup import columns, count, figure, join, section, table, text_cell
from trainer.report.page import page

_CURVES = ("validation_accuracy", "validation_loss", "accuracy", "loss", "learning_rate")


def write(path: pathlib.Path, compared: RunComparison) -> None:
    """Write one HTML file that loads nothing and runs no script."""
    first, second = compared.first, compared.second
    histories = [_history(run) for run in (first, second)]
    names = [first.name, second.name]
    text = page(
        f"{first.name} and {second.name}",
        f"Recipe {first.recipe}" if first.recipe == second.recipe else "Runs of different recipes",
        [
            section("verdict", "Noise or not", _lines(compared.verdicts)),
            _curves(names, histories),
            section("metrics", "Metrics", _metrics(names, compared.metrics), lead=_LEAD),
            _parameters(names, compared.parameters),
        ],
    )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} can't be written: {error.strerror}") from None


_LEAD = "Of the test split, with the 95% interval where one is known."


def _history(run: PastRun) -> list[dict[str, Any]]:
    try:
        return load(run.training).history if run.training else []
    except InputError:
        return []


def _curves(names: Sequence[str], histories: Sequence[list[dict[str, Any]]]) -> Markup:
    """Draw each column of history.csv, with a line a run."""
    length = max(map(len, histories))
    drawn = []
    for title in _CURVES:
        values = [column(rows, title) for rows in histories]
        if any(value is not None for line in values for value in line) and length > 1:
            padded = [line + [None] * (length - len(line)) for line in values]
            label = title.replace("_", " ")
            svg = plots.lines(
                list(range(1, length + 1)), padded, y_label=label, description=f"{label} by epoch"
            )
            drawn.append(figure(svg, label.capitalize(), list(enumerate(names, 1))))
    told = ", ".join(
        f"{name}: {count(len(rows), 'epoch') if rows else 'no history'}"
        for name, rows in zip(names, histories, strict=True)
    )
    return section("curves", "Learning curves", columns(*drawn), lead=f"{told}.")


def _metrics(names: Sequence[str], metrics: list[tuple[str, Value, Value]]) -> Markup:
    rows = [[name.replace("_", " "), str(one), str(other)] for name, one, other in metrics]
    return table(["Metric", *names], rows, caption="Metrics of both runs")


def _parameters(names: Sequence[str], parameters: list[tuple[str, Any, Any]]) -> Markup:
    rows = [
        [name, text_cell(shown(one)), text_cell(shown(other))] for name, one, other in parameters
    ]
    if not rows:
        return section("parameters", "Parameters", lead="All parameters are equal.")
    shown_table = table(["Parameter", *names], rows, caption="Parameters that differ")
    return section("parameters", "Parameters that differ", shown_table)


def _lines(lines: Sequence[str]) -> Markup:
    return join(Markup("<p>{}</p>").format(line) for line in lines)
