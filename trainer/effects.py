"""Refuse options that have no effect, by the conditions that their fields declare.

A condition is checked where the options that it names are known: those of all groups before a run
starts, those of a step's groups in the step.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from trainer.conditions import Condition
from trainer.fields import default_of
from vertex.errors import InputError


def find_without_effect(
    *groups: Any, values: Mapping[str, Any] | None = None
) -> dict[str, Condition]:
    """Return the options without effect, by name, each with the first of its conditions that fails.

    Options that have their default are left out.

    Args:
        groups: dataclasses of options; `all_apply` is a condition of all options of its group, but
            for those in `always_apply`.
        values: values that conditions see; conditions on other options are not checked. Default:
            those of the groups.
    """
    found: dict[str, Condition] = {}
    for group in groups:
        for field in dataclasses.fields(group):
            if getattr(group, field.name) == default_of(field):
                continue
            conditions = field.metadata.get("applies", ())
            if field.name not in getattr(group, "always_apply", (field.name,)):
                conditions = (group.all_apply, *conditions)
            for condition in conditions:
                names = [condition.reads] if condition.reads else condition.options
                seen = _read(groups, names) if values is None else values
                if seen.keys() >= set(names) and not condition.holds(*map(seen.get, names)):
                    found.setdefault(field.name, condition)
                    break
    return found


def check_effects(
    *groups: Any,
    names: Collection[str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> None:
    """Raise InputError for options without effect; it names all that need the same condition.

    Args:
        groups: as of `find_without_effect`.
        names: the options to check; default: all.
        values: as of `find_without_effect`.
    """
    found = find_without_effect(*groups, values=values)
    needs = {name: found[name] for name in found if names is None or name in names}
    if not needs:
        return
    first = next(iter(needs.values()))
    failing = [name for name, condition in needs.items() if condition is first]
    fields = {field.name: field for group in groups for field in dataclasses.fields(group)}
    have, them = ("has", "it") if len(failing) == 1 else ("have", "them")
    seen = _read(groups, first.options) if values is None else values
    raise InputError(
        f"{_show(_read(groups, failing))} {have} an effect only with {first.words}, but "
        f"{_show({name: seen[name] for name in first.options})}; leave {them} out (default: "
        f"{_show({name: default_of(fields[name]) for name in failing})}), or use {first.words}"
    )


def _read(groups: Collection[Any], names: Collection[str]) -> dict[str, Any]:
    """Return the values of the fields or properties that a group has, by name."""
    return {
        name: getattr(group, name) for name in names for group in groups if hasattr(group, name)
    }


def _show(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
