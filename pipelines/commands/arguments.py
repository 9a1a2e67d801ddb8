"""Arguments that several commands share, and the settings of Google Cloud as flags."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import recipe as recipes
from pipelines.api import RUNS
from pipelines.printing import say
from pipelines.project.settings import Settings, load, option_of, variables_of
from vertex.errors import InputError

if TYPE_CHECKING:
    from pipelines.project.connection import Connection

_PANEL = "Google Cloud (else from the environment, vertex.toml or gcloud)"

RecipeName = Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe that `recipes` lists.")]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter that `parameters` lists; repeat the option for more parameters.",
    ),
]
Rates = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="NAME=PRICE",
        help="Price per hour of a machine type, of an accelerator, or of a GB of a disk type; "
        "per TiB of bigquery-query or bigquery-read.",
    ),
]
BatchInput = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="INPUT",
        help="Predict with the champion instead of training. INPUT is .jsonl, .csv or .tfrecord "
        "files, a .txt file that lists images, or bq://PROJECT.DATASET.TABLE.",
    ),
]
RecipeFilter = Annotated[str | None, typer.Option("--recipe", help="Only this recipe.")]


def expand_folder(value: Path | None) -> Path | None:
    """Return the folder that an option names, with `~` expanded; refuse one in Cloud Storage."""
    if str(value).startswith("gs:/"):  # Path shortens gs:// to gs:/.
        uri = str(value).replace("gs:/", "gs://", 1)
        raise InputError(f"{uri!r} is not a folder on this machine; give a path")
    # Unlike Path.expanduser, this leaves the name of an unknown user as it is.
    return value and Path(os.path.expanduser(value))  # noqa: PTH111


RunsDirectory = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder that holds the folders of runs on this machine; default: runs.",
        callback=expand_folder,
    ),
]
ModelName = Annotated[
    str | None, typer.Option(help="Name of the model in the registry; default: the recipe's.")
]


def runs_folder(path: Path | None, *, local: bool) -> Path:
    """Return the folder of runs on this machine; refuse --runs-directory without `local`."""
    if path and not local:
        raise InputError(f"--runs-directory {str(path)!r} is for runs on this machine; add --local")
    return path or RUNS


def load_table_recipe(recipe: str, what: str) -> recipes.Recipe:
    """Return a recipe of a table; raise InputError for one of images."""
    loaded = recipes.load(recipe)
    if not loaded.parameters.records.columns:
        raise InputError(f"{what} is for models of tables, but {recipe} is a model of images")
    return loaded


def confirm(question: str, *, yes: bool) -> bool:
    """Ask before a deletion, unless `yes`; raise InputError if the standard input is closed."""
    try:
        if yes or typer.confirm(question):
            return True
        say("nothing was deleted")
        return False
    except typer.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        raise InputError("no terminal to answer on: nothing was deleted; add --yes") from None


def parse_values(
    assignments: Sequence[str] | None, batch: str | None = None, *, option: str = "--set"
) -> dict[str, Any]:
    """Parse the NAME=VALUE texts of an option; refuse text without `=`, and contradictions.

    `batch` is the value of --batch, which sets the parameter `input`.
    """
    values: dict[str, Any] = {} if batch is None else {"input": batch}
    for text in assignments or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text!r} is not NAME=VALUE, such as epochs=3")
        try:
            text.encode()
        except UnicodeEncodeError:  # The pipeline's JSON can't hold it.
            raise InputError(f"{option} {text!r} is not UTF-8; rename the file or folder") from None
        name = name.strip()
        if values.setdefault(name, value) != value:
            raise InputError(
                f"{option} {name} is given as {values[name]!r} and {value!r}; give one"
            )
    return values


@dataclasses.dataclass(frozen=True)
class GivenSettings:
    """The flags of a command that give settings."""

    flags: Mapping[str, Any]  # values by the setting's name; None for a flag that is not given

    def load(self) -> Settings:
        """Return the settings of the flags, the environment and files."""
        return load(self.flags, os.environ)

    def connect(self) -> "Connection":
        """Connect to the project of the settings; raise InputError if there is none."""
        from pipelines.project.connection import Connection

        return Connection(self.load().require("project"))

    def options(self) -> list[str]:
        """Return the names of the given options, such as --region."""
        return [option_of(name) for name, value in self.flags.items() if value is not None]


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each setting to a Typer command.

    The function receives a `GivenSettings` as its argument `settings`, so that a command that does
    not need the settings never loads them.
    """

    @functools.wraps(function)
    def command(**arguments: Any) -> Any:
        flags = {field.name: arguments.pop(field.name) for field in dataclasses.fields(Settings)}
        return function(settings=GivenSettings(flags), **arguments)

    declared = inspect.signature(function).parameters.values()
    parameters = [parameter for parameter in declared if parameter.name != "settings"]
    for field in dataclasses.fields(Settings):
        help = f"{field.metadata['help']} [{', '.join(variables_of(field.name))}]"
        flag = typer.Option(option_of(field.name), help=help, rich_help_panel=_PANEL)
        kind = Annotated[str | None, flag]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(field.name, keyword, default=None, annotation=kind))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Otherwise Typer would use the wrapped function's signature.
    del command.__wrapped__
    return command
