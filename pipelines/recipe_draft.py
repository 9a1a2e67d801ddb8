"""A recipe that nobody has reviewed: its options, comments on them, and its text in TOML."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tomlkit
from tomlkit.items import Item

from vertex.errors import one_line


class Draft(NamedTuple):
    """Options that suit some data, and what is known of the data."""

    options: dict[str, Any]  # in the order of the recipe
    comments: dict[str, list[str]]  # lines above an option, by its name
    facts: list[tuple[str, str]]  # titles and texts, for the terminal


def to_text(heading: Sequence[str], draft: Draft) -> str:
    """Return a draft as a recipe; the first line of the heading is its summary."""
    document = tomlkit.document()
    for line in heading:
        document.add(tomlkit.comment(one_line(line)))
    document.add(tomlkit.nl())
    for name, value in draft.options.items():
        if comment := draft.comments.get(name):
            document.add(tomlkit.nl())
            for line in comment:
                document.add(tomlkit.comment(one_line(line)))
        document.add(name, _to_item(value))
    return tomlkit.dumps(document)


def to_toml(value: Any) -> str:
    """Return a value as a recipe has it, in one line."""
    return _to_item(value).as_string()


def list_with_comments(lines: Sequence[Mapping[str, Any] | str]) -> Item:
    """Return tables as a list with a line each; texts between them become comments."""
    array = tomlkit.array()
    for line in lines:
        if isinstance(line, str):
            array.add_line(comment=one_line(line), indent="  ", add_comma=False)
        else:
            array.add_line(_to_item(line), indent="  ")
    array.add_line(indent="", add_comma=False)
    return array


def _to_item(value: Any) -> Item:
    if isinstance(value, Item):
        return value
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        table.update({key: _to_item(part) for key, part in value.items()})
        return table
    if isinstance(value, list):
        array = tomlkit.array()
        array.extend(map(_to_item, value))
        return array
    return tomlkit.item(value)
