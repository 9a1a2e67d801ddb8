"""Arguments that several commands take."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from trainer.errors import InputError

_RECIPE_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")

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


def not_empty(option: typer.CallbackParam, value: str | None) -> str | None:
    """Return an option's value; raise InputError where it says nothing.

    A variable of a script that is not set makes such a value: it must not mean the default.
    """
    if value is not None and not value.strip():
        raise InputError(f"{option.opts[0]} {value!r} is empty; give a value, or leave it out")
    return value


Recipe = Annotated[
    str | None, typer.Option("--recipe", help="Only of this recipe.", callback=not_empty)
]
RunsDirectory = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Where runs on this machine leave their folders; default: runs.",
        callback=not_empty,
    ),
]
ModelName = Annotated[
    str | None, typer.Option(help="Of another model than the recipe's.", callback=not_empty)
]


def runs_folder(given: str | None, *, local: bool) -> Path:
    """Return the folder that --runs-directory names; raises InputError where it names none."""
    if given is None:
        return Path("runs")
    if not local:
        raise InputError(
            f"--runs-directory {given!r} is for runs on this machine; add --local, or leave it out"
        )
    return folder("--runs-directory", given)


def folder(option: str, given: str) -> Path:
    """Return the folder that an option names; `~` is the user's own, as shells leave it.

    Raises:
        InputError: it names none.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise InputError(f"{option} {given!r}: {error}; write the folder out") from None


def of_recipe(given: str | None) -> str:
    """Return the recipe that --recipe names, which need not be there any more; empty: of all.

    Raises:
        InputError: no recipe can have that name.
    """
    if given and not _RECIPE_NAME.fullmatch(given):
        raise InputError(f"--recipe {given!r} is not a recipe's name, such as 'digits'")
    return given or ""


def confirm(question: str) -> bool:
    """Return the answer on the terminal, before something is deleted.

    Raises:
        typer.Abort: it is Ctrl-C.
        InputError: there is nobody to answer.
    """
    try:
        return typer.confirm(question)
    except typer.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        raise InputError(
            "nobody answers here, so nothing was deleted; give --yes to delete without being asked"
        ) from None


def parse_settings(settings: Sequence[str] | None) -> dict[str, Any]:
    """`name=value` texts as a dictionary.

    Raises:
        InputError: one has no `=`, or two contradict each other.
    """
    values: dict[str, Any] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise InputError(f"--set {setting!r} is not NAME=VALUE, such as --set epochs=3")
        try:
            setting.encode()
        except UnicodeEncodeError:  # No place for it in the pipeline's JSON.
            raise InputError(f"--set {setting!r} is not UTF-8; rename what it names") from None
        name = name.strip()
        if values.setdefault(name, value) != value:
            raise InputError(
                f"--set {name} is given as {values[name]!r} and {value!r}; give it once"
            )
    return values
