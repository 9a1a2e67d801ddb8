"""`run --resume`: find the run that is meant, and go on with it."""

import pathlib
from collections.abc import Sequence

from pipelines import run_history
from pipelines.run_history import PastRun
from pipelines.startup import exit_code
from trainer.errors import InputError


def check_options(
    settings: Sequence[str] | None, cache: bool | None, *, in_containers: bool
) -> None:
    """Raise InputError for options that a resumed run has from its start."""
    given = {"--set": settings, "--cache": cache is not None, "--in-containers": in_containers}
    for option, value in given.items():
        if value:
            raise InputError(
                f"{option} can't be given with --resume: a run goes on as it was started; leave "
                "it out, or start a new run without --resume"
            )


def resume_here(runs_directory: pathlib.Path, recipe: str, name: str) -> int:
    """Resume a run on this machine; returns the exit code.

    Args:
        recipe: whose latest run is meant, or the name of a run.
        name: of the run; empty: see `recipe`.

    Raises:
        InputError: there is no such run, or it can't be resumed.
    """
    run = _chosen(runs_directory, recipe, name)
    from pipelines.local import resume

    result = resume(pathlib.Path(run.link))
    return exit_code(result.state)


def _chosen(runs_directory: pathlib.Path, recipe: str, name: str) -> PastRun:
    if not name and not run_history.is_here(runs_directory, recipe):
        runs = run_history.listed(runs_directory, recipe)
        if not runs:
            raise InputError(
                f"there is no run of {recipe!r} in the folder {runs_directory} to resume; "
                "`python -m pipelines runs` lists the runs"
            )
        return runs[0]
    run = run_history.find(runs_directory, name or recipe)
    if name and run.recipe != recipe:
        raise InputError(f"{run.name} is a run of {run.recipe!r}, not of {recipe!r}")
    return run
