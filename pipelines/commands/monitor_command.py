"""The command `monitor`: compare requests to `serve` with the champion's training data."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines import recipe as recipes
from pipelines.commands.arguments import RUNS, ModelName, RecipeName, RunsDirectory
from pipelines.printing import say, show_table
from trainer import quiet
from vertex.errors import InputError, escape_controls
from vertex.formats import count

if TYPE_CHECKING:
    from trainer.evaluation.drift import Drifts

# In two lines, which leave 35 of 80 characters for the name of a column.
TITLES = ("Index", "By\nchance", "Distance", "Missing\nbefore", "Missing\nnow")


def load_table_recipe(recipe: str, what: str) -> recipes.Recipe:
    """Return a recipe of a table; raise InputError for one of images."""
    loaded = recipes.load(recipe)
    if not loaded.parameters.records.columns:
        raise InputError(f"{what} is for models of tables, but {recipe} is a model of images")
    return loaded


def monitor(
    recipe: RecipeName,
    log: Annotated[str, typer.Argument(metavar="LOG", help="File that `serve --log` wrote.")],
    threshold: Annotated[
        float,
        typer.Option(
            min=0.02,
            help="Population stability index above which a column has drifted; by convention 0.1 "
            "is small and 0.25 large.",
        ),
    ] = 0.1,
    model_name: ModelName = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Compare the requests to a recipe's champion with its training data, column by column.

    The exit code is 1 if a column has drifted by more than the threshold and by more than chance.
    """
    from pipelines.local import local_registry

    load_table_recipe(recipe, "monitor")
    directory = runs_directory or RUNS
    version = local_registry.fetch_champion(recipe, model_name, directory)
    quiet.import_tensorflow()
    from pipelines import request_drift
    from trainer.data import schema, storage
    from trainer.serving import request_log

    before = schema.load_dataset(storage.join(version.artifact_uri, schema.EXTRA_ASSETS))
    drifts, total = request_drift.measure(before, request_log.read(log))
    rows = []
    for column in drifts.columns:
        figures = (f"{figure:.3f}" for figure in (column.index, column.noise, column.distance))
        rows.append((column.name, *figures, *(f"{share:.1%}" for share in column.missing)))
    show_table(("Column", *TITLES), rows, right=TITLES)
    say(
        f"{count(total, 'request')} compared with the training data of {version.name}, "
        f"threshold {threshold:g}: " + escape_controls("; ".join(_describe(drifts, threshold)))
    )
    if any(column.exceeds(threshold) for column in drifts.columns):
        raise typer.Exit(1)


def _describe(drifts: "Drifts", threshold: float) -> Iterator[str]:
    """Yield what is known about the columns: which have drifted, and which can't be judged."""
    drifted = [column for column in drifts.columns if column.exceeds(threshold)]
    if drifted:
        yield "drift in " + ", ".join(f"{column.name} {column.index:.2f}" for column in drifted)
    unknown = []
    for column in drifts.columns:
        if column.noise > threshold and column not in drifted:
            needed = column.count_needed_rows(threshold)
            enough = f"at least {needed:,}" if needed else "too few training rows, too"
            unknown.append(f"{column.name} ({enough})")
    if steady := len(drifts.columns) - len(drifted) - len(unknown):
        yield f"no drift in {count(steady, 'column')}"
    if unknown:
        yield f"too few rows to tell for {', '.join(unknown)}"
    if drifts.not_compared:
        yield drifts.format_not_compared()
