"""The commands `recipes`, which lists recipes, and `recipes new`, which writes one."""

import json
import sys
from typing import Annotated

import typer

from pipelines import recipe as recipes
from pipelines.printing import say, shorten_path, show_table
from trainer.errors import EXIT_CODE, InputError, one_line

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
        str, typer.Argument(metavar="SOURCE", help="A table, such as csv:FILE or parquet:FOLDER.")
    ],
    label: Annotated[
        str, typer.Option(metavar="COLUMN", help="The column to predict.", show_default=False)
    ],
) -> None:
    """Write a recipe for a table, with a type for each column that can be learned from.

    The first 200,000 rows decide, without those of the test split. The recipe says which columns
    are left out, and why.
    """
    from pipelines import new_recipe

    path, proposal = new_recipe.write(name, source, label)
    kind = proposal.label.get("type", "classes")
    say(f"recipe    {shorten_path(path)}: {label} ({kind}) from {len(proposal.columns)} columns")
    for column, reason in proposal.left_out.items():
        say(f"left out  {column} {reason}")
    say(f"next      python -m pipelines run {name} --local")
