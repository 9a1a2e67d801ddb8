"""Settings as flags of a command, without each command naming them all."""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from pipelines.cloud.settings import Settings, load, parse_labels
from pipelines.commands.arguments import not_empty
from trainer import fields

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

    def options(self) -> list[str]:
        """Return the options that were on the command line, such as --region."""
        return [_option(name) for name, value in self.flags.items() if value is not None]

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
        for name, value in flags.items():
            if value is not None:
                not_empty(_option(name), value)
        if flags["labels"]:
            flags["labels"] = parse_labels(flags["labels"])
        return function(settings=GivenSettings(flags), **arguments)

    own = inspect.signature(function).parameters.values()
    parameters = [one for one in own if one.name != "settings"]
    for field in dataclasses.fields(Settings):
        variables = ", ".join(field.metadata["variables"])
        kind = Annotated[
            str | None,
            typer.Option(
                _option(field.name),
                help=f"{field.metadata['help']} [{variables}]",
                rich_help_panel=_PANEL,
                show_default=False,
            ),
        ]
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
            )
        )
    signature = inspect.Signature(parameters)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    # Typer would follow it to the function's own signature.
    del command.__wrapped__
    return command


def _option(name: str) -> str:
    """--pipeline-root, of the setting pipeline_root."""
    return f"--{name.replace('_', '-')}"
