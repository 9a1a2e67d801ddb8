"""The folder of a run on this machine, and the temporary folder of its processes."""

import datetime
import os
import pathlib
import shutil
from collections.abc import Sequence

from pipelines.runs import run_files
from pipelines.runs.run_folders import JOB_FILE_NAME, LATEST, SUMMARY_FILE_NAME
from vertex.emulator.background_jobs import BackgroundJob
from vertex.emulator.job_state import TUNING_FILE_NAME
from vertex.emulator.processes import new_folder
from vertex.errors import InputError

_ATTEMPT = "attempt-"


def make(
    runs_directory: pathlib.Path, package: pathlib.Path, root: str, name: str = ""
) -> pathlib.Path:
    """Make a run's folder with the package in it, and point `latest` there.

    Its name is `name` or, if that is empty, the first free one of <recipe>-<time>,
    <recipe>-<time>-2 and so on. If `root` in Cloud Storage is set, the package is also written
    below `<root>/<name of the folder>`, as the run's first object. Raise InputError and leave
    nothing in runs_directory if a run has that `name`, or runs_directory or root can't be written.
    """
    try:
        # Not Path.resolve, which raises RuntimeError for a loop of links.
        parent = pathlib.Path(os.path.realpath(runs_directory))
        now = datetime.datetime.now()
        directory = new_folder(parent, name or f"{package.stem}-{now:%Y%m%d-%H%M%S}")
    except OSError as error:
        raise _folder_error(runs_directory, error) from None
    try:
        uri = f"{root}/{directory.name}/{package.name}"
        is_free = not root or run_files.write_first(uri, package.read_bytes())
        if name and (directory.name != name or not is_free):
            folder = runs_directory if is_free else root
            raise InputError(f"a run {name!r} already exists in {folder}; give another --name")
        if not is_free:
            # While this folder exists, the other gets another name.
            other = make(runs_directory, package, root)
            directory.rmdir()
            return other
        shutil.copyfile(package, directory / package.name)
        point_latest_to(directory)
    except (OSError, InputError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, InputError):
            raise
        raise _folder_error(pathlib.Path(error.filename2 or runs_directory), error) from None
    return directory


def point_latest_to(directory: pathlib.Path) -> None:
    """Make `latest`, next to a run's folder, a link to it."""
    link = directory.with_name(f".latest-{directory.name}")
    try:
        link.unlink(missing_ok=True)
        link.symlink_to(directory.name)
        link.replace(directory.with_name(LATEST))
    except OSError:
        link.unlink(missing_ok=True)
        raise


def set_aside(directory: pathlib.Path, completed: Sequence[str]) -> None:
    """Move the files of the last attempt to logs/attempt-<n>, so that another can begin.

    Leave the logs of the `completed` tasks, which are not run again, and the trials of a search,
    which goes on with them.
    """
    logs = directory / "logs"
    attempts = len(list(logs.glob(f"{_ATTEMPT}*")))
    aside = logs / f"{_ATTEMPT}{attempts + 1}"
    aside.mkdir(parents=True)
    files = (SUMMARY_FILE_NAME, JOB_FILE_NAME, "tensorboard")
    for path in [*logs.iterdir(), *(directory / name for name in files)]:
        stays = path.stem in completed or path.name.startswith(_ATTEMPT)
        stays = stays or (path / TUNING_FILE_NAME).exists()
        if not stays and os.path.lexists(path):
            path.rename(aside / path.name)


def link_tensorboard(jobs: Sequence[BackgroundJob], directory: pathlib.Path) -> None:
    """Link <run>/tensorboard to the logs of the run's last job that has any."""
    for job in reversed([job for job in jobs if job.replicas]):
        base = job.message.job_spec.base_output_directory.output_uri_prefix
        logs = pathlib.Path(base, "logs")
        if base and logs.is_dir():
            (directory / "tensorboard").symlink_to(os.path.relpath(logs, directory))
            return


def _folder_error(runs_directory: pathlib.Path, error: OSError) -> InputError:
    return InputError(f"{runs_directory} can't be written ({error.strerror}); give another folder")
