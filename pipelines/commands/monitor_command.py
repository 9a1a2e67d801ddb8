"""The command `monitor`: compare requests to `serve` with the champion's training data."""

from typing import Annotated

import typer

from pipelines import local_registry
from pipelines import recipe as recipes
from pipelines.commands.arguments import RUNS, ModelName, RecipeName, RunsDirectory
from pipelines.console import say, show_table
from trainer import quiet
from trainer.errors import InputError

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
    model_name: ModelName = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Compare the requests to a recipe's champion with its training data, column by column.

    The exit code is 1 if a column has drifted by more than chance and the recipe's max_drift.
    """
    limit = load_table_recipe(recipe, "monitor").parameters.pipeline.max_drift
    directory = runs_directory or RUNS
    version = local_registry.fetch_champion(recipe, model_name, directory)
    quiet.import_tensorflow()
    from pipelines import request_drift
    from trainer.data import schema
    from trainer.evaluation import drift
    from trainer.serving import request_log

    before = schema.load_dataset(schema.join(version.artifact_uri, schema.EXTRA_ASSETS))
    drifts, count = request_drift.measure(before, request_log.read(log))
    rows = []
    for column in drifts:
        figures = (f"{figure:.3f}" for figure in (column.index, column.noise, column.distance))
        rows.append((column.name, *figures, *(f"{share:.1%}" for share in column.missing)))
    show_table(("Column", *TITLES), rows, right=TITLES)
    drifted = drift.format_drifts([column for column in drifts if column.index > limit])
    result = f"have drifted: {drifted}" if drifted else "have not drifted by more than chance"
    if limit and not drifted:
        result += f" and max_drift={limit:g}"
    say(f"{count:,} rows since the training of {version.name} {result}")
    if drifted:
        raise typer.Exit(1)
