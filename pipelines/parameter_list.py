"""The pipeline's parameters for a reader: by topic, or those that a word is about."""

import dataclasses

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from pipelines.parameters import GROUPS, PARAMETERS, ParameterSet
from trainer.errors import InputError
from trainer.fields import default_of, nearest, type_of

_PARTS = (part.name for part in dataclasses.fields(ParameterSet))
TOPICS = dict(zip(_PARTS, GROUPS, strict=True))
"""The dataclass of each topic."""


def show(word: str, console: Console) -> None:
    """Prints parameters with their types, defaults and descriptions, below their topics.

    Args:
        word: a topic, or part of a name or a description, in upper or lower case; empty: all.

    Raises:
        InputError: no parameter is about it.
    """
    wanted = word.lower()
    found = {topic: _names(topic, wanted) for topic in TOPICS}
    if not any(found.values()):
        hint = nearest(word, [*TOPICS, *PARAMETERS])
        if "did you mean" not in hint:
            hint = f"; topics are {', '.join(TOPICS)}"
        raise InputError(f"no parameter has {word!r} in its name or description{hint}")
    first = True
    for topic, names in found.items():
        if names:
            console.print(Text(topic if first else f"\n{topic}", "bold underline"))
            first = False
        for name in names:
            group, field = PARAMETERS[name]
            default = default_of(field)
            shown = '""' if default == "" else str(default)
            kind = type_of(group, name).__name__
            console.print(Text.assemble((name, "bold"), f"  {kind}, default {shown}"))
            console.print(Padding(Text(_description(name)), (0, 0, 0, 4)))


def _names(topic: str, wanted: str) -> list[str]:
    """The parameters of a topic that are about a word."""
    names = [name for name, (group, _) in PARAMETERS.items() if group is TOPICS[topic]]
    if wanted in TOPICS:
        return names if wanted == topic else []
    return [name for name in names if wanted in f"{name} {_description(name)}".lower()]


def _description(name: str) -> str:
    """A parameter's help, and what it may be where that is a list."""
    _, field = PARAMETERS[name]
    choices = [str(choice) for choice in field.metadata["choices"] if choice != ""]
    listed = f" One of {', '.join(choices)}." if choices else ""
    return f"{field.metadata['help']}{listed}"
