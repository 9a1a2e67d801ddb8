"""The command `tensorboard`: learning curves of runs on this machine, in TensorBoard."""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from pipelines.commands.arguments import RUNS, RunsDirectory
from pipelines.local_programs import QUIET, component_environment
from pipelines.printing import say
from pipelines.runs import run_folders
from pipelines.runs.run import Run
from trainer.data.storage import is_object
from vertex.errors import InputError
from vertex.formats import count

# Ctrl-C ends the process without an exception: Python drops a KeyboardInterrupt in a callback,
# such as the one that runs when a thread of the server is deleted. `notf` is TensorBoard's own
# switch to run without TensorFlow, which takes seconds to import and logs a lot.
_PROGRAM = """
import os, signal, sys, types

def end(*_):
    if "main" in globals():  # Else TensorBoard is still being imported.
        manager.remove_info_file()
    os._exit(0)

signal.signal(signal.SIGINT, end)
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard import manager
from tensorboard import main
main.run_main()
"""


def tensorboard(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE|RUN",
            help="Show these runs, or the runs of these recipes; default: all on this machine.",
        ),
    ] = None,
    runs_directory: RunsDirectory = None,
) -> None:
    """Show the learning curves of runs on this machine in TensorBoard, until Ctrl-C."""
    folder = runs_directory or RUNS
    runs = _choose_runs(folder, names or [])
    # Paths are relative to the folder of runs, because its name may contain a comma.
    directories = [f"{run.name}:{os.path.relpath(f'{run.training}/logs', folder)}" for run in runs]
    flags = [f"--logdir_spec={','.join(directories)}", "--host=127.0.0.1", "--port=default"]
    say(f"{count(len(runs), 'run')} in TensorBoard (without TensorFlow); Ctrl-C ends it")
    sys.stdout.flush()
    os.chdir(folder)
    # Replace this process: TensorBoard gets its signals, and no child can outlive it.
    command = [sys.executable, "-c", _PROGRAM, *flags]
    os.execve(sys.executable, command, {**component_environment(), **QUIET})  # noqa: S606


def _choose_runs(folder: pathlib.Path, names: Sequence[str]) -> list[Run]:
    """Return the named runs that have logs, without duplicates; raise InputError if none has."""
    chosen: dict[str, Run] = {}
    unreadable: list[str] = []
    for name in names:
        if run_folders.is_local(folder, name):
            runs = [run_folders.load_by_name(folder, name)]
        else:
            runs = run_folders.list_runs(folder, name, unreadable)
            if not runs:
                raise InputError(
                    f"{name!r} is neither a run nor a recipe with readable runs in the folder "
                    f"{folder}; `python -m pipelines runs` lists the runs"
                )
        chosen.update((run.name, run) for run in runs)
    runs = list(chosen.values()) if names else run_folders.list_runs(folder, "", unreadable)
    say(*(f"not shown: {error}" for error in dict.fromkeys(unreadable)))
    logged = [run for run in runs if pathlib.Path(run.training, "logs").is_dir()]
    if not logged:
        elsewhere = " on this machine" if any(is_object(run.training) for run in runs) else ""
        raise InputError(f"no run in the folder {folder} has TensorBoard logs{elsewhere} yet")
    return logged
