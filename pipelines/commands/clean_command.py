"""python -m pipelines clean: shows what would go, asks, deletes."""

import datetime
import re
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pipelines.cloud.flags import GivenSettings, with_settings
from pipelines.commands.arguments import Recipe, confirm, of_recipe
from pipelines.console import cell, say
from trainer.errors import InputError

_AGE = re.compile(r"([0-9]+)([dhw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@with_settings
def clean(
    settings: GivenSettings,
    older_than: Annotated[str, typer.Option(help="What ended before: 30d, 12h or 4w ago.")],
    recipe: Recipe = None,
    keep_last: Annotated[
        int, typer.Option(min=0, help="Of each recipe, its last successful runs to keep.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete old runs, training jobs, finished schedules, unused model versions and folders.

    Only what carries this project's label; no model version with an alias, and no run that
    one of those or another run still needs.
    """
    from pipelines.cloud import clean as cleaning

    only, before = of_recipe(recipe), _before(older_than)
    connection = settings.connect()
    found = cleaning.find(connection, before=before, recipe=only, keep_last=keep_last)

    table = Table("What", "Name", "", box=None)
    for item in found.items:
        table.add_row(*map(cell, (item.kind, item.name, item.detail)))
    if found.items:
        Console().print(table)
    say(*(f"kept: {reason}" for reason in found.kept))
    if not found.items:
        say("nothing to delete")
        return
    if dry_run:
        say(f"{len(found.items)} would be deleted; nothing was (--dry-run)")
        return
    if not yes and not confirm(f"Delete these {len(found.items)}?"):
        say("nothing was deleted")
        return
    for item in cleaning.progress(connection, found.items, len(found.items), "deleted"):
        item.delete()
    say(f"{len(found.items)} deleted")


def _before(age: str) -> datetime.datetime:
    """Return the time that lies 30d, 12h or 4w back; raises InputError for anything else."""
    match = _AGE.fullmatch(age)
    if not match:
        raise InputError(f"--older-than {age!r} is not an age, such as 30d, 12h or 4w")
    try:
        back = datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
        return datetime.datetime.now(datetime.timezone.utc) - back
    except OverflowError:
        raise InputError(f"--older-than {age!r} is before the calendar; use less") from None
