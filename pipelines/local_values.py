"""The inputs of a run on this machine: a recipe's file, and values of its parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines import compilation, sources
from pipelines import plan as planning
from pipelines.console import say
from pipelines.local import accelerators
from pipelines.package import Package
from pipelines.parameters import ParameterSet
from pipelines.recipe import Recipe


def compiled(
    recipe: Recipe, parameters: ParameterSet, given: Sequence[str], in_containers: bool
) -> tuple[Path, dict[str, Any]]:
    """Compile a recipe to build/<recipe>.yaml; return the file, and the values of the run.

    Args:
        given: names of the parameters that the command line has set.

    Raises:
        InputError: what they name is not there, or can't be used or paid for.
    """
    planning.check_affordable(parameters)
    values = {name: parameters.values()[name] for name in given}
    values.update(sources.on_this_machine(parameters, in_containers=in_containers))
    machines = parameters.machines
    if machines.accelerator_count:
        say(accelerators.in_place_of(machines))
    package = compilation.write(recipe, Path("build"))
    values["labels"] = {**parameters.job.labels, **Package(package).labels}
    return package, values
