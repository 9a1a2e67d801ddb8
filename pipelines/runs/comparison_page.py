"""A web page that compares two runs: their curves in common plots, and tables."""

import pathlib
from collections.abc import Sequence

from markupsafe import Markup

from pipelines.runs.run_comparison import RunComparison
from trainer.data import storage
from trainer.report.learning import Rows, draw_histories, known_values
from trainer.report.page import render


def write(path: pathlib.Path, compared: RunComparison) -> None:
    """Write the page as one HTML file without scripts or external resources."""
    first, second = compared.first, compared.second
    names, histories = [first.name, second.name], compared.histories
    text = render(
        "comparison.html.j2",
        title=f"{first.name} and {second.name}",
        subtitle=f"Recipe {first.recipe}"
        if first.recipe == second.recipe
        else "Runs of different recipes",
        names=names,
        verdicts=compared.verdicts,
        epochs=[(name, len(rows)) for name, rows in zip(names, histories, strict=True)],
        curves=_draw_curves(histories),
        legend=[(series, name, None) for series, name in enumerate(names, start=1)],
        metrics=compared.metrics,
        parameters=compared.parameters,
    )
    with storage.catch_write_errors(str(path)):
        path.write_text(text, encoding="utf-8")


def _draw_curves(histories: Sequence[Rows]) -> list[tuple[str, Markup]]:
    """Draw metrics of both splits and the learning rate, with a line for each run."""
    split = "validation_"
    titles = dict.fromkeys(title for rows in histories for row in rows[:1] for title in row)
    # The task's metric before the loss.
    validated = [title for title in reversed(titles) if title.startswith(split)]
    drawn = []
    trained = [title.removeprefix(split) for title in validated]
    for title in [*validated, *trained, "learning_rate"]:
        has_values = any(known_values(rows, title) for rows in histories)
        if has_values and max(map(len, histories)) > 1:
            drawn.append((title.replace("_", " ").capitalize(), draw_histories(histories, title)))
    return drawn
