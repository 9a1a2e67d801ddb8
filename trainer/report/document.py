"""report.html: a run on one page, which needs nothing but itself."""

from collections.abc import Collection
from typing import Any

from markupsafe import Markup

from trainer.data.schema import Dataset
from trainer.evaluation.gate import Verdict
from trainer.evaluation.scoring import Evaluation
from trainer.files import write_text
from trainer.machines.price import JobPrice
from trainer.report import background, pictures, quality, tables
from trainer.report.champion_section import contest
from trainer.report.learning import learning
from trainer.report.page import page
from trainer.report.price_line import price as price_line
from trainer.report.verdict import summary


def write_report(
    uri: str,
    *,
    evaluation: Evaluation,
    dataset: Dataset,
    training: dict[str, Any],
    history: list[dict[str, Any]],
    title: str,
    details: dict[str, Any],
    recipe_sets: Collection[str] = (),
    verdict: Verdict | None = None,
    price: JobPrice | None = None,
    on_vertex: bool = False,
) -> None:
    """Writes the report of a run to the file at `uri`.

    Args:
        uri: of the HTML file.
        evaluation: of the trained model on the test split.
        dataset: what it was trained on.
        training: metrics.json of the training; any key may be missing.
        history: rows of history.csv, as numbers or as text; may be empty.
        title: heading of the page.
        details: parameters of the run, by name.
        recipe_sets: names of those that the recipe sets.
        verdict: of the gate.
        price: of the training job's machines; None where it is not known.
        on_vertex: whether they were used, and the run not one of this machine.
    """
    sections = [
        summary(
            evaluation,
            dataset,
            training,
            history,
            details,
            verdict,
            price_line(price, training, on_vertex=on_vertex),
        ),
        contest(verdict) if verdict and verdict.champion else Markup(),
        learning(training, history),
        quality.confusion(evaluation),
        quality.curves(evaluation),
        quality.calibration(evaluation),
        quality.per_class(evaluation),
        tables.slices(evaluation),
        pictures.mistakes(evaluation),
        tables.columns(dataset),
        background.balance(dataset),
        background.data(dataset),
        background.recipe(details, recipe_sets),
        background.environment(evaluation, training, history, details),
    ]
    subtitle = f"Judged on {evaluation.examples:,} {evaluation.split} examples of {dataset.name}"
    text = page(title, subtitle, sections)
    # File names may hold bytes that are no text.
    write_text(uri, text.encode(errors="replace").decode())
