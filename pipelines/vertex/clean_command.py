"""python -m pipelines clean: shows what would go, asks, deletes."""

import datetime
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pipelines.arguments import Recipe, confirm, of_recipe
from pipelines.vertex.flags import with_settings
from pipelines.vertex.settings import Settings


@with_settings
def clean(
    settings: Callable[[], Settings],
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
    from pipelines.vertex import clean as cleaning
    from pipelines.vertex.connection import Connection

    only = of_recipe(recipe)
    age = cleaning.age(older_than)
    own = settings().require("project")
    before = datetime.datetime.now(datetime.timezone.utc) - age
    found = cleaning.find(Connection(own), before=before, recipe=only, keep_last=keep_last)
    console = Console()

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    table = Table("What", "Name", "", box=None)
    for item in found.items:
        table.add_row(item.kind, item.name, item.detail)
    if found.items:
        console.print(table)
    for reason in found.kept:
        say(f"kept: {reason}")
    if not found.items:
        say("nothing to delete")
        return
    if dry_run:
        say(f"{len(found.items)} would be deleted; nothing was (--dry-run)")
        return
    if not yes and not confirm(f"Delete these {len(found.items)}?"):
        say("nothing was deleted")
        return
    for item in found.items:
        item.delete()
    say(f"{len(found.items)} deleted")
