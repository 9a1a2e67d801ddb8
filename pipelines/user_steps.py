"""The user's own steps: KFP components that a recipe names and that run after the evaluation.

steps = ["my_package.steps:announce"]

The pipeline's parameters and the outputs in `OFFERED` are passed to a step's inputs by name.
"""

import importlib
from collections.abc import Mapping
from typing import Any

from trainer.plugins import find_module_file
from vertex.errors import InputError, one_line
from vertex.formats import suggest

OFFERED = (
    "records", "model", "training", "report", "evaluation", "decision",
    "score", "verdict", "role", "champion", "reason", "run", "project", "location",
)  # fmt: skip
"""Outputs of the pipeline that a step can have as inputs, in addition to the parameters."""


def _load_component(name: str) -> Any:
    """Import a step's module and return its component; raise InputError if that fails."""
    from kfp.dsl.base_component import BaseComponent
    from kfp.dsl.graph_component import GraphComponent

    file = find_module_file("steps", name)
    module, _, attribute = name.partition(":")
    try:
        content = vars(importlib.import_module(module))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"steps={name!r}: {file} can't be imported ({reason})") from None
    component = content.get(attribute)
    # KFP checks no references in a pipeline's texts, dicts and lists.
    if not isinstance(component, BaseComponent) or isinstance(component, GraphComponent):
        known = [key for key, value in content.items() if isinstance(value, BaseComponent)]
        remedy = "; decorate its function with @dsl.component"
        hint = suggest(attribute, known, remedy) if component is None else remedy
        raise InputError(f"steps={name!r}: {file} has no KFP component {attribute!r}{hint}")
    return component


def add(name: str, available: Mapping[str, Any]) -> None:
    """Add a step's task to the pipeline under construction.

    `available` are the pipeline's parameters, and a channel for each of `OFFERED`.
    """
    from kfp.dsl.types.type_utils import InconsistentTypeException

    assert set(OFFERED) <= set(available)
    component, arguments = _load_component(name), {}
    for key, spec in (component.component_spec.inputs or {}).items():
        if key in available:
            arguments[key] = available[key]
        elif not spec.optional:
            hint = suggest(key, available, f"; name a parameter or one of {', '.join(OFFERED)}")
            raise InputError(f"steps={name!r}: the pipeline has no value for input {key!r}{hint}")
    try:
        task = component(**arguments)
    except InconsistentTypeException as error:
        raise InputError(f"steps={name!r}: {one_line(error)}") from None
    task.set_display_name(name.partition(":")[2]).set_caching_options(False)
