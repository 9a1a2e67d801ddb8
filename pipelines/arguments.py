"""What several commands take."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from trainer.errors import InputError

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="As `recipes` lists them.")]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter, as `parameters` lists them; may be given again for others.",
    ),
]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="NAME=PRICE",
        help="Price an hour of a machine type, an accelerator or a GB of a disk type.",
    ),
]


def parse_settings(settings: Sequence[str] | None) -> dict[str, Any]:
    """`name=value` texts as a dictionary; raises InputError for one without `=`."""
    values = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InputError(f"--set {setting!r} is not NAME=VALUE, such as --set epochs=3")
        values[name.strip()] = value
    return values
