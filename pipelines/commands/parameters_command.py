"""The command `parameters`: print the parameters by topic, or those that match a word."""

import dataclasses
from collections.abc import Collection
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from pipelines.parameters import PARAMETERS, TOPICS
from pipelines.printing import Console
from trainer.data.tables.columns import KEYS, MEANINGS, Column, Cross, SplitBy
from trainer.fields import default_of, type_of
from trainer.models import MODELS
from trainer.models.backbone_table import BACKBONES
from vertex.errors import InputError
from vertex.formats import suggest


def list_parameters(
    word: Annotated[
        str,
        typer.Argument(
            metavar="WORD",
            help=f"Show only matching parameters: a topic ({', '.join(TOPICS)}), or part of a name "
            "or description.",
        ),
    ] = "",
) -> None:
    """List the parameters that --set can change."""
    console, wanted = Console(), word.lower()
    found = {topic: _find_names(topic, wanted) for topic in TOPICS}
    if not any(found.values()):
        hint = suggest(word, [*TOPICS, *PARAMETERS], f"; topics are {', '.join(TOPICS)}")
        raise InputError(f"no parameter has {word!r} in its name or description{hint}")
    first = True
    for topic, names in found.items():
        if names:
            console.print(Text(topic if first else f"\n{topic}", "bold underline"))
            first = False
        for name in names:
            _show_option(console, *PARAMETERS[name])
    # The exact names add the options of each model or type.
    if wanted == "model_options":
        _show_model_options(console)
    if wanted == "columns":
        for kind, keys in KEYS.items():
            _show_options(console, f"type {kind}: {MEANINGS[kind]}", Column, keys)
        _show_options(console, "crosses: combinations of columns", Cross)
        _show_options(console, "split_by: how rows are split", SplitBy)


def _find_names(topic: str, wanted: str) -> list[str]:
    """Return the names of a topic's parameters that match a word."""
    fields = {name: field for name, (group, field) in PARAMETERS.items() if group is TOPICS[topic]}
    if wanted in TOPICS:
        return list(fields) if wanted == topic else []
    return [
        name
        for name, field in fields.items()
        if wanted in f"{name} {field.metadata['help']}".lower()
    ]


def _show_model_options(console: Console) -> None:
    """Print the options of each model and of each backbone that has any."""
    for model, options in MODELS.items():
        _show_options(console, f"with model={model}", options)
    by_options: dict[type, list[str]] = {}
    for name, backbone in BACKBONES.items():
        by_options.setdefault(backbone.options, []).append(name)
    for options, names in by_options.items():
        if dataclasses.fields(options):
            _show_options(console, f"backbone_options of {', '.join(names)}", options)
    console.print(Text(f"\nbackbones: {', '.join(BACKBONES)}"))


def _show_options(console: Console, title: str, options: type, names: Collection[str] = ()) -> None:
    """Print the options `names` of a dataclass; without names, print all."""
    console.print(Text(f"\n{title}", "bold underline"))
    for field in dataclasses.fields(options):
        if not names or field.name in names:
            _show_option(console, options, field)


def _show_option(console: Console, group: type, field: dataclasses.Field) -> None:
    """Print an option's name, type, default and description."""
    default = default_of(field)
    shown = '""' if default == "" else str(default)
    kind = type_of(group, field.name).__name__
    console.print(Text.assemble((field.name, "bold"), f"  {kind}, default {shown}"))
    console.print(Padding(Text(field.metadata["help"]), (0, 0, 0, 4)))
