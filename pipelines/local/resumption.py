"""Go on with a run that was cancelled, failed or killed, in its own folder.

Tasks that had succeeded are not run again. The task that was interrupted finds what it had
written: shards of records, or the checkpoint of a training job. So the run ends in the bits
that it would have ended in had it never stopped.
"""

import pathlib

from rich.console import Console

from pipelines import run_history
from pipelines.console import print_plain
from pipelines.emulator.containers import engine_with
from pipelines.local import folders
from pipelines.local.execution import Run, execute
from pipelines.local.journal import Journal
from pipelines.package import Package
from trainer.errors import InputError


def resume(directory: pathlib.Path, console: Console | None = None) -> Run:
    """Execute the rest of a run: the YAML in its folder, with its parameters.

    Args:
        directory: of the run.
        console: where to show the run; default: the standard output.

    Raises:
        InputError: no run's folder, it is still running or has succeeded, its YAML is not the one
            that it was started with, or its containers' engine is gone. Nothing was started.
    """
    from pipelines.local.cache import code_digest

    record = run_history.read_record(directory)
    console = console or Console()
    with run_history.locked(directory) as lock:
        if run_history.load(directory).state == "SUCCEEDED":
            raise InputError(f"{directory.name} has succeeded; there is nothing to resume")
        path = directory / f"{record.recipe}.yaml"
        pipeline = Package(path)
        if pipeline.digest != record.package:
            raise InputError(
                f"{path} is not the file that {directory.name} was started with; start a new run"
            )
        engine = engine_with(pipeline.image) if record.in_containers else ""
        if not engine and record.code != code_digest():
            print_plain(
                console,
                "warning   the code of trainer/ or components/ has changed since the run started: "
                "it may end in other weights than it would have",
            )
        folders.set_aside(directory, Journal(directory).tasks)
        folders.point_latest_to(directory)
        return execute(pipeline, record, directory, lock, console, engine)
