"""The command `clean`: show what would be deleted, ask, delete."""

import datetime
import re
from typing import Annotated

import typer

from pipelines.commands.arguments import GivenSettings, RecipeFilter, confirm, with_settings
from pipelines.printing import print_error, say, show_table
from vertex.client.cloud_errors import FORBIDDEN, CloudError, status_of
from vertex.errors import InputError

_AGE = re.compile(r"([0-9]+)([dhw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@with_settings
def clean(
    settings: GivenSettings,
    older_than: Annotated[
        str, typer.Option(help="Delete only what ended at least this long ago: 30d, 12h or 4w.")
    ],
    recipe: RecipeFilter = None,
    keep_last: Annotated[
        int, typer.Option(min=0, help="Keep this many of each recipe's last successful runs.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
) -> int:
    """Delete old runs, their jobs and folders, finished schedules, unused model versions.

    Only resources with this project's label are deleted. Model versions with an alias are kept, and
    so are runs that such a version or another run still needs. Test endpoints that a killed step
    left behind are deleted once they are a day old, even if --older-than is longer.
    """
    from pipelines.cloud import clean as cleaning

    _before(older_than, datetime.datetime.now(datetime.UTC))  # Refuses another text.
    connection = settings.connect()
    before = _before(older_than, connection.now())
    items, kept = cleaning.find_items(connection, before, recipe or "", keep_last)
    if items:
        show_table(("What", "Name", ""), [(item.kind, item.name, item.detail) for item in items])
    say(*(f"kept: {reason}" for reason in kept))
    if not items:
        say("nothing to delete")
        return 0
    if dry_run:
        say(f"{len(items)} would be deleted (--dry-run)")
        return 0
    if not confirm(f"Delete these {len(items)}?", yes=yes):
        return 0
    deleted, kept_runs = 0, set()
    for item in cleaning.show_progress(items, len(items), "Deleting"):
        if item.run in kept_runs:
            continue
        try:
            item.delete()
            deleted += 1
        except InputError as error:
            raise CloudError(str(error)) from None  # Others have been deleted.
        except CloudError as error:
            # A bucket's retention policy may hold files of some runs. Such a run stays.
            if item.kind != "folder" or status_of(error.__context__ or error) != FORBIDDEN:
                raise
            print_error(f"error: {error}")
            kept_runs.add(item.run)
    say(f"{deleted} deleted")
    return 1 if kept_runs else 0


def _before(age: str, now: datetime.datetime) -> datetime.datetime:
    """Return the time that is 30d, 12h or 4w ago; raise InputError for anything else."""
    match = _AGE.fullmatch(age)
    if not match:
        raise InputError(f"--older-than {age!r} is not an age, such as 30d, 12h or 4w")
    try:
        return now - datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        raise InputError(f"--older-than {age!r} is too long; give less") from None
