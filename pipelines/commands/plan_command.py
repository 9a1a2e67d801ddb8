"""The command `plan`."""

from typing import Annotated

import typer

from pipelines import api
from pipelines.commands import run_command
from pipelines.commands.arguments import Rates, RecipeName, SetOptions, parse_values
from vertex.errors import InputError

_LONGEST_MINUTES = 366 * 24 * 60


def plan(
    recipe: RecipeName,
    set_: SetOptions = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0,
            max=_LONGEST_MINUTES,
            help="Expected duration of the training in minutes; default: the recipe's.",
            show_default=False,
        ),
    ] = 0.0,
    rate: Rates = None,
    batch: run_command.BatchInput = None,
) -> None:
    """Show the machines, quota and price of a run.

    Asks only BigQuery, for the size of a source there.
    """
    loaded, values = api.load(recipe), parse_values(set_, batch)
    if batch is not None:
        if minutes:
            raise InputError("--minutes is for training; leave it out with --batch")
        from pipelines import plan as planning
        from pipelines import prediction_values

        values = prediction_values.complete_values(loaded, values, origin="--batch")
        planning.show_batch(values, rate or [])
        return
    api.plan(loaded, values, minutes=minutes, rates=rate or [], origin="--set")
