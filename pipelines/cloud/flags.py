"""Settings as flags of a command, without each command naming them all."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cloud.settings import Settings, load, option_of, variables_of
from pipelines.commands.arguments import not_empty
from trainer import fields

if TYPE_CHECKING:
    from pipelines.cloud.connection import Connection

_PANEL = "Google Cloud (else from the environment, vertex.toml or gcloud)"


@dataclasses.dataclass(frozen=True)
class GivenSettings:
    """The settings of a command: called, it gathers them from everywhere.

    Attributes:
        flags: by name; None where there was none.
    """

    flags: Mapping[str, Any]

    def __call__(self) -> Settings:
        return load(self.flags, os.environ)

    def connect(self) -> "Connection":
        """Connect to the project of the settings; raise InputError where they name none."""
        from pipelines.cloud.connection import Connection

        return Connection(self().require("project"))

    def options(self) -> list[str]:
        """Return the options that were on the command line, such as --region."""
        return [option_of(name) for name, value in self.flags.items() if value is not None]

    def of_flags_alone(self) -> Settings:
        """Return what was said on the command line, and defaults for the rest."""
        given = {name: value for name, value in self.flags.items() if value}
        return fields.build(Settings, given)


def with_settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a Typer command a flag for each of the settings.

    The function's argument `settings` becomes a `GivenSettings`: a command that turns out not
    to need them never reads them.
    """

    @functools.wraps(function)
    def command(**arguments: Any) -> Any:
        flags = {field.name: arguments.pop(field.name) for field in dataclasses.fields(Settings)}
        return function(settings=GivenSettings(flags), **arguments)

    own = inspect.signature(function).parameters.values()
    parameters = [one for one in own if one.name != "settings"]
    for field in dataclasses.fields(Settings):
        help = f"{field.metadata['help']} [{', '.join(variables_of(field.name))}]"
        flag = typer.Option(
            option_of(field.name), help=help, rich_help_panel=_PANEL, callback=not_empty
        )
        kind = Annotated[str | None, flag]
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
            )
        )
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    # Typer would follow it to the function's own signature.
    del command.__wrapped__
    return command
