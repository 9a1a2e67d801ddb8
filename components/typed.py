"""Define components as typed functions, in which a config argument declares an input per field.

    @component
    def plan(records: dsl.Input[dsl.Dataset], config: TrainingConfig, run: str): ...

has the inputs records and run, and an input for each field of TrainingConfig, which is described by
the field's help. The function receives a TrainingConfig. Its code is in the image, not in the
compiled pipeline; the image's kfp_config.ini names the file of each component.
"""

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

from kfp import dsl

from trainer.effects import check_effects
from trainer.fields import build, pick, type_of
from vertex.errors import exit_on_input_error

RUNTIME = {"_KFP_RUNTIME": "true"}
"""KFP's variable for a running step, which skips imports that only compiling needs (0.5 s)."""


def component(function: Callable[..., Any]) -> Any:
    """Make a KFP component from a function; InputError ends it with one line and exit code 2.

    Args:
        function: a function whose docstring ends with a section `Args:` that describes all
            arguments except configs.
    """
    configs: dict[str, type] = {}
    inputs: dict[str, Any] = {}
    lines = [inspect.getdoc(function) or ""]
    signature = inspect.signature(function)
    for name, parameter in signature.parameters.items():
        if not dataclasses.is_dataclass(parameter.annotation):
            inputs[name] = parameter.annotation
            continue
        group: Any = parameter.annotation
        configs[name] = group
        for field in dataclasses.fields(group):
            inputs[field.name] = type_of(group, field.name)
            lines.append(f"    {field.name}: {field.metadata['help']}")

    @functools.wraps(function)
    def call(**values: Any) -> Any:
        with exit_on_input_error():
            arguments = {name: values[name] for name in values if name in signature.parameters}
            for name, group in configs.items():
                arguments[name] = build(group, pick(group, values))
            check_effects(*(arguments[name] for name in configs))
            return function(**arguments)

    call.__doc__ = "\n".join(lines)
    call.__annotations__ = {**inputs, "return": signature.return_annotation}
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            inspect.Parameter(name, kind, annotation=annotation)
            for name, annotation in inputs.items()
        ]
    )
    if RUNTIME.items() <= os.environ.items():
        return call
    # Imported here: reads the table of machines, which a running step does not need.
    from components.planning.worker_pools import IMAGE

    return dsl.component(call, base_image=IMAGE, target_image=IMAGE)
