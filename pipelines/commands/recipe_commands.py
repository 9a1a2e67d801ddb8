"""The commands `recipes`, which lists recipes, and `recipes new`, which writes one."""

import json
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from pipelines import recipe as recipes
from pipelines.commands.arguments import SetOptions, parse_values
from pipelines.printing import say, show_table
from trainer import fields
from vertex.errors import EXIT_CODE, InputError, one_line

app = typer.Typer(invoke_without_command=True, help="List the recipes, or write a new one.")


@app.callback()
def list_recipes(
    context: typer.Context,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Print the JSON schema of recipes instead, for an editor."),
    ] = False,
) -> None:
    if context.invoked_subcommand:
        return
    if schema:
        print(json.dumps(recipes.json_schema(), indent=1))
        return
    rows, broken = [], []
    for name in recipes.list_names():
        try:
            recipe = recipes.load(name)
        except InputError as error:
            broken.append(one_line(error))
            continue
        parameters = recipe.parameters
        replicas = str(sum(parameters.machines.replicas.values()))
        source, model = parameters.records.source, parameters.training.model
        rows.append((name, recipe.summary, model, replicas, source))
    show_table(("Recipe", "Summary", "Model", "Replicas", "Source"), rows)
    for message in broken:
        print(f"error: {message}", file=sys.stderr)
    if broken:
        raise typer.Exit(EXIT_CODE)


@app.command("new")
def write_recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new recipe's name.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A table or photos, such as csv:FILE or images:FOLDER."
        ),
    ],
    label: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="The column to predict; without it, the columns that can be predicted are listed.",
            show_default=False,
        ),
    ] = "",
    column: Annotated[
        list[str],
        typer.Option(
            metavar="JSON",
            help="How to read a column, as in a recipe: "
            '\'{"name": "price", "format": "1.234,56"}\'; repeat the option for more columns.',
            show_default=False,
        ),
    ] = [],  # noqa: B006 - Typer copies it
    set_options: SetOptions = None,
    explain: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Show what was found out about a column; write nothing.",
            show_default=False,
        ),
    ] = "",
    search: Annotated[
        bool, typer.Option("--search", help="Add a search for hyperparameters.")
    ] = False,
) -> None:
    """Write a recipe for a table or photos, and show how the data are read.

    Based on the first 200,000 rows of a table, without those of the test split. The recipe says
    which columns are left out and why, and lists what to check.
    """
    from pipelines import new_recipe

    values = new_recipe.convert_values(parse_values(set_options))
    columns = [fields.convert("--column", entry, dict) for entry in column]
    if explain:
        proposal = new_recipe.propose_for(source, label, columns, values)
        say(*_align(new_recipe.explain(proposal, explain)))
        return
    _, lines = new_recipe.write(name, source, label, columns=columns, values=values, search=search)
    say(*_align([*lines, ("next", f"python -m pipelines run {name} --local")]))


def _align(lines: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{title:<10}{one_line(text)}" for title, text in lines]
