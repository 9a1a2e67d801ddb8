"""The command `tensorboard`: learning curves of runs on this machine, in TensorBoard."""

import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Annotated

import typer

from pipelines import run_history
from pipelines.commands.arguments import RUNS, RunsDirectory
from pipelines.console import say
from pipelines.emulator.environment import QUIET, of_component
from pipelines.emulator.processes import Guardian
from pipelines.run_history import PastRun
from trainer.data.storage import is_object
from trainer.errors import InputError
from trainer.report.formats import count

# TensorBoard's own switch to run without TensorFlow, which takes seconds to import and logs a lot.
_PROGRAM = """
import sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard.main import run_main
run_main()
"""


def tensorboard(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE|RUN...]",
            help="Show these runs, or the runs of these recipes; default: all on this machine.",
        ),
    ] = None,
    runs_directory: RunsDirectory = None,
) -> int:
    """Show the learning curves of runs on this machine in TensorBoard, until Ctrl-C."""
    runs = _chosen(runs_directory or RUNS, names or [])
    with tempfile.TemporaryDirectory(prefix="tensorboard-") as folder, Guardian() as guardian:
        guardian.after_death(["rm", "-rf", folder])
        # A tree of symlinks, as TensorBoard advises: the runs' folders link to each other.
        for run in runs:
            pathlib.Path(folder, run.name).symlink_to(pathlib.Path(run.training, "logs").resolve())
        say(f"{count(len(runs), 'run')}, without TensorFlow; Ctrl-C ends TensorBoard")
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", _PROGRAM),
                *(f"--logdir={folder}", "--host=127.0.0.1", "--port=default"),
            ],
            env={**of_component(), **QUIET},
            start_new_session=True,
        )
        guardian.watch(process.pid)
        try:
            return process.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            process.terminate()
            process.wait()
            guardian.release(process.pid)


def _chosen(folder: pathlib.Path, names: Sequence[str]) -> list[PastRun]:
    """Return the named runs that have logs, each once; raise InputError if there are none."""
    found: dict[str, PastRun] = {}
    for name in names:
        if run_history.is_here(folder, name):
            runs = [run_history.find(folder, name)]
        else:
            runs = run_history.listed(folder, name)
            if not runs:
                raise InputError(
                    f"{name!r} is neither a run nor a recipe with runs in the folder {folder}; "
                    "`python -m pipelines runs` lists the runs"
                )
        found.update((run.name, run) for run in runs)
    runs = list(found.values()) if names else run_history.listed(folder)
    logged = [run for run in runs if pathlib.Path(run.training, "logs").is_dir()]
    if not logged:
        elsewhere = " on this machine" if any(is_object(run.training) for run in runs) else ""
        raise InputError(f"no run in the folder {folder} has TensorBoard logs{elsewhere} yet")
    return logged
