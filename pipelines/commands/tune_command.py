"""The command `tune`: search for hyperparameters, then train with the best."""

from typing import Annotated, Any

import typer

from pipelines import api, startup
from pipelines.commands.arguments import (
    GivenSettings,
    RecipeName,
    RunsDirectory,
    SetOptions,
    parse_values,
    runs_folder,
    with_settings,
)
from pipelines.commands.run_command import start_on_vertex
from vertex.errors import InputError


@with_settings
def tune_recipe(
    settings: GivenSettings,
    recipe: RecipeName,
    local: Annotated[bool, typer.Option("--local", help="Search on this machine.")] = False,
    trials: Annotated[int | None, typer.Option(help="Number of trials.")] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Number of trials that run in parallel.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            "--search", metavar="NAME=VALUE", help="Option of the recipe's `search` table."
        ),
    ] = None,
    set_: SetOptions = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Start the search without waiting for its end.")
    ] = False,
    runs_directory: RunsDirectory = None,
) -> int:
    """Search for hyperparameters as the recipe's `search` table says, and train with the best.

    The name of the search is RECIPE-search: give it to `compile`, `schedule` and `run --resume`.
    """
    changes: dict[str, Any] = parse_values(search, option="--search")
    counts = {"trials": trials, "parallel": parallel}
    changes |= {name: value for name, value in counts.items() if value is not None}
    values = parse_values(set_)
    loaded = api.load(recipe).as_search(changes, values)
    if local:
        if detach or settings.options():
            raise InputError("--detach and settings of Vertex AI exclude --local; leave them out")
        directory = runs_folder(runs_directory, local=True)
        ended = api.run(loaded, values, runs_directory=directory, name=name or "", origin="--set")
        return startup.exit_code(ended.state)
    options: dict[str, Any] = {"cache": None, "name": name or "", "detach": detach}
    return start_on_vertex(settings.load(), loaded, values, batch=False, **options)
