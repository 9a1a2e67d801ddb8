"""Resumption of a cancelled, failed or killed run in its own folder.

Tasks that have succeeded are not run again. The interrupted task reuses the files that it has
written: shards of records, or the checkpoint of a training job. So the run's results are
bit-identical to those of an uninterrupted run.
"""

import pathlib

from components.code_digest import code_digest
from pipelines import run_history
from pipelines.console import say
from pipelines.emulator.containers import find_engine
from pipelines.local import folders
from pipelines.local.execution import Run, execute
from pipelines.local.journal import Journal
from pipelines.package import Package
from trainer.errors import InputError


def resume(directory: pathlib.Path) -> Run:
    """Execute the tasks of a run that are left: the YAML in its folder, with its parameters.

    Raise InputError, and start nothing, if the run is still running or has succeeded, its YAML has
    changed, or its container engine or image is not available.
    """
    # Later runs rely on the paths of artifacts in this folder.
    directory = directory.resolve()
    record = run_history.read_record(directory)
    with run_history.locked(directory) as lock:
        if run_history.load(directory).state == "SUCCEEDED":
            raise InputError(f"{directory.name} has succeeded; there is nothing to resume")
        path = directory / f"{record.recipe}.yaml"
        pipeline = Package(path)
        if pipeline.digest != record.package:
            raise InputError(
                f"{path} is not the file that {directory.name} was started with; start a new run"
            )
        engine = find_engine(pipeline.image) if record.in_containers else ""
        if not engine and record.code != code_digest():
            say(
                "warning   the code of trainer/ or components/ has changed since the run started: "
                "its results may differ from those of an uninterrupted run",
            )
        folders.set_aside(directory, Journal(directory).tasks)
        folders.point_latest_to(directory)
        return execute(pipeline, record, directory, lock, engine)
